"""Working one step ahead: what comes next is made in another thread while what is there is used."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")


@contextlib.contextmanager
def one_ahead(items: Iterator[T]) -> Iterator[Iterator[T]]:
    """An iterator over the same items: while one is used the next one is made, and never more.

    Who comes back for an item is done with the one before, so the item behind it is asked for at once: a thread that is slower
    than its user goes on without waiting for the other to wake. The thread ends with the context, whatever happens in it;
    nothing outlives the call that needs it. Where none can begin any more, at the interpreter's exit, it is the same iterator
    without one.

    >>> with one_ahead(iter("abc")) as letters:
    ...     list(letters)
    ['a', 'b', 'c']
    """
    end = object()
    worker = ThreadPoolExecutor(1, thread_name_prefix="pylog-ahead")

    def begun() -> Future[T] | None:
        try:
            return worker.submit(next, items, end)  # type: ignore[arg-type]
        except RuntimeError:  # the interpreter ends, and lets no thread begin
            return None

    def taken() -> Iterator[T]:
        coming = begun()
        while coming is not None:
            following = begun()
            if (item := coming.result()) is end:
                return
            yield item
            coming = following
        yield from items

    try:
        yield taken()
    finally:
        worker.shutdown(cancel_futures=True)
