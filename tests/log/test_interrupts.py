"""An interrupt (Ctrl-C, a signal handler that raises) may come wherever a function begins. Afterwards the log goes on: for this
thread, for others and for other processes; what is acknowledged is there, once and in its place.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import pylog
from pylog import Durability, Log
from pylog.directory import byte_lock, locks
from pylog.errors import IllegalStateError
from pylog.log import state
from pylog.log.writing import group_commit
from pylog.log.writing.published_state import PublishedState
from pylog.log.writing.requests import Requests
from pylog.log.writing.writer import LogWriter
from pylog.store import Store
from support.faults.interruptions import PATIENCE, Broken, in_another_thread, interrupted_at, interrupted_at_step, steps
from support.faults.neighbours import values


@pytest.fixture
def stores(tmp_path: Path) -> Iterator[tuple[Store, Store]]:
    """Two stores of one directory, as two processes would have."""
    with (
        pylog.open(tmp_path, durability=Durability.OS, lock_timeout_ms=2_000) as one,
        pylog.open(tmp_path, durability=Durability.OS) as other,
    ):
        one.create_topic("t", segment_bytes=8_000)
        yield one, other


WORKS: dict[str, tuple[Callable[[Log, Log], object], Callable[[Log], object]]] = {  # what happens before, what is interrupted
    "append": (lambda one, other: None, lambda log: log.append(b"interrupted")),
    "append of many": (lambda one, other: None, lambda log: log.append_many([b"interrupted"] * 100)),
    "append that fills a segment": (lambda one, other: None, lambda log: log.append(bytes(7_500))),
    "synced append": (lambda one, other: None, lambda log: log.append(b"interrupted", durability=Durability.SYNC)),
    "append behind another process": (lambda one, other: other.append_many([b"o"] * 3), lambda log: log.append(b"interrupted")),
    "look": (lambda one, other: other.append(b"o"), lambda log: log.end_offset),
    "flush": (lambda one, other: one.append(b"o"), Log.flush),
    "deletion of records": (lambda one, other: one.append(b"o"), lambda log: log.delete_records(log.start_offset + 1)),
}


AT_STEP = partial(interrupted_at_step, path=str(Path(group_commit.__file__).parent.parent))


def test_a_log_that_is_loaded_again_is_whole_or_loaded_once_more_wherever_an_interrupt_comes(stores: tuple[Store, Store]) -> None:
    one, other = (store.log("t") for store in stores)
    files = tuple(str(Path(module.__file__ or "")) for module in (state,))
    sent = [one.append(b"0")]
    for number in (1, 2, 3, 5, 8, 13, 21):
        sent += [other.append(bytes(7_500)) for _ in range(2)]  # another process begins a segment
        assert interrupted_at_step(number, lambda: one.append(b"interrupted"), files)
        sent.append(one.append(b"after"))
        assert values(other)[sent[-1]] == b"after"
        assert len(values(one)) == one.end_offset == sent[-1] + 1


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # of what is raised in finalizers
@pytest.mark.parametrize("interrupted", [interrupted_at, AT_STEP], ids=["at a call", "at a step of the log"])
@pytest.mark.parametrize("name", WORKS)
def test_wherever_an_interrupt_comes_the_log_goes_on_and_keeps_all_acknowledged_records(
    stores: tuple[Store, Store], tmp_path: Path, name: str, interrupted: Callable[[int, Callable[[], object]], bool]
) -> None:
    one, other = (store.log("t") for store in stores)
    before, work = WORKS[name]
    one.append(b"o")
    work(one)
    other.append(b"first")
    acknowledged: dict[int, bytes] = {}
    for number in steps(3):
        before(one, other)
        came = interrupted(number, lambda: work(one))
        for log, value in ((one, b"by a thread %d" % number), (other, b"by another process %d" % number)):
            offset = in_another_thread(lambda log=log, value=value: log.append(value))
            assert offset not in acknowledged
            acknowledged[offset] = value
        acknowledged[one.append(b"by itself %d" % number)] = b"by itself %d" % number
        if not came:
            break
    assert number > 20
    with pylog.open(tmp_path, "r") as fresh:
        found = {record.offset: record.value for record in fresh.log("t").records()}
        assert fresh.log("t").recovery_report == ()
    assert sorted(found) == list(range(min(found), max(found) + 1))
    assert {offset: found[offset] for offset in acknowledged if offset in found} == {
        offset: value for offset, value in acknowledged.items() if offset >= min(found)
    }


def alone_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """From now on appends take their turns as if others were just coming back."""
    monkeypatch.setattr(Requests, "lead_alone", lambda *_: False)


def test_a_thread_that_waits_for_one_that_is_interrupted_gets_an_error(
    stores: tuple[Store, Store], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its records may be there, and are not acknowledged; it does not wait for ever."""
    alone_no_more(monkeypatch)
    log = stores[0].log("t")
    log.append(b"0")
    take, told = Requests.take, []

    def follow() -> None:
        with pytest.raises(pylog.StorageFailedError) as caught:
            log.append(b"2")
        told.append(caught.value)

    follower = threading.Thread(target=follow, daemon=True)

    def joined(requests: Requests) -> Any:
        follower.start()
        while len(requests._waiting) < 2:
            threading.Event().wait(0.001)
        taken = take(requests)
        assert len(taken) == 2
        raise Broken

    monkeypatch.setattr(Requests, "take", joined)
    with pytest.raises(Broken):
        log.append(b"1")
    monkeypatch.setattr(Requests, "take", take)
    follower.join(PATIENCE)
    assert told
    assert values(log) == [b"0"]
    assert log.append(b"3") == 1


