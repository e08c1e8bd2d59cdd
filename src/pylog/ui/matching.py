"""`Query`: which records a search finds. A text in key, value or headers, or a condition on a path in a JSON value.

The columns of Arrow are tested as a whole. JSON is parsed only where the bytes of a value may have the path.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final, NamedTuple

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from pylog.errors import InvalidArgumentError

HOW: Final = ("contains", "equals", "regex", "json")
_COMPARED: Final[dict[str, Callable[[Any, Any], bool]]] = {
    "<=": operator.le,
    ">=": operator.ge,
    "<": operator.lt,
    ">": operator.gt,
}
_STEP: Final = r'(?:[^\s.\[\]"=!<>~]+|"[^"]+"|\[[0-9]{1,9}\]|\[\*\])'
_CONDITION: Final = re.compile(rf"\s*({_STEP}(?:\.?{_STEP})*)\s*(?:(=|!=|<=|>=|<|>|~)\s*(.*?))?\s*")
_EXAMPLE: Final = "customer.id = 42, lines[0].sku ~ A-1, or total > 19.9"


class Condition(NamedTuple):
    """A condition on a value at a path in a JSON document.

    Attributes:
        path: names, numbers of entries, and None for all entries.
        test: "=", "!=", "<", "<=", ">", ">=", "~" for a text that contains another, or "" if the path need only exist.
        text: as it was typed.
        value: as JSON has it; the text itself if it is no JSON.
    """

    path: tuple[str | int | None, ...]
    test: str
    text: str
    value: Any

    def is_met_by(self, document: Any) -> bool:
        """Returns whether some value at the path meets the condition."""
        return any(map(self._holds, _at(document, self.path)))

    def _holds(self, found: Any) -> bool:
        if self.test == "":
            return True
        if self.test == "~":
            return isinstance(found, str) and self.text.strip('"') in found
        if self.test in ("=", "!="):
            same = _is_same(found, self.value) or (isinstance(found, str) and found == self.text)
            return same == (self.test == "=")
        both_numbers = _is_number(found) and _is_number(self.value)
        both_texts = isinstance(found, str) and isinstance(self.value, str)
        return (both_numbers or both_texts) and _COMPARED[self.test](found, self.value)

    @property
    def name(self) -> str | None:
        """A name that each document with the path has in its bytes, unless it has escapes."""
        return next((step for step in reversed(self.path) if isinstance(step, str) and step.isascii()), None)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_same(found: Any, value: Any) -> bool:
    """Returns whether two JSON values are equal: 1 is 1.0, but not true."""
    return found == value and isinstance(found, bool) == isinstance(value, bool)


def _at(document: Any, path: tuple[str | int | None, ...]) -> list[Any]:
    """Returns the values at a path."""
    found = [document]
    for step in path:
        if step is None:
            found = [entry for each in found if isinstance(each, list) for entry in each]
        elif isinstance(step, int):
            found = [each[step] for each in found if isinstance(each, list) and step < len(each)]
        else:
            found = [each[step] for each in found if isinstance(each, dict) and step in each]
    return found


def condition_of(text: str) -> Condition:
    """Returns the condition that a text states.

    Raises:
        InvalidArgumentError: the text states none.

    >>> condition_of("customer.id = 42")
    Condition(path=('customer', 'id'), test='=', text='42', value=42)
    >>> condition_of("lines[0].sku ~ A-1").path, condition_of("paid").test
    (('lines', 0, 'sku'), '')
    """
    found = _CONDITION.fullmatch(text)
    if found is None:
        raise InvalidArgumentError(f"{text[:200]!r} is not a condition on a path; write {_EXAMPLE}")
    steps = tuple(map(_step, re.findall(_STEP, found[1])))
    given = found[3] or ""
    if found[2] and not given:
        raise InvalidArgumentError(f"{text[:200]!r} has no value after {found[2]!r}; write {_EXAMPLE}")
    return Condition(steps, found[2] or "", given, _literal(given))


def _step(text: str) -> str | int | None:
    if text.startswith("["):
        return None if text == "[*]" else int(text[1:-1])
    return text.strip('"')


def _literal(text: str) -> Any:
    try:
        return msgspec.json.decode(text.encode("utf-8", "replace"))
    except (msgspec.DecodeError, RecursionError):
        return text


@dataclass(frozen=True)
class Query:
    """What to look for.

    Attributes:
        text: in the key, the value, or a header; "" for all records.
        how: "contains", "equals", "regex" (RE2), or "json": the text is a condition such as `customer.id = 42` on the value.
        backwards: true for the newest records first.
        in_values: false to look only at keys and at headers' names: a search must not tell what is in values that are hidden.
    """

    text: str = ""
    how: str = "contains"
    backwards: bool = True
    in_values: bool = True

    def __post_init__(self) -> None:
        if self.how == "json" and not self.in_values:
            raise InvalidArgumentError("this window hides values, so it does not search them; search for a key")
        if self.how not in HOW:
            raise InvalidArgumentError(f"how={self.how!r} is not one of {', '.join(map(repr, HOW))}")
        if self.how == "regex":
            try:
                pc.match_substring_regex(pa.array([b""], pa.binary()), self.text)
            except pa.ArrowInvalid as error:
                raise InvalidArgumentError(f"{self.text!r} is not a regular expression of RE2: {error}") from error
        if self.how == "json" and self.text:
            condition_of(self.text)

    @cached_property
    def condition(self) -> Condition:
        """The condition on a path."""
        return condition_of(self.text)


def matches(frame: pa.RecordBatch, query: Query) -> pa.BooleanArray:
    """Returns which records of a batch a query finds. The batch has the columns `key`, `value` and `headers`."""
    if query.how == "json":
        return _with_path(frame.column("value"), query.condition)
    test = _test(query)
    found = pc.fill_null(test(frame.column("key")), False)
    if query.in_values:
        found = pc.or_(found, pc.fill_null(test(frame.column("value")), False))
    headers = frame.column("headers")
    flat = headers.flatten()
    if not len(flat):
        return found
    names = flat.field("key").cast(pa.binary())
    hits = pc.fill_null(test(names), False)
    if query.in_values:
        hits = pc.or_(hits, pc.fill_null(test(flat.field("value")), False))
    rows = pc.unique(pc.list_parent_indices(headers).filter(hits))
    return pc.or_(found, pc.is_in(pa.array(range(len(frame)), rows.type), rows))


def _test(query: Query) -> Callable[[Any], Any]:
    if query.how == "regex":
        return lambda column: pc.match_substring_regex(column, query.text)
    if query.how == "equals":
        return lambda column: pc.equal(column, pa.scalar(query.text.encode(errors="surrogateescape"), column.type))
    return lambda column: pc.match_substring(column, query.text)


def _with_path(values: pa.Array, condition: Condition) -> pa.BooleanArray:
    """Returns which values are JSON documents that meet a condition."""
    name = condition.name
    candidates = pc.is_valid(values)
    if name is not None:  # an escaped name is possible wherever there is a backslash
        candidates = pc.or_(pc.match_substring(values, name), pc.match_substring(values, "\\"))
    candidates = pc.fill_null(candidates, False)
    met = [_meets(value, condition) for value in values.filter(candidates).to_pylist()]
    if not met:
        return candidates
    return pc.replace_with_mask(candidates, candidates, pa.array(met, pa.bool_()))


def _meets(value: bytes, condition: Condition) -> bool:
    try:
        return condition.is_met_by(msgspec.json.decode(value))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return False
