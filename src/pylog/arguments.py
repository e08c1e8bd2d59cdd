"""Checks of arguments that several rooms share: whole numbers, and options by name."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from numbers import Integral
from typing import Final, TypeGuard

from pylog.errors import InvalidArgumentError

RENAMED: Final[Mapping[str, str]] = {  # names of an earlier version, and Kafka's, with today's
    "group": "group_id",
    "isolation": "isolation_level",
    "num_partitions": "partition_count",
    "partitions": "partition_count",
    "timestamp_ms": "timestamp",
}


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
        InvalidArgumentError: the value is not a whole number, or is out of the range.

    >>> checked_int("max_rows", 5, 1, 10)
    5
    """
    if not is_int(value) or not low <= value <= high:
        raise InvalidArgumentError(f"{name}={value!r} is not an int from {low} to {high}")
    return int(value)


def check_option_names(
    kind: str, given: Collection[str], known: Collection[str], instead: Mapping[str, str] | None = None
) -> None:
    """Refuses options that do not exist.

    Args:
        kind: of the options, such as "consumer".
        given: the names that a caller gave.
        known: the names that exist.
        instead: what to do instead, by the name of an option of other libraries.

    Raises:
        InvalidArgumentError: an option does not exist. The error has today's name of one that was renamed, and all known names.

    >>> check_option_names("consumer", ["group"], ["group_id"])
    Traceback (most recent call last):
    pylog.errors.InvalidArgumentError: unknown consumer option group; group: use group_id; known: group_id
    """
    unknown = sorted(set(given) - set(known))
    if not unknown:
        return
    hints = {name: f"use {RENAMED[name]}" for name in unknown if RENAMED.get(name) in known} | dict(instead or {})
    told = "".join(f"; {name}: {hints[name]}" for name in unknown if name in hints)
    raise InvalidArgumentError(f"unknown {kind} option {', '.join(unknown)}{told}; known: {', '.join(known)}")
