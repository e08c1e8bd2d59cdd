"""A gate that calls pass through. `close` waits for the calls inside and refuses all others."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from threading import get_ident
from typing import Any, Final, Self, TypeVar

from pylog.errors import ClosedError, PylogError, UnknownTopicOrPartitionError
from pylog.fs.living import LiveSet
from pylog.fs.system import on_fork

T = TypeVar("T")

_LONGEST_WAIT_S: Final = 10.0
_NAPS_S: Final = (0.0001, 0.0002, 0.0005, 0.001, 0.005)


class Gate:
    """Admits calls until it is shut. Shutting it waits until the calls of other threads have left.

    A call is inside while it reads or writes; a call that waits for new records is outside meanwhile. In a forked child the gate
    is shut.

    Args:
        what: the store or partition, as messages name it.
        path: its directory.
        again: the object to open again, as messages name it.

    Attributes:
        inside: the threads inside, each as often as it has entered. Entering is one `list.append`, so it takes no lock.
        is_shut: true from the moment shutting begins.

    >>> gate = Gate("the store /shop", "/shop")
    >>> with gate:
    ...     pass
    >>> gate.shut()
    >>> with gate:
    ...     pass
    Traceback (most recent call last):
    pylog.errors.ClosedError: the store /shop is closed; open it again
    """

    __slots__ = ("__weakref__", "_chunks", "_deletion", "_is_forked", "_message", "_path", "_steps", "inside", "is_shut")

    def __init__(self, what: str, path: str, again: str = "it") -> None:
        self.inside: list[int] = []
        self.is_shut = False
        self._is_forked = False
        self._message = f"{what} is closed; open {again} again"
        self._deletion: str | None = None
        self._path = path
        self._chunks: LiveSet[_Chunk] = LiveSet()
        self._steps: LiveSet[_Steps[Any]] = LiveSet()
        on_fork(self)

    @property
    def is_deleted(self) -> bool:
        """True if the gate was shut because what it leads to was deleted."""
        return self._deletion is not None

    def error(self) -> PylogError:
        """Returns the error that calls raise after the gate was shut: the store is closed, or the partition deleted."""
        if self._is_forked:
            return ClosedError("a store cannot be used in a forked process; open it again there", path=self._path)
        if self._deletion is not None:
            return UnknownTopicOrPartitionError(self._deletion, path=self._path)
        return ClosedError(self._message, path=self._path)

    def check(self) -> None:
        """Raises `error` if the gate is shut. For a call that opens no file."""
        if self.is_shut:
            raise self.error()

    def __enter__(self) -> Self:
        self.inside.append(get_ident())  # first: `shut` sets `is_shut` and then reads this list
        if self.is_shut:
            self.inside.remove(get_ident())
            raise self.error()
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        self.inside.remove(get_ident())
        if isinstance(error, Exception):
            self.explain(error)

    def explain(self, error: Exception) -> None:
        """Raises `error()` in place of an error that shutting caused: `shut` waits only a limited time for calls inside."""
        if self.is_shut and (self.is_deleted or not isinstance(error, ClosedError)):
            raise self.error() from error

    @contextmanager
    def explaining(self) -> Iterator[None]:
        """Wraps a long call that is outside meanwhile: an error that shutting causes becomes a ClosedError."""
        self.check()
        try:
            yield
        except Exception as error:
            self.explain(error)
            raise

    @contextmanager
    def throughout(self) -> Iterator[None]:
        """Returns the block of a call whose result is worthless if the gate is shut meanwhile: it raises ClosedError then too."""
        with self.explaining():
            yield
        self.check()

    def shut(self, deletion: str | None = None) -> None:
        """Refuses all later calls, and waits at most 10 seconds until those of other threads have left.

        Args:
            deletion: the message that the partition was deleted. Calls raise UnknownTopicOrPartitionError with it.
        """
        if not self.is_shut:
            self._deletion = deletion  # before `is_shut`, which calls read first
        self.is_shut = True
        for chunk in self._chunks.members():
            chunk.records.clear()
        if self._is_forked:
            return  # the parent's threads do not exist in this process
        if self.inside:
            self._wait_for_others()
        for steps in self._steps.members():
            with suppress(ValueError):  # a step that is still running
                steps.close()  # closes its files and mappings now, not when its owner asks for the next step

    def _wait_for_others(self) -> None:
        waited, naps, nap = 0.0, iter(_NAPS_S), 0.0
        pause = threading.Event()
        while waited < _LONGEST_WAIT_S and any(thread != get_ident() for thread in list(self.inside)):
            nap = next(naps, nap)
            pause.wait(nap)
            waited += nap

    def forked(self) -> None:
        """Shuts the gate in a forked child, which has none of the parent's threads."""
        self._is_forked = self.is_shut = True
        for chunk in self._chunks.members():
            chunk.records.clear()

    # ---- iterators -----------------------------------------------------------------------------------------------------------

    def steps(self, steps: Iterator[T]) -> Iterator[T]:
        """Returns the same iterator with each step inside the gate."""
        held = _Steps(self, steps)
        self._steps.add(held)
        return held

    def explained(self, steps: Iterator[T]) -> Iterator[T]:
        """Wraps an iterator whose steps wait long, outside the gate: errors that shutting causes become ClosedErrors."""
        with self.explaining():
            yield from steps

    def chunks(self, chunks: Iterator[list[T]]) -> Iterator[list[T]]:
        """Yields the same lists. If the gate is shut, the list yielded last is emptied, so that its user asks for the next one.

        So `chain.from_iterable` over them raises ClosedError at its next step, at no cost per record.
        """
        held = _Chunk()
        self._chunks.add(held)
        for chunk in chunks:
            held.records = chunk
            self.check()
            yield chunk
            self.check()
            held.records = []
            del chunk  # freed before the next one is made, which then takes its memory: the processor's cache still has it


class _Chunk:
    """Records that an iterator is yielding."""

    __slots__ = ("__weakref__", "records")

    def __init__(self) -> None:
        self.records: list[Any] = []


class _Steps(Iterator[T]):
    """An iterator whose steps each run inside a gate."""

    __slots__ = ("__weakref__", "_gate", "_steps")

    def __init__(self, gate: Gate, steps: Iterator[T]) -> None:
        self._gate = gate
        self._steps = steps

    def __next__(self) -> T:
        with self._gate:
            return next(self._steps)

    def close(self) -> None:
        """Ends the iterator, like a generator's `close`."""
        end: Callable[[], object] | None = getattr(self._steps, "close", None)
        if end is not None:
            end()
