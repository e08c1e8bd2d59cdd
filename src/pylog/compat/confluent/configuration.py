"""The options of confluent-kafka's clients, with their dotted names: each value is read as librdkafka reads it, or refused."""

from __future__ import annotations

import difflib
import logging
import re
from collections.abc import Callable, Mapping
from typing import Any, Final

from pylog.compat.confluent.errors import KafkaError, KafkaException, failed
from pylog.compat.confluent.names import ALIASES, CHOICES, EXACT, FLAGS, FUNCTIONS, LISTS, NAMES, NUMBERS, TOPIC_OPTIONS

LOGGER: Final = logging.getLogger("pylog.compat")
_BOOLS: Final = {"true": True, "t": True, "1": True, "false": False, "f": False, "0": False}
_NUMBER: Final = re.compile(r"\s*[+-]?\d+")  # what follows a number is ignored
_ALL_REPLICAS: Final = -1


def refused(reason: str) -> KafkaException:
    """Returns the error of a constructor for an option that is wrong."""
    return failed(KafkaError._INVALID_ARG, reason)


class Given:
    """The options that a program gave to a client, each one checked whether it has an effect here or not.

    Args:
        config: the options as a mapping.
        more: the same, as keyword arguments.
        own: the name of the callback that only this client has; by default one that all have.

    Attributes:
        values: the options by the names that they have in the tables of `names`.

    Raises:
        KafkaException: an option does not exist, or its value is wrong.
    """

    def __init__(self, config: Mapping[str, Any] | None, more: Mapping[str, Any], own: str = "error_cb") -> None:
        self.values: dict[str, Any] = {}
        for name, given in _flat({**(config or {}), **more}).items():
            if name not in NAMES and name != own:
                near = difflib.get_close_matches(str(name), (*NAMES, own), n=3)
                hint = f"; did you mean {' or '.join(near)}?" if near else ""
                raise refused(f"there is no option {name!r}{hint}")
            known_as = ALIASES.get(name, name)
            self.values[known_as] = _function(name, given) if name == own else _value(name, known_as, given)
        self._unused = set(self.values)

    def take(self, name: str, default: Any = None) -> Any:
        """Returns the value of an option that has an effect here."""
        self._unused.discard(name)
        return self.values.get(name, default)

    def end(self, client: str, log: Callable[[int, str], object] = LOGGER.log) -> None:
        """Logs the options that have no effect here, in one line.

        Args:
            client: "consumer", "producer" or "administrator".
            log: writes a line of a level.
        """
        if self._unused:
            names = ", ".join(sorted(self._unused))
            log(logging.INFO, f"options of the {client} that have no effect without a broker: {names}")


def _flat(given: dict[str, Any]) -> dict[str, Any]:
    """Returns the options with those of topics among them. An option that stands at both places counts as the client's."""
    inner = given.pop(TOPIC_OPTIONS, {})
    if not isinstance(inner, Mapping):
        raise refused(f"{TOPIC_OPTIONS}={inner!r} is not a mapping of options")
    return {**inner, **given}


def _value(name: str, known_as: str, given: Any) -> Any:
    """Returns the value of an option."""
    if known_as in NUMBERS:
        return _number(name, given, *NUMBERS[known_as])
    if known_as in FLAGS:
        return _flag(name, given)
    if known_as in CHOICES:
        return _choice(name, given, CHOICES[known_as])
    if known_as in LISTS:
        return tuple(_choice(name, each, LISTS[known_as]) for each in re.split(r"\s*,\s*", str(given)))
    if known_as in FUNCTIONS:
        return _function(name, given)
    return given


def _number(name: str, given: Any, low: int, high: int) -> int:
    found = _NUMBER.match(str(given))
    number = int(found.group()) if found else None
    if name in ("acks", "request.required.acks") and str(given).lower() == "all":
        number = _ALL_REPLICAS
    if number is None or not low <= number <= high:
        raise refused(f"{name}={given!r} is not a whole number from {low} to {high}")
    return number


def _flag(name: str, given: Any) -> bool:
    try:
        return _BOOLS[str(given).lower()]
    except KeyError:
        raise refused(f"{name}={given!r} is not true or false") from None


def _choice(name: str, given: Any, known: tuple[str, ...]) -> str:
    chosen = str(given) if name in EXACT else str(given).lower()
    if given is None or chosen not in known:
        raise refused(f"{name}={given!r} is not one of {', '.join(known)}")
    return chosen


def _function(name: str, given: Any) -> Any:
    if not callable(given):
        raise refused(f"{name}={given!r} cannot be called")
    return given


def text(given: Any) -> str | None:
    """Returns the value of an option that is text; None without it, and for the empty text.

    >>> text(5), text("")
    ('5', None)
    """
    return None if given is None else str(given) or None
