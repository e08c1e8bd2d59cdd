"""Working one step ahead: what comes next is made in another thread while what is there is written."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")


@contextlib.contextmanager
def one_ahead(items: Iterator[T]) -> Iterator[Iterator[T]]:
    """An iterator over the same items that asks for each one as soon as the one before is taken.

    The thread ends with the context, whatever happens in it; nothing outlives the call that needs it. Where none can begin any
    more, at the interpreter's exit, it is the same iterator without one.

    >>> with one_ahead(iter("abc")) as letters:
    ...     list(letters)
    ['a', 'b', 'c']
    """
    end = object()
    with ThreadPoolExecutor(1, thread_name_prefix="pylog-ahead") as worker:

        def begun() -> Future[T] | None:
            try:
                return worker.submit(next, items, end)  # type: ignore[arg-type]
            except RuntimeError:  # the interpreter ends, and lets no thread begin
                return None

        def taken() -> Iterator[T]:
            coming = begun()
            while coming is not None and (item := coming.result()) is not end:
                coming = begun()
                yield item
            if coming is None:
                yield from items

        yield taken()
