"""Coroutines that are given where pylog calls a plain function: refused when they are given, or when they are returned.

A coroutine that nothing awaits does nothing, and Python says so only when it is collected. Only the classes of `pylog.aio` have
an event loop in which to await one.
"""

from __future__ import annotations

import inspect
from functools import partial

from pylog.errors import InvalidArgumentError


def is_coroutine_function(call: object) -> bool:
    """Whether calling this makes a coroutine or an asynchronous generator, as far as can be told without a call.

    >>> async def told(): ...
    >>> class Teller:
    ...     async def __call__(self): ...
    >>> [is_coroutine_function(each) for each in (told, partial(told), Teller(), print)]
    [True, True, True, False]
    """
    while isinstance(call, partial):
        call = call.func
    kinds = (call, getattr(type(call), "__call__", None))  # noqa: B004 - whether it is a coroutine function is asked
    return any(inspect.iscoroutinefunction(each) or inspect.isasyncgenfunction(each) for each in kinds)


def refuse_coroutine_function(name: str, call: object, instead: str) -> None:
    """Raises InvalidArgumentError for a coroutine function.

    Args:
        name: of the argument.
        call: what was given.
        instead: what to do, as the end of the sentence.
    """
    if is_coroutine_function(call):
        raise InvalidArgumentError(f"{name}={call!r} is a coroutine function, which would never be awaited here; {instead}")


def is_awaitable(made: object) -> bool:
    """Whether something does nothing unless it is awaited: a coroutine, say. A task or future of asyncio runs by itself."""
    return inspect.isasyncgen(made) or (inspect.isawaitable(made) and not hasattr(made, "add_done_callback"))


def refuse_awaitable(made: object) -> None:
    """Closes a coroutine that a call has returned, and raises InvalidArgumentError. Anything else passes.

    >>> refuse_awaitable(None)
    """
    if is_awaitable(made):
        if inspect.iscoroutine(made):
            made.close()
        told = f"the call returned {type(made).__name__} {getattr(made, '__qualname__', '')!r}, which is not awaited here"
        raise InvalidArgumentError(f"{told}; give a plain function, or use pylog.aio")
