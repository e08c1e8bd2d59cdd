"""The background thread runs each task again and again, at least as often as it was asked to, until it is ended."""

from __future__ import annotations

import itertools
import logging
import threading
import time
from pathlib import Path
from typing import Any

import pytest

import pylog
from pylog.background import Background
from pylog.errors import StorageFailedError
from pylog.store import manager_of
from support import warm
from support.faults.interruptions import interrupted_at

LONG = 3_600_000  # ms: never, within a test
PATIENCE = 20.0  # seconds that a test waits for what takes milliseconds


class Counter:
    """A task that counts its runs; `wait_for` waits for the n-th one."""

    def __init__(self) -> None:
        self.runs = 0
        self._changed = threading.Condition()

    def __call__(self) -> None:
        with self._changed:
            self.runs += 1
            self._changed.notify_all()

    def wait_for(self, runs: int) -> None:
        with self._changed:
            assert self._changed.wait_for(lambda: self.runs >= runs, PATIENCE)


@pytest.fixture
def background():
    made = Background()
    yield made
    made.end()


def background_threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "pylog-background"]


def test_there_is_no_thread_before_the_first_task_and_one_for_all_tasks(background: Background) -> None:
    before = len(background_threads())
    first, second = Counter(), Counter()
    background.every("first", 1, first)
    background.every("second", 1, second)
    first.wait_for(2)
    second.wait_for(2)
    assert len(background_threads()) == before + 1


def test_a_task_runs_again_and_again(background: Background) -> None:
    task = Counter()
    background.every("task", 1, task)
    task.wait_for(5)


def test_each_task_has_its_own_interval(background: Background) -> None:
    often, seldom = Counter(), Counter()
    background.every("often", 1, often)
    background.every("seldom", LONG, seldom)
    ran_early = seldom.runs
    often.wait_for(10)
    assert seldom.runs == ran_early <= 1


def test_the_shortest_interval_given_for_a_task_counts(background: Background) -> None:
    task, other = Counter(), Counter()
    background.every("task", LONG, task)
    background.every("task", 1, task)
    task.wait_for(2)
    background.every("task", LONG, task)
    background.every("other", 1, other)
    other.wait_for(2)
    task.wait_for(task.runs + 2)


def test_a_new_task_delays_no_other_one(background: Background) -> None:
    """What a thread has waited for already is not waited for again, however often it is woken for something new."""
    task = Counter()
    background.every("task", 200, task)
    newcomers = threading.Event()

    def keep_adding() -> None:
        number = 0
        while not newcomers.wait(0.02):
            background.every(number, LONG, Counter())
            number += 1

    adding = threading.Thread(target=keep_adding)
    adding.start()
    try:
        task.wait_for(2)
    finally:
        newcomers.set()
        adding.join()


def test_a_new_task_that_is_not_due_sooner_hurries_no_other_one(background: Background) -> None:
    task = Counter()
    background.every("task", LONG, task)
    for number in range(10):
        background.every(number, LONG, Counter())
        threading.Event().wait(0.005)  # the thread would run it now
    assert task.runs == 0


def test_a_new_task_that_is_due_sooner_does_not_wait_for_the_others(background: Background) -> None:
    background.every("seldom", LONG, Counter())
    often = Counter()
    background.every("often", 1, often)
    often.wait_for(3)


@pytest.mark.parametrize(
    "error", [StorageFailedError("cannot sync, for a test"), KeyError("the user's own")], ids=["ours", "other"]
)
def test_a_task_that_fails_is_reported_and_tried_again_and_stops_no_other(
    background: Background, caplog: pytest.LogCaptureFixture, error: Exception
) -> None:
    task = Counter()

    def failing() -> None:
        task()
        raise error

    other = Counter()
    with caplog.at_level(logging.WARNING, logger="pylog"):
        background.every("failing", 1, failing)
        background.every("other", 1, other)
        task.wait_for(3)
        other.wait_for(3)
    assert str(error) in caplog.text


def test_no_task_runs_any_more_once_it_has_ended() -> None:
    background, task = Background(), Counter()
    background.every("task", 1, task)
    task.wait_for(1)
    before = len(background_threads())
    background.end()
    assert len(background_threads()) == before - 1
    runs = task.runs
    background.every("another", 1, task)
    assert len(background_threads()) == before - 1
    assert task.runs == runs


def test_the_end_waits_for_a_task_that_is_running() -> None:
    background = Background()
    entered, leave, left = threading.Event(), threading.Event(), threading.Event()

    def task() -> None:
        entered.set()
        assert leave.wait(PATIENCE)
        left.set()

    background.every("task", 1, task)
    assert entered.wait(PATIENCE)
    ending = threading.Thread(target=background.end)
    ending.start()
    assert ending.is_alive()
    leave.set()
    ending.join(PATIENCE)
    assert left.is_set()


def test_a_task_may_end_the_background_that_it_runs_in() -> None:
    others = set(background_threads())
    background, done = Background(), threading.Event()

    def task() -> None:
        background.end()
        done.set()

    background.every("task", 1, task)
    assert done.wait(PATIENCE)
    for thread in set(background_threads()) - others:
        thread.join(PATIENCE)
    assert not set(background_threads()) - others


def test_ending_twice_or_before_the_first_task_is_nothing_special() -> None:
    others = set(background_threads())
    background = Background()
    background.end()
    background.end()
    assert not set(background_threads()) - others


