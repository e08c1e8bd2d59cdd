"""`WindowChange`: a change that the window can make, its plan, the fields of its form, and the store that it changes."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol

from pylog.errors import InvalidArgumentError
from pylog.groups.admin import Group
from pylog.record.types import Record
from pylog.text import as_bytes
from pylog.transactions.admin import TransactionAdmin
from pylog.ui.watch import Watch

if TYPE_CHECKING:
    from pylog.producer.producer import Producer

NUMBER: Final = re.compile("[0-9]{1,19}")


class ChangingLog(Protocol):
    """A partition of a store that is open for writing."""

    def delete_records(self, before: int) -> int: ...

    def read(self, offset: int) -> Record: ...


class ChangingStore(Protocol):
    """A store that is open for writing."""

    @property
    def transactions(self) -> TransactionAdmin: ...

    def log(self, topic: str, partition: int = 0) -> ChangingLog: ...

    def group(self, group_id: str) -> Group: ...

    def delete_topic(self, name: str) -> None: ...

    def producer(self) -> Producer[bytes, bytes]: ...


OpenForWriting = Callable[[], AbstractContextManager[ChangingStore]]
Fields = Mapping[str, str]


@dataclass(frozen=True)
class ChangePlan:
    """The effects of a change, before it is made.

    Attributes:
        sentence: what is done.
        titles, rows: details.
        must_type: text that must be typed to confirm; empty for none.
    """

    sentence: str
    titles: tuple[str, ...] = ()
    rows: tuple[tuple[object, ...], ...] = ()
    must_type: str = ""


@dataclass(frozen=True)
class WindowChange:
    """A change.

    Attributes:
        title: its page's title.
        fields: names with labels, of the form.
        plan: returns what it would do. Changes nothing.
        make: makes it, and returns what was done.
        optional: names of fields that may be empty.
        long: names of fields with long texts. Their form is sent in a body, and not in an address.
        filled: returns the fields as a form begins with them, from those of the link that leads to it; None for those themselves.
    """

    title: str
    fields: Mapping[str, str]
    plan: Callable[[Watch, Fields], ChangePlan]
    make: Callable[[ChangingStore, Fields], str]
    optional: tuple[str, ...] = ()
    long: tuple[str, ...] = ()
    filled: Callable[[Watch, Fields], Fields] | None = None

    def is_complete(self, fields: Fields) -> bool:
        """Returns whether all fields that it needs are filled in."""
        return all(fields.get(name, "").strip() for name in self.fields if name not in self.optional)


def field_in(fields: Fields, name: str) -> str:
    """Returns a field without the spaces around it. Raises InvalidArgumentError if it is empty."""
    found = fields.get(name, "").strip()
    if not found:
        raise InvalidArgumentError(f"{name} is missing")
    return found


def number_in(fields: Fields, name: str) -> int:
    """Returns a field that is a whole number. Raises InvalidArgumentError if it is none."""
    text = field_in(fields, name).replace(",", "")
    if not NUMBER.fullmatch(text):
        raise InvalidArgumentError(f"{name}={text[:100]!r} is not a whole number")
    return int(text)


def name_in(fields: Fields, name: str) -> str:
    """Returns a name that may have any characters, from text with the escapes of `shown`."""
    return as_bytes(fields.get(name, "")).decode("utf-8", "surrogateescape")
