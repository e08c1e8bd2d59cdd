"""Working one step ahead changes nothing about what comes, whether threads can begin or not; Ctrl-C ends it whenever it comes."""

from __future__ import annotations

import contextlib
import gc
import os
import signal
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from functools import partial

import pytest

from pylog.errors import ClosedError
from pylog.record import ahead
from pylog.record.ahead import by_two, one_ahead

Ahead = Callable[[Iterator[int]], AbstractContextManager[Iterator[int]]]


def shared(items: Iterator[int]) -> AbstractContextManager[Iterator[int]]:
    """The items as results of tasks."""
    return by_two((partial(int, item) for item in items), at_once=4)


both_ways = pytest.mark.parametrize("begin", [one_ahead, shared])

INTERRUPTED = """
import faulthandler, random, signal, sys
from functools import partial
from pylog.record.ahead import by_two, one_ahead

def interrupt(*_):
    if armed:  # the system may give the signal to another thread, which then gets to it when all is over
        raise KeyboardInterrupt

def shared(items):
    return by_two((partial(int, item) for item in items), at_once=4)

begin = {"one_ahead": one_ahead, "shared": shared}[sys.argv[1]]

def use(items):
    with begin(items) as numbers:
        return list(numbers)

def is_interrupted(items, after):
    global armed
    try:
        try:
            armed = True
            signal.setitimer(signal.ITIMER_REAL, after)
            for _ in range(3):
                use(items)
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            armed = False
    except KeyboardInterrupt:
        armed = False
        return True
    return False

signal.signal(signal.SIGALRM, interrupt)
random.seed(7)
interrupts = unfinished = 0
for number in range(2500):
    faulthandler.dump_traceback_later(30, exit=True)
    items = (item for item in range(12))
    interrupts += is_interrupted(items, random.uniform(1e-6, 8e-4))
    unfinished += items.gi_running
    assert use(iter(range(5))) == [0, 1, 2, 3, 4]
assert interrupts > 500, interrupts
assert unfinished == 0, unfinished
print("all ended")
"""


LEFT = """
import time
from pylog.record.ahead import one_ahead

def slow():
    yield 1
    time.sleep(0.3)
    print("made")
    yield 2

def walk():
    with one_ahead(slow()) as numbers:
        yield from numbers

left = walk()
next(left)
"""


def run(script: str, *arguments: str) -> tuple[str, str, int]:
    done = subprocess.run([sys.executable, "-c", script, *arguments], capture_output=True, text=True, timeout=300, check=False)
    return done.stdout, done.stderr, done.returncode


@pytest.mark.slow
@pytest.mark.parametrize("begin", ["one_ahead", "shared"])
def test_an_interrupt_at_any_moment_ends_it_and_keeps_no_lock(begin: str) -> None:
    assert run(INTERRUPTED, begin) == ("all ended\n", "", 0)


@pytest.mark.slow
def test_one_that_is_left_unfinished_at_the_exit_makes_its_item_and_holds_nothing_up() -> None:
    assert run(LEFT) == ("made\n", "", 0)


def test_an_interrupted_wait_goes_on_until_the_thread_uses_the_items_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    class Impatient:
        """A lock whose first two takers are interrupted."""

        def __init__(self) -> None:
            self.lock, self.left = threading.Lock(), 2
            self.acquire, self.release = self.lock.acquire, self.lock.release

        def __enter__(self) -> None:
            self.left -= 1
            if self.left >= 0:
                raise KeyboardInterrupt
            self.lock.acquire()

        def __exit__(self, *_: object) -> None:
            self.lock.release()

    def slow() -> Iterator[int]:
        yield 1
        time.sleep(0.2)
        yield 2

    items = slow()
    monkeypatch.setattr(ahead, "allocate_lock", Impatient)
    context = one_ahead(items)
    monkeypatch.undo()
    numbers = context.__enter__()
    assert next(numbers) == 1
    with pytest.raises(KeyboardInterrupt):
        context.__exit__(None, None, None)
    assert not items.gi_running  # type: ignore[attr-defined]
    assert list(items) == []


