"""Raising at the first step of a piece of work, then at the second, and so on, as an interrupt could.

Where a step takes long, a test takes one of several (`steps`), other ones with another seed. `./dev torture interrupts` takes
each of them.
"""

from __future__ import annotations

import dis
import itertools
import os
import random
import sys
import threading
from collections.abc import Callable, Iterator
from functools import cache
from types import CodeType, FrameType
from typing import Any

from support.campaign.processes import new_seed

HANDLERS_RUN_BEHIND = ("RESUME", "JUMP_BACKWARD", "CALL", "CALL_KW", "CALL_FUNCTION_EX")  # Python's instructions
PATIENCE = 20.0  # seconds, for what takes milliseconds


EACH_STEP = "PYLOG_EACH_STEP"  # a variable of the environment: `steps` yields all of them


class Broken(BaseException):
    """What interrupts; nobody catches it but who looks for every exception."""


def steps(every: int) -> Iterator[int]:
    """Yields numbers of steps: the first eight, and then one of `every`, which the seed of the run decides (`new_seed`)."""
    chosen, between = random.Random(new_seed()), 1 if EACH_STEP in os.environ else 2 * every - 1
    yield from range(1, 9)
    number = 8
    while True:
        number += chosen.randint(1, between)
        yield number


def interrupted_at(number: int, work: Callable[[], Any]) -> bool:
    """Does some work and raises at its call of that number; whether it came so far.

    What is raised in a finalizer is printed and goes no further: the work is done then, as if nothing had come.
    """
    calls = itertools.count(1)
    came = False
    own = (getattr(work, "__code__", None), getattr(getattr(work, "func", None), "__code__", None))

    def trace(frame: FrameType, event: str, _: object) -> None:
        nonlocal came
        if event == "call" and frame.f_code not in own and next(calls) == number:
            came = True
            raise Broken

    assert not _is_broken_off(work, trace) or came
    return came


def interrupted_at_step(number: int, work: Callable[[], object], path: str | tuple[str, ...]) -> bool:
    """Does some work and raises at the n-th place where Python runs handlers of signals, of those in a module or folder, or some.

    Finer than `interrupted_at`: also as a call returns, which no call of a function shows. What a handler raises behind a call is
    caught by whoever guards the call; where that is not who guards what follows, as in `with lock: return call()`, raising here
    would show what cannot be, so nothing is raised. Returns whether it came so far.
    """
    left, came = number, False
    before: tuple[CodeType, int] | None = None  # the last instruction

    def step(frame: FrameType, event: str, _: object) -> Any:
        nonlocal left, before, came
        frame.f_trace_opcodes = True
        if event == "opcode":
            now = frame.f_code, frame.f_lasti
            left -= before is not None and _runs_handlers_between(before, now)
            before = now
            if left <= 0 and not came and frame.f_code.co_name != "__del__":  # Python goes on after what a finalizer raises
                came = True
                raise Broken
        return step

    def trace(frame: FrameType, event: str, given: object) -> Any:
        if frame.f_code.co_name == "__del__":  # Python swallows what is raised there
            return None
        return step(frame, event, given) if frame.f_code.co_filename.startswith(path) else None

    sys._getframe().f_trace_opcodes = True  # of any frame: Python 3.12 looks for that only as tracing begins
    assert not _is_broken_off(work, trace) or came
    return came


def _is_broken_off(work: Callable[[], object], trace: Callable[[FrameType, str, object], Any]) -> bool:
    """Does some work while it is traced; whether the interrupt has ended it."""
    before = sys.gettrace()
    sys.settrace(trace)
    try:
        work()
    except Broken:
        return True
    finally:
        sys.settrace(before)
    return False


def _runs_handlers_between(one: tuple[CodeType, int], other: tuple[CodeType, int]) -> bool:
    """Whether Python runs handlers of signals between two of its instructions, and whoever guards one guards the other."""
    (code, place), (other_code, other_place) = one, other
    is_place = code is other_code and dis.opname[code.co_code[place]] in HANDLERS_RUN_BEHIND  # else a call was left or begun
    return is_place and _guard_of(code, place) == _guard_of(code, other_place)


@cache
def _guard_of(code: CodeType, place: int) -> int | None:
    """Where Python goes on behind what an instruction raises; None when the function ends."""
    entries = dis._parse_exception_table(code)  # type: ignore[attr-defined]
    return next((entry.target for entry in entries if entry.start <= place < entry.end), None)


def in_another_thread(work: Callable[[], Any]) -> Any:
    """What some work gives there; a thread that waits for ever fails the test."""
    found: list[Any] = []
    thread = threading.Thread(target=lambda: found.append(work()), daemon=True)
    thread.start()
    thread.join(PATIENCE)
    assert found, "another thread waits for ever, or its call failed"
    return found[0]
