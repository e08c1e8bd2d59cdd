"""Checks of arguments that several rooms share: whole numbers, and options by name."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterable, Mapping
from datetime import timedelta
from numbers import Integral
from typing import Any, Final, TypeGuard

from pylog.errors import InvalidArgumentError, InvalidTypeError

RENAMED: Final[Mapping[str, str]] = {  # names of an earlier version, and Kafka's, with today's
    "group": "group_id",
    "isolation": "isolation_level",
    "num_partitions": "partition_count",
    "partitions": "partition_count",
    "timestamp_ms": "timestamp",
}

_UNIT: Final = "; it is in milliseconds: 7 days are 604800000"
_MOMENT: Final = "; it is in milliseconds since 1970"
_NO_LIMIT: Final = ", -1 keeps everything"


def is_int(value: object) -> TypeGuard[int]:
    """Returns whether a value is a whole number: an int or one of NumPy's integers, and no bool.

    >>> is_int(7), is_int(True), is_int(7.0)
    (True, False, False)
    """
    return type(value) is int or (isinstance(value, Integral) and not isinstance(value, bool))


def checked_int(name: str, value: object, low: int, high: int) -> int:
    """Returns a whole number in a range as an int.

    Args:
        name: the argument's name, for the error.
        value: the given value.
        low, high: the smallest and the largest number that is accepted.

    Raises:
        InvalidTypeError: the value is not a whole number.
        InvalidArgumentError: it is out of the range.

    >>> checked_int("max_rows", 5, 1, 10)
    5
    """
    if not is_int(value):
        unit = ""
        if name.endswith("_ms") and isinstance(value, str | timedelta):
            unit = _MOMENT if name == "now_ms" else _UNIT
        raise InvalidTypeError(
            f"{name}={value!r} is not an int from {low} to {high}{unit}{_NO_LIMIT if unit and low < 0 else ''}"
        )
    if not low <= value <= high:
        raise InvalidArgumentError(f"{name}={value!r} is not an int from {low} to {high}")
    return int(value)


def check_callable(name: str, value: object, advice: str = "") -> None:
    """Refuses a value that cannot be called; None is no value.

    Args:
        name: the argument's name, for the error.
        value: the given value.
        advice: the end of the message: what to pass instead.

    Raises:
        InvalidTypeError: it cannot be called.
    """
    if value is not None and not callable(value):
        raise InvalidTypeError(f"{name}={value!r} cannot be called{advice}")


def check_method(name: str, value: object, method: str, what: str) -> None:
    """Refuses an object of a wrong type, which lacks a method.

    Args:
        name: the argument's name.
        value: its value; None passes.
        method: a method that objects of the right type have.
        what: what the argument must be.

    Raises:
        InvalidTypeError: it is something else.

    >>> check_method("clock", 5, "monotonic", "a clock, such as pylog.clock.ManualClock")
    Traceback (most recent call last):
    pylog.errors.InvalidTypeError: clock=5 is not a clock, such as pylog.clock.ManualClock
    """
    if value is not None and not callable(getattr(value, method, None)):
        raise InvalidTypeError(f"{name}={value!r} is not {what}")


def check_kind(name: str, value: object, kind: type | tuple[type, ...], what: str) -> None:
    """Refuses an object of another class.

    Args:
        name: the argument's name.
        value: its value.
        kind: the class, or several.
        what: what the argument must be.

    Raises:
        InvalidTypeError: it is something else.

    >>> check_kind("url", 5, str, "text, such as s3://bucket/prefix")
    Traceback (most recent call last):
    pylog.errors.InvalidTypeError: url=5 is not text, such as s3://bucket/prefix
    """
    if not isinstance(value, kind):
        raise InvalidTypeError(f"{name}={value!r} is not {what}")


def items_of(name: str, value: object, what: str) -> tuple[Any, ...]:
    """Returns the items of a list or of another iterable.

    Args:
        name: the argument's name, for the error.
        value: the given value.
        what: what it should be a list of, for the error.

    Raises:
        InvalidTypeError: it cannot be iterated, or is text.

    >>> items_of("columns", iter(["key"]), "names")
    ('key',)
    """
    if isinstance(value, str | bytes) or not isinstance(value, Iterable):
        raise InvalidTypeError(f"{name}={value!r} is not a list of {what}")
    return tuple(value)


def did_you_mean(given: str, known: Iterable[str]) -> str:
    """Returns a question with the nearest known names, for the end of a message; empty if none is near.

    >>> did_you_mean("retenton_ms", ["retention_ms", "segment_bytes"])
    '; did you mean retention_ms?'
    """
    near = difflib.get_close_matches(given, known, 3, 0.8)
    return f"; did you mean {' or '.join(near)}?" if near else ""


def check_option_names(
    kind: str, given: Collection[str], known: Collection[str], instead: Mapping[str, str] | None = None
) -> None:
    """Refuses options that do not exist.

    Args:
        kind: the kind of the options, such as "consumer".
        given: the names that a caller gave.
        known: the names that exist.
        instead: what to do instead, by the name of an option of other libraries.

    Raises:
        InvalidArgumentError: an option does not exist. The error has today's name of one that was renamed, the nearest names of
            one that is misspelt, or all known names.

    >>> check_option_names("consumer", ["group"], ["group_id"])
    Traceback (most recent call last):
    pylog.errors.InvalidArgumentError: unknown consumer option group: use group_id
    >>> check_option_names("consumer", ["grup_id"], ["group_id"])
    Traceback (most recent call last):
    pylog.errors.InvalidArgumentError: unknown consumer option grup_id; did you mean group_id?
    """
    unknown = sorted(set(given) - set(known))
    if not unknown:
        return
    hints = {name: f": use {RENAMED[name]}" for name in unknown if RENAMED.get(name) in known}
    hints |= {name: f": {hint}" for name, hint in (instead or {}).items()}
    named = [f"{name}{hints.get(name) or did_you_mean(name, known)}" for name in unknown]
    others = f"; known: {', '.join(known)}" if named == unknown else ""
    raise InvalidArgumentError(f"unknown {kind} option {'; '.join(named)}{others}")