@both_ways
def test_nothing_is_lost_when_no_thread_can_begin(begin: Ahead, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> object:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(ahead, "start_new_thread", refuse)
    with begin(iter(range(20))) as numbers:
        assert list(numbers) == list(range(20))


@both_ways
def test_nothing_is_lost_when_only_one_thread_more_can_begin(begin: Ahead, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    with begin(iter(range(20))) as numbers:
        assert list(numbers) == list(range(20))


@both_ways
@pytest.mark.parametrize("before", [0, 1, 2, 3])
def test_nothing_is_lost_when_the_interpreter_ends_the_thread(begin: Ahead, before: int) -> None:
    with begin(iter(range(9))) as numbers:
        first = [next(numbers) for _ in range(before)]
        ahead._end_all()
        assert first + list(numbers) == list(range(9))


def test_no_more_than_one_is_made_ahead() -> None:
    made: list[int] = []
    with one_ahead(made.append(number) or number for number in range(100)) as numbers:  # type: ignore[func-returns-value]
        for number in numbers:
            time.sleep(0.001)
            assert len(made) <= number + 2
    assert made == list(range(100))


@pytest.mark.parametrize("can_begin", [True, False])
def test_no_more_tasks_are_taken_than_may_be_under_way(can_begin: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    taken = 0

    def tasks() -> Iterator[Callable[[], int]]:
        nonlocal taken
        for number in range(100):
            taken += 1
            yield partial(int, number)

    if not can_begin:
        monkeypatch.setattr(ahead.Worker, "ask", lambda *_: False)
    with by_two(tasks(), at_once=4) as numbers:
        for number in numbers:
            time.sleep(0.001)
            assert taken <= number + 1 + 4
    assert taken == 100


def test_this_thread_works_while_it_would_wait_and_the_order_stays() -> None:
    workers = set()
    waits = threading.Event()

    def task(number: int) -> int:
        workers.add(threading.current_thread())
        if number == 0:
            assert waits.wait(60)  # the other thread's: this one does what comes behind it
        if threading.current_thread() is threading.main_thread():
            waits.set()
        return number

    with by_two((partial(task, number) for number in range(50)), at_once=4) as numbers:
        assert list(numbers) == list(range(50))
    assert len(workers) == 2


def fails(number: int) -> int:
    raise ZeroDivisionError(number)


def test_an_error_comes_where_the_item_would() -> None:
    def items() -> Iterator[int]:
        yield 1
        raise ZeroDivisionError

    with one_ahead(items()) as numbers:
        assert next(numbers) == 1
        with pytest.raises(ZeroDivisionError):
            next(numbers)


@pytest.mark.parametrize("bad", range(12))
def test_the_error_of_a_task_is_raised_where_its_result_would_be_returned(bad: int) -> None:
    tasks = (partial(fails if number == bad else int, number) for number in range(12))
    with by_two(tasks, at_once=4) as numbers:
        for number in range(bad):
            assert next(numbers) == number
            time.sleep(0.0005 * (number % 3))
        with pytest.raises(ZeroDivisionError, match=str(bad)):
            next(numbers)


@both_ways
def test_a_forked_child_waits_for_no_thread_that_it_does_not_have(begin: Ahead) -> None:
    with begin(iter(range(10))) as numbers:
        next(numbers)
        child = os.fork()
        if child == 0:
            signal.alarm(60)
            ahead._end_all()
            numbers.close()  # type: ignore[attr-defined]
            os._exit(7)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
        assert list(numbers) == list(range(1, 10))


@pytest.mark.parametrize("begin", [one_ahead, lambda items: by_two((partial(next, items) for _ in range(2)), at_once=4)])
def test_a_forked_child_that_goes_on_is_told_so_and_does_not_hang(begin: Ahead) -> None:
    may_go_on = threading.Event()

    def items() -> Iterator[int]:
        yield 0
        may_go_on.wait(60)
        yield 1

    with begin(items()) as numbers:
        next(numbers)
        child = os.fork()
        if child == 0:
            signal.alarm(60)
            try:
                next(numbers)
            except ClosedError:
                os._exit(7)
            os._exit(1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
        may_go_on.set()
        assert list(numbers) == [1]


class Room:
    """What a task works in."""


def wait_in(_: Room) -> None:
    time.sleep(0.05)


def fail_in(_: Room) -> None:
    raise ZeroDivisionError


@pytest.mark.slow
@pytest.mark.parametrize("before", [0, 2], ids=["of the other thread", "of this one, while the other is at work"])
def test_an_error_keeps_nothing_of_its_task_once_it_is_forgotten(before: int) -> None:
    def read() -> weakref.ref[Room]:
        room = Room()
        tasks = iter([*[partial(wait_in, Room())] * before, partial(fail_in, room)])
        kept = weakref.ref(room)
        del room
        with contextlib.suppress(ZeroDivisionError), by_two(tasks, at_once=4) as results:
            list(results)
        return kept

    gc.collect()
    gc.disable()
    try:
        assert read()() is None
    finally:
        gc.enable()


@pytest.mark.slow
def test_a_thread_that_collects_what_had_forgotten_it_does_not_wait_for_itself() -> None:
    """The garbage collector runs in any thread."""
    may_go_on, collected = threading.Event(), threading.Event()

    def task(number: int) -> int:
        if threading.current_thread() is not threading.main_thread() and number:
            may_go_on.wait(60)
            gc.collect()
            collected.set()
        return number

    def scan() -> Iterator[int]:
        with one_ahead(task(number) for number in range(50)) as numbers:
            yield from numbers

    def forget() -> None:
        cycle: list[object] = [scan()]
        next(cycle[0])  # type: ignore[call-overload]
        cycle.append(cycle)

    before = threading.active_count()
    forget()
    may_go_on.set()
    assert collected.wait(60)
    deadline = time.monotonic() + 20
    while threading.active_count() > before and time.monotonic() < deadline:
        time.sleep(0.01)
    assert threading.active_count() <= before
