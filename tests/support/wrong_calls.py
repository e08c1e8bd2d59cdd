"""Calls of a function with an argument of a wrong type each, made from its signature."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from pylog import TopicPartition

T0: Final = TopicPartition("t", 0)
WRONG: Final[tuple[Any, ...]] = (object(), 5, 1.5, "x", b"x", [], {}, None, [object()], {5: 5}, {T0: object()})


class WrongCall(NamedTuple):
    """One call.

    Attributes:
        told: the argument and its value, for messages.
        positional, named: what is given.
    """

    told: str
    positional: tuple[Any, ...]
    named: Mapping[str, Any]

    def __call__(self, function: Callable[..., Any]) -> Any:
        return function(*self.positional, **self.named)


def calls_of(
    function: Callable[..., Any], given: Mapping[str, Any], *, skip: int = 1, values: Sequence[Any] = WRONG
) -> Iterator[WrongCall]:
    """Yields the calls of a function with each wrong value for each parameter.

    Args:
        function: a function; of a method, the function of its class.
        given: right arguments by name, for those without a default, and for `value`, without which a record is refused.
        skip: how many of its first parameters are given by whoever calls it: `self`.
        values: the wrong values; by default those of wrong types.
    """
    parameters = list(inspect.signature(function).parameters.values())[skip:]
    plain = [each for each in parameters if each.kind not in (each.VAR_POSITIONAL, each.VAR_KEYWORD)]
    needed = {each.name: given.get(each.name, b"v") for each in plain if each.default is each.empty or each.name in EXTRA}
    for one in parameters:
        for wrong in values:
            if one.kind is one.VAR_POSITIONAL:
                if not needed:
                    yield WrongCall(f"*{one.name}={wrong!r}", (wrong,), {})
            else:
                name = "no_such_option" if one.kind is one.VAR_KEYWORD else one.name
                yield WrongCall(f"{name}={wrong!r}", (), needed | {name: wrong})


EXTRA: Final = ("value", "timeout_ms")  # given even if they have a default: a record is not empty, and nothing waits for ever


def public_methods(kind: type) -> Iterator[tuple[str, Callable[..., Any]]]:
    """Yields the methods of a class, by name."""
    for name, method in inspect.getmembers(kind, inspect.isfunction):
        if not name.startswith("_"):
            yield name, method