@pytest.mark.damaged("no: but a check would ask for the log first")
def test_a_store_closes_while_a_task_in_the_background_asks_it_for_a_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The task needs what closing holds, and closing waits for the task: neither may do both."""
    store = pylog.open(tmp_path)
    store.create_topic("t")
    begun, go_on = threading.Event(), threading.Event()
    check = manager_of(store)._partition

    def slowly(*asked: Any) -> Any:
        begun.set()
        go_on.wait()
        return check(*asked)

    monkeypatch.setattr(manager_of(store), "_partition", slowly)
    manager_of(store).background.every("asks", 1, lambda: store.log("t"))
    assert begun.wait(10)
    closing = threading.Thread(target=store.close, daemon=True)
    closing.start()
    time.sleep(0.05)
    go_on.set()
    closing.join(10)
    assert not closing.is_alive()


def unable_to_start_threads(monkeypatch: pytest.MonkeyPatch, times: int = 1) -> None:
    """The next background threads cannot start, as when the process has all that it may have."""
    start, failures = threading.Thread.start, [None] * times

    def failing(thread: threading.Thread) -> None:
        if thread.name == "pylog-background" and failures:
            failures.pop()
            raise RuntimeError("can't start new thread")
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", failing)


def test_a_task_that_got_no_thread_is_not_taken_for_one_that_runs(
    background: Background, monkeypatch: pytest.MonkeyPatch
) -> None:
    unable_to_start_threads(monkeypatch)
    task = Counter()
    with pytest.raises(pylog.StorageFailedError, match="can't start new thread"):
        background.every("task", 1, task)
    background.every("task", 1, task)
    task.wait_for(2)


def test_a_client_that_never_had_a_thread_ends_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    unable_to_start_threads(monkeypatch)
    background = Background()
    with pytest.raises(pylog.StorageFailedError):
        background.every("task", 1, Counter())
    background.end()


def test_a_task_that_is_dropped_runs_no_more_and_the_others_go_on(background: Background) -> None:
    dropped, other = Counter(), Counter()
    background.every("dropped", 1, dropped)
    dropped.wait_for(1)
    background.drop("dropped")
    background.drop("never there")
    background.every("other", 1, other)
    other.wait_for(2)  # a run of the dropped one that was under way is over
    runs = dropped.runs
    other.wait_for(5)
    assert dropped.runs == runs


def test_an_append_that_no_thread_would_flush_is_refused_and_the_next_one_is_flushed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    unable_to_start_threads(monkeypatch)
    with pylog.open(tmp_path, durability=pylog.Durability.INTERVAL(1)) as store:
        store.create_topic("t")
        log = store.log("t")
        with pytest.raises(pylog.StorageFailedError, match="end some, or raise its limit"):
            log.append(b"x")
        assert log.append(b"y") == 0
        flushed = Counter()
        manager_of(store).background.every("after the flush", 1, flushed)
        flushed.wait_for(3)
        assert log.durable_offset == 1


def test_a_store_whose_tick_gets_no_thread_is_not_opened_and_keeps_no_lock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    unable_to_start_threads(monkeypatch)
    with pytest.raises(pylog.StorageFailedError) as kept:
        pylog.open(tmp_path, tick_interval_ms=1)
    pylog.open(tmp_path, exclusive=True).close()
    assert "can't start new thread" in str(kept.value)  # whose traceback keeps what was half made


def test_a_store_closes_its_logs_and_locks_when_its_background_does_not_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = pylog.open(tmp_path)
    store.create_topic("t")
    store.log("t").append(b"x")

    def interrupted() -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(manager_of(store).background, "end", interrupted)
    with pytest.raises(KeyboardInterrupt):
        store.close()
    with pylog.open(tmp_path, exclusive=True) as again:
        assert again.recovery_report == ()
        assert again.log("t").end_offset == 1


FORKING = """
import os, signal, sys, threading, pylog
store = pylog.open(sys.argv[1], mode=sys.argv[3], durability=pylog.Durability.INTERVAL(3_600_000))
log = store.log("t")
if sys.argv[3] == "rw":
    log.append(b"x")
held, go_on = threading.Event(), threading.Event()
guard = eval(sys.argv[2])
def hold():
    with guard:
        held.set()
        go_on.wait()
thread = threading.Thread(target=hold)
thread.start()
held.wait()
child = os.fork()
if child == 0:
    signal.alarm(20)  # ends a child that waits for ever
    store.close()
    os._exit(7)
ended = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
go_on.set()
thread.join()
store.close()
sys.exit(ended)
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("guard", "mode"),
    [
        ("store._manager._guard", "rw"),
        ("store._manager.background._guard", "rw"),
        ("store._upkeep._ticking._guard", "rw"),
        ("log._partition_log._refresher.lock", "rw"),
        ("log._partition_log._refresher.lock", "r"),
    ],
)
def test_closing_in_a_forked_child_waits_for_no_lock_of_a_thread_of_the_parent(tmp_path: Path, guard: str, mode: str) -> None:
    with pylog.open(tmp_path) as store:
        store.create_topic("t")
    assert warm.run(["-W", "ignore::DeprecationWarning", "-c", FORKING, tmp_path, guard, mode]).returncode == 7
    with pylog.open(tmp_path) as store:
        assert store.log("t").end_offset == (1 if mode == "rw" else 0)


@pytest.mark.parametrize("known", [False, True], ids=["the first task", "a task sooner than the first"])
def test_wherever_an_interrupt_comes_as_a_task_is_added_it_runs_when_it_is_added_again(known: bool) -> None:
    others = set(background_threads())
    for number in itertools.count(1):
        background, task = Background(), Counter()
        if known:
            background.every("known", LONG, Counter())
        came = interrupted_at(number, lambda: background.every("task", 1, task))  # noqa: B023
        background.every("task", 1, task)
        task.wait_for(2)
        assert len(set(background_threads()) - others) == 1
        background.end()
        assert not set(background_threads()) - others
        if not came:
            break
    assert number > 3
