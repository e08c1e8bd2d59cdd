"""The futures of confluent-kafka's administrator. The work is done when a call returns, so each future is done, too."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import Future
from typing import Any, Final, TypeVar

from pylog.compat.confluent.errors import KafkaException, answered, failed
from pylog.compat.kafka import errors as answers
from pylog.errors import PylogError

K = TypeVar("K")
T = TypeVar("T")
_LONGEST_S: Final = 3600  # of a timeout


def settled(call: Callable[[], T]) -> Future[T]:
    """Returns a future with the result of a call, or with the `KafkaException` for what it raised."""
    future: Future[T] = Future()
    try:
        future.set_result(call())
    except KafkaException as error:
        future.set_exception(error)
    except (PylogError, answers.KafkaError, ValueError) as error:
        made = KafkaException(answered(error))
        made.__cause__ = error
        future.set_exception(made)
    return future


def each_settled(
    keys: Iterable[K], act: Callable[[K], T], *, key: Callable[[K], Any] = lambda each: each, twins: int | None = None
) -> dict[Any, Future[T]]:
    """Returns the futures of one call for each of several values.

    Args:
        keys: the values.
        act: the call.
        key: returns the key of a value in the result.
        twins: the code of all futures if two values have the same key; None to allow that.
    """
    wanted = list(keys)
    names = [key(each) for each in wanted]
    if twins is not None and len(set(names)) < len(names):
        return {name: settled(lambda: _refuse(twins)) for name in names}
    return {name: settled(lambda each=each: act(each)) for name, each in zip(names, wanted, strict=True)}  # type: ignore[misc]


def _refuse(code: int) -> Any:
    raise failed(code, "a name stands twice in the call")


def check_list(given: Any, kind: type, *, may_be_empty: bool = False, wrong: type[Exception] = TypeError) -> list[Any]:
    """Returns the list that a program gave.

    Args:
        given: an argument.
        kind: the class of its elements.
        may_be_empty: true to accept an empty list.
        wrong: raised for an element of another class: some calls of confluent-kafka raise ValueError.

    Raises:
        TypeError: it is none, or an element is something else. ValueError: it is empty.
    """
    if not isinstance(given, list | tuple | set):
        raise TypeError(f"{given!r} is not a list of {kind.__name__}")
    if not all(isinstance(each, kind) for each in given):
        raise wrong(f"{given!r} has something else than {kind.__name__}")
    if not given and not may_be_empty:
        raise ValueError(f"the list is empty; give at least one {kind.__name__}")
    return list(given)


def check_timeouts(**given: float | None) -> None:
    """Checks timeouts in seconds, which have no effect: the work is done when a call returns.

    Raises:
        TypeError: one is no number. ValueError: one is negative or longer than an hour.
    """
    for name, seconds in given.items():
        if seconds is None:
            continue
        if not isinstance(seconds, int | float):
            raise TypeError(f"{name}={seconds!r} is not a number of seconds")
        if not 0 <= seconds <= _LONGEST_S:
            raise ValueError(f"{name}={seconds!r} is not a number of seconds from 0 to {_LONGEST_S}")
