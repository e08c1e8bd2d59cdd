"""The helpers of aiokafka that programs use."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, Final, TypeVar

T = TypeVar("T")
INTEGER_MAX_VALUE: Final = 2**31 - 1
INTEGER_MIN_VALUE: Final = -(2**31)
NO_EXTENSIONS: Final = False


def get_running_loop() -> asyncio.AbstractEventLoop:
    """Returns the event loop that runs.

    Raises:
        RuntimeError: none does.
    """
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        raise RuntimeError("no event loop is running; create the client in a coroutine, or give it loop=") from None


def create_task(coro: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
    """Starts a coroutine in the event loop that runs."""
    return get_running_loop().create_task(coro)


def create_future(loop: asyncio.AbstractEventLoop | None = None) -> asyncio.Future[Any]:
    """Returns a new future of an event loop, by default the one that runs."""
    return (loop or get_running_loop()).create_future()
