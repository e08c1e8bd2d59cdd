"""A gate that calls pass, so that `close` can wait for those inside and refuse all others."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from threading import get_ident
from typing import Any, Final, Self, TypeVar
from weakref import WeakSet

from pylog.errors import ClosedError
from pylog.fs.system import on_fork

T = TypeVar("T")

_LONGEST_WAIT_S: Final = 10.0
_NAPS_S: Final = (0.0001, 0.0002, 0.0005, 0.001, 0.005)


class Gate:
    """Lets calls in until it is shut. Shutting it waits until the calls of other threads have left.

    A call is inside for as long as it reads or writes; one that waits for new records leaves meanwhile. A forked child finds the
    gate shut.

    Args:
        what: names the store or partition in messages.
        path: its directory.
        again: what must be opened again.

    Attributes:
        inside: the threads inside, each as often as it has entered. An entry is one `list.append`, so it needs no lock.
        is_shut: true from the moment that it begins to shut.

    >>> gate = Gate("the store /shop", "/shop")
    >>> with gate:
    ...     pass
    >>> gate.shut()
    >>> with gate:
    ...     pass
    Traceback (most recent call last):
    pylog.errors.ClosedError: the store /shop is closed; open it again
    """

    __slots__ = ("__weakref__", "_chunks", "_is_forked", "_path", "_steps", "_told", "inside", "is_shut")

    def __init__(self, what: str, path: str, again: str = "it") -> None:
        self.inside: list[int] = []
        self.is_shut = False
        self._is_forked = False
        self._told = f"{what} is closed; open {again} again"
        self._path = path
        self._chunks: WeakSet[_Chunk] = WeakSet()
        self._steps: WeakSet[_Steps[Any]] = WeakSet()
        on_fork(self)

    def error(self) -> ClosedError:
        """The error of each call after it was shut."""
        if self._is_forked:
            return ClosedError("a store does not live on in a forked process; open it there again", path=self._path)
        return ClosedError(self._told, path=self._path)

    def check(self) -> None:
        """Raises ClosedError if it is shut. For a call that opens no file."""
        if self.is_shut:
            raise self.error()

    def __enter__(self) -> Self:
        self.inside.append(get_ident())  # first: who shuts it looks for this after it has set `is_shut`
        if self.is_shut:
            self.inside.remove(get_ident())
            raise self.error()
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        self.inside.remove(get_ident())
        if isinstance(error, Exception):
            self.explain(error)

    def explain(self, error: Exception) -> None:
        """Raises ClosedError in place of an error that closing has caused: the wait for a call inside is bounded."""
        if self.is_shut and not isinstance(error, ClosedError):
            raise self.error() from error

    @contextmanager
    def explaining(self) -> Iterator[None]:
        """For a call that takes long and is not inside meanwhile: what closing causes is a ClosedError."""
        self.check()
        try:
            yield
        except Exception as error:
            self.explain(error)
            raise

    @contextmanager
    def throughout(self) -> Iterator[None]:
        """The same for a call whose answer is of no worth if the gate was shut meanwhile: that is a ClosedError too."""
        with self.explaining():
            yield
        self.check()

    def shut(self) -> None:
        """Refuses all calls from now on, and waits until those of other threads have left, for 10 seconds at most."""
        self.is_shut = True
        for chunk in list(self._chunks):
            chunk.records.clear()
        if self._is_forked:
            return  # its parent's threads are not in this process
        waited, naps, nap = 0.0, iter(_NAPS_S), 0.0
        pause = threading.Event()
        while waited < _LONGEST_WAIT_S and any(thread != get_ident() for thread in list(self.inside)):
            nap = next(naps, nap)
            pause.wait(nap)
            waited += nap
        for steps in list(self._steps):
            with suppress(ValueError):  # in a step that takes longer than that
                steps.close()  # what it has open or mapped is let go of now, not when its owner asks for the next step

    def forked(self) -> None:
        """Shuts it in a forked child, which has none of its parent's threads."""
        self._is_forked = self.is_shut = True
        for chunk in list(self._chunks):
            chunk.records.clear()

    # ---- iterators -----------------------------------------------------------------------------------------------------------

    def steps(self, steps: Iterator[T]) -> Iterator[T]:
        """The same iterator, each step inside the gate."""
        held = _Steps(self, steps)
        self._steps.add(held)
        return held

    def explained(self, steps: Iterator[T]) -> Iterator[T]:
        """The same iterator for steps that wait for long, and so are not inside: what closing causes is a ClosedError."""
        with self.explaining():
            yield from steps

    def chunks(self, chunks: Iterator[list[T]]) -> Iterator[list[T]]:
        """The same lists. When the gate is shut, the list last given is emptied: whoever is in it asks for the next one.

        So `chain.from_iterable` over them ends with ClosedError at its next step, and costs nothing for each record.
        """
        held = _Chunk()
        self._chunks.add(held)
        for chunk in chunks:
            held.records = chunk
            self.check()
            yield chunk
            self.check()


class _Chunk:
    """Records that an iterator is handing out."""

    __slots__ = ("__weakref__", "records")

    def __init__(self) -> None:
        self.records: list[Any] = []


class _Steps(Iterator[T]):
    """An iterator, each step of which is inside a gate."""

    __slots__ = ("__weakref__", "_gate", "_steps")

    def __init__(self, gate: Gate, steps: Iterator[T]) -> None:
        self._gate = gate
        self._steps = steps

    def __next__(self) -> T:
        with self._gate:
            return next(self._steps)

    def close(self) -> None:
        """Ends the iterator, as a generator's `close` does."""
        end: Callable[[], object] | None = getattr(self._steps, "close", None)
        if end is not None:
            end()
