"""Refuses coroutine functions and coroutines where pylog calls a plain function.

A coroutine that is never awaited does nothing, and Python warns only when the coroutine is collected. Only the classes of
`pylog.aio` have an event loop that can await one.
"""

from __future__ import annotations

import inspect
from functools import partial

from pylog.errors import InvalidArgumentError


def is_coroutine_function(call: object) -> bool:
    """Returns whether a call would return a coroutine or an asynchronous generator, as far as is visible without calling.

    >>> async def told(): ...
    >>> class Teller:
    ...     async def __call__(self): ...
    >>> [is_coroutine_function(each) for each in (told, partial(told), Teller(), print)]
    [True, True, True, False]
    """
    while isinstance(call, partial):
        call = call.func
    kinds = (call, getattr(type(call), "__call__", None))  # noqa: B004 - the question is whether it is a coroutine function
    return any(inspect.iscoroutinefunction(each) or inspect.isasyncgenfunction(each) for each in kinds)


def refuse_coroutine_function(name: str, call: object, instead: str) -> None:
    """Raises InvalidArgumentError for a coroutine function.

    Args:
        name: the argument's name.
        call: the argument's value.
        instead: advice, as the end of the sentence.
    """
    if is_coroutine_function(call):
        raise InvalidArgumentError(f"{name}={call!r} is a coroutine function, which would never be awaited here; {instead}")


def is_awaitable(made: object) -> bool:
    """Returns whether a value must be awaited to do anything, such as a coroutine. An asyncio task or future runs by itself."""
    return inspect.isasyncgen(made) or (inspect.isawaitable(made) and not hasattr(made, "add_done_callback"))


def refuse_awaitable(made: object) -> None:
    """Closes a coroutine that a call has returned, and raises InvalidArgumentError. Ignores all other values.

    >>> refuse_awaitable(None)
    """
    if is_awaitable(made):
        if inspect.iscoroutine(made):
            made.close()
        message = f"the call returned {type(made).__name__} {getattr(made, '__qualname__', '')!r}, which is not awaited here"
        raise InvalidArgumentError(f"{message}; give a plain function, or use pylog.aio")