def test_records_that_other_processes_have_read_as_durable_are_not_taken_back_by_an_interrupt(
    stores: tuple[Store, Store], monkeypatch: pytest.MonkeyPatch
) -> None:
    one, other = (store.log("t") for store in stores)
    one.append(b"0")
    show, read = PublishedState.show, []

    def interrupted(*_: object) -> None:
        monkeypatch.setattr(PublishedState, "show", show)
        read.append((other.durable_offset, values(other)))
        raise Broken

    monkeypatch.setattr(PublishedState, "show", interrupted)
    with pytest.raises(Broken):
        one.append(b"1", durability=Durability.SYNC)
    assert read == [(2, [b"0", b"1"])]
    assert one.append(b"2") == 2
    assert values(other) == [b"0", b"1", b"2"]


@pytest.mark.parametrize(("where", "step"), [(LogWriter, "_commit"), (Requests, "give_way")])
def test_a_handler_that_runs_during_an_append_can_read_the_log_but_an_append_by_it_is_refused(
    stores: tuple[Store, Store], monkeypatch: pytest.MonkeyPatch, where: type, step: str
) -> None:
    """Handlers of signals and of log messages run in the thread that appends, and would wait for themselves."""
    log = stores[0].log("t")
    log.append(b"0")
    if where is Requests:
        alone_no_more(monkeypatch)
    take_step, seen = getattr(where, step), []

    def amid(*given: Any) -> None:
        seen.append((log.end_offset, values(log)))
        with pytest.raises(IllegalStateError, match="cannot append to the same log"):
            log.append(b"never")
        take_step(*given)

    monkeypatch.setattr(where, step, amid)
    assert log.append(b"1") == 1
    assert seen == [(1, [b"0"])]
    monkeypatch.undo()
    assert log.append(b"2") == 2
    assert values(log) == [b"0", b"1", b"2"]


def test_threads_go_on_that_are_to_be_woken_by_one_that_waits_for_them(
    stores: tuple[Store, Store], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As the main thread does, in a handler of signals that ends all others in order."""
    log = stores[0].log("t")
    log.append(b"first")
    others: list[threading.Thread] = []
    leave = Requests.leave

    def leave_late(requests: Requests, request: Any) -> None:
        if threading.current_thread() is others[0] and requests._leader is not request:
            for other in others[1:]:
                other.join(PATIENCE)
                assert not other.is_alive()
        leave(requests, request)

    def append() -> None:
        for _ in range(20):
            log.append(b"x")

    others += [threading.Thread(target=append, daemon=True) for _ in range(5)]
    monkeypatch.setattr(Requests, "leave", leave_late)
    for other in others:
        other.start()
    for other in others:
        other.join(PATIENCE)
    assert not any(other.is_alive() for other in others)
    assert log.end_offset == 101


OF_ROOT: dict[str, Callable[[Store, int], object]] = {  # what takes the lock of the directory itself, or that of compaction
    "creation": lambda store, number: store.create_topic(f"made{number}"),
    "deletion": lambda store, number: store.delete_topic(f"there{number}"),
    "alteration": lambda store, number: store.alter_topic("t", retention_ms=1_000_000 + number),
    "deletion of records": lambda store, number: store.log("t").delete_records(store.log("t").start_offset + 1),
    "compaction": lambda store, number: store.compact("c"),
}


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # of what is raised in finalizers
@pytest.mark.parametrize("name", OF_ROOT)
def test_wherever_an_interrupt_comes_under_a_lock_of_the_directory_the_lock_is_released(
    stores: tuple[Store, Store], name: str
) -> None:
    one, other = stores
    one.create_topic("c", cleanup_policy="compact", segment_bytes=2_000, min_cleanable_dirty_ratio=0.0)
    work = OF_ROOT[name]
    for number in steps(4):
        one.log("t").append(b"o")
        one.create_topic(f"there{number}")
        one.log("c").append_many([(b"key", bytes(300))] * 10)  # a segment
        came = interrupted_at_step(number, lambda: work(one, number), (locks.__file__, byte_lock.__file__, contextlib.__file__))  # noqa: B023
        in_another_thread(lambda: one.create_topic(f"by-another-thread-{number}"))  # noqa: B023
        in_another_thread(lambda: one.compact("c"))
        other.create_topic(f"by-another-process-{number}")
        for topic in [topic for topic in other.topics() if topic not in ("t", "c")]:
            other.delete_topic(topic)
        if not came:
            break
    assert number > 10
