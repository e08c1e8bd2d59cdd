"""Raising at the first call of a piece of work, then at the second, and so on, as an interrupt could."""

from __future__ import annotations

import itertools
import sys
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any

PATIENCE = 20.0  # seconds, for what takes milliseconds


class Broken(BaseException):
    """What interrupts; nobody catches it but who looks for every exception."""


def interrupted_at(number: int, work: Callable[[], Any]) -> bool:
    """Does some work and raises at its call of that number; whether it came so far."""
    calls = itertools.count(1)

    own = (getattr(work, "__code__", None), getattr(getattr(work, "func", None), "__code__", None))

    def trace(frame: FrameType, event: str, _: object) -> None:
        if event == "call" and frame.f_code not in own and next(calls) == number:
            raise Broken

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        work()
    except Broken:
        return True
    finally:
        sys.settrace(before)
    return False


def in_another_thread(work: Callable[[], Any]) -> Any:
    """What some work gives there; a thread that waits for ever fails the test."""
    found: list[Any] = []
    thread = threading.Thread(target=lambda: found.append(work()), daemon=True)
    thread.start()
    thread.join(PATIENCE)
    assert found, "another thread waits for ever, or its call failed"
    return found[0]
