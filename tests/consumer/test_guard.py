"""The guard of a consumer after an interrupt: another thread can use the consumer."""

from __future__ import annotations

import linecache
import sys
from concurrent.futures import ThreadPoolExecutor
from types import FrameType
from typing import Any

import pytest

from pylog import ClosedError, IllegalStateError
from pylog.consumer import guard as module
from pylog.consumer.guard import Guard


def enter(guard: Guard) -> bool:
    with guard:
        return True


def test_an_interrupt_at_any_step_of_entering_the_guard_leaves_it_free() -> None:
    for step in range(1, 1000):
        guard, left = Guard(), step

        def trace(frame: FrameType, event: str, _: object) -> Any:
            nonlocal left
            if frame.f_code.co_filename != module.__file__:
                return None
            text = linecache.getline(module.__file__, frame.f_lineno).split()
            left -= event == "line" and text[0] != "return"  # of a constant: Python lets none come there
            if left == 0:
                raise KeyboardInterrupt
            return trace

        before = sys.gettrace()
        try:
            sys.settrace(trace)
            enter(guard)
        except KeyboardInterrupt:
            was_interrupted = True
        else:
            was_interrupted = False
        finally:
            sys.settrace(before)
        with ThreadPoolExecutor(1) as other:
            assert other.submit(enter, guard).result(), step
        if not was_interrupted:
            break
    assert 5 < step < 999


def test_it_is_one_threads_at_a_time_which_may_enter_again_until_it_is_closed() -> None:
    guard = Guard()
    with ThreadPoolExecutor(1) as other:
        with guard, guard, pytest.raises(IllegalStateError):
            other.submit(enter, guard).result()
        assert other.submit(enter, guard).result()
        guard.close()
        for _ in range(2):
            with pytest.raises(ClosedError):
                enter(guard)
