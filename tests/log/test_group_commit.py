"""Appends of several threads that wait for each other become one write, one sync, one publication, and each is told its own."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pylog
from pylog import Durability, ProducerBatch, limits
from pylog.clock import ManualClock
from pylog.errors import StorageFailedError, SyncFailedError
from pylog.log.writing.requests import Request, Requests, append_in_turn
from pylog.record.batch import scan_batches
from pylog.record.builder import BatchEncoder
from pylog.record.format import COUNT
from support.engines import engine_of, writer_of
from support.faults.neighbours import HookedFileSystem, last_segment, values
from support.log.group_commit import NOW, PATIENCE, request, rows, wait_until


@pytest.fixture
def store(tmp_path: Path, fs: HookedFileSystem) -> Iterator[pylog.Store]:
    with pylog.open(tmp_path, fs=fs) as opened:
        yield opened


@pytest.fixture
def log(store: pylog.Store) -> pylog.Log:
    store.create_topic("t")
    made = store.log("t")
    made.append(b"first")
    return made


class Call(threading.Thread):
    """One call in a thread of its own: what it returned, or what it raised."""

    def __init__(self, action: Callable[[], Any]) -> None:
        super().__init__()
        self._action = action
        self.result: Any = None
        self.error: BaseException | None = None

    def run(self) -> None:
        try:
            self.result = self._action()
        except BaseException as error:  # noqa: BLE001 - looked at by the test
            self.error = error


def requests_of(log: pylog.Log) -> Requests:
    return writer_of(log).commits.requests


def queue_up(log: pylog.Log, calls: Sequence[Call]) -> None:
    """Starts appends one after the other; each has joined the queue when the next one starts."""
    for count, call in enumerate(calls, start=len(requests_of(log)._waiting) + 1):
        call.start()
        wait_until(lambda count=count: len(requests_of(log)._waiting) == count)


def together(
    log: pylog.Log, fs: HookedFileSystem, *actions: Callable[[], Any], failing: tuple[str, Callable[[], object]] | None = None
) -> list[Call]:
    """Makes calls that are one group: they come while another append is at its sync. Returns them when they have ended.

    Args:
        log, fs: the log, and its file system.
        actions: the calls.
        failing: a call of the file system, `write` or `sync`, and what raises its error in this group.
    """

    def queue_all() -> None:
        queue_up(log, calls)
        if failing is not None:
            fs.before(failing[0], ".log", failing[1])

    calls = [Call(action) for action in actions]
    fs.before("sync", ".log", queue_all)
    log.append(b"leader", durability=Durability.SYNC)
    for call in calls:
        call.join(PATIENCE)
        assert not call.is_alive()
    return calls


def appends(log: pylog.Log, count: int) -> list[Callable[[], int]]:
    """Returns calls that append `0`, `1`, and so on."""
    return [partial(log.append, b"%d" % number) for number in range(count)]


def batch_counts(directory: Path) -> list[int]:
    """How many records each batch of the last segment has."""
    data = np.frombuffer(last_segment(directory).read_bytes(), np.uint8)
    counts: list[int] = scan_batches(data).table[COUNT].tolist()
    return counts


# ---- together --------------------------------------------------------------------------------------------------------------


def test_appends_that_come_while_one_syncs_share_one_write_one_sync_and_one_batch(
    log: pylog.Log, fs: HookedFileSystem, tmp_path: Path
) -> None:
    before = fs.count("sync", ".log"), fs.count("write", ".log"), fs.count("write", "durable-point")
    calls = together(log, fs, *(lambda number=number: log.append(b"%d" % number) for number in range(20)))
    assert [call.result for call in calls] == list(range(2, 22))
    assert values(log) == [b"first", b"leader", *(b"%d" % number for number in range(20))]
    after = fs.count("sync", ".log"), fs.count("write", ".log"), fs.count("write", "durable-point")
    assert [late - early for early, late in zip(before, after, strict=True)] == [2, 2, 2]
    assert batch_counts(tmp_path / "t-0") == [1, 1, 20]


def test_batches_of_several_producers_share_one_sync(log: pylog.Log, fs: HookedFileSystem) -> None:
    before = fs.count("sync", ".log")
    producers = [ProducerBatch(number, 0, 0) for number in range(5)]
    calls = together(log, fs, *(partial(log.append_batch, [b"%d" % each.producer_id], producer=each) for each in producers))
    assert [call.result.offsets for call in calls] == [range(offset, offset + 1) for offset in range(2, 7)]
    assert fs.count("sync", ".log") - before == 2  # the leader's, and theirs


def test_every_append_is_acknowledged_once_and_all_of_them_are_in_one_order(store: pylog.Store, fs: HookedFileSystem) -> None:
    store.create_topic("t", segment_bytes=4000)
    log = store.log("t")

    def append(writer: int) -> list[tuple[int, list[bytes]]]:
        told = []
        for number in range(40):
            sent = [b"%d-%d-%d" % (writer, number, part) for part in range(1 + number % 3)]
            told.append((log.append_many(sent).start, sent))
        return told

    before = fs.count("sync", ".log")
    with ThreadPoolExecutor(8) as pool:
        told = [pair for pairs in pool.map(append, range(8)) for pair in pairs]
    expected = [value for _, sent in sorted(told) for value in sent]
    assert values(log) == expected
    assert len({start for start, _ in told}) == len(told) == 320
    assert log.end_offset == log.durable_offset == len(expected)
    assert fs.count("sync", ".log") - before < len(told)  # how many fewer is up to the scheduler; exactly, see above


def test_each_threads_own_appends_stay_in_their_order(log: pylog.Log) -> None:
    def append(writer: int) -> list[int]:
        return [log.append(b"%d" % writer) for _ in range(50)]

    with ThreadPoolExecutor(4) as pool:
        told = list(pool.map(append, range(4)))
    assert all(offsets == sorted(offsets) for offsets in told)
    assert sorted(offset for offsets in told for offset in offsets) == list(range(1, 201))


def test_requests_of_all_sorts_stay_in_the_order_in_which_they_came(log: pylog.Log, fs: HookedFileSystem) -> None:
    """Small ones are joined only with their neighbours: large, compressed and numbered ones stand between them."""
    large = [b"large %d" % number for number in range(limits.FEW_RECORDS + 1)]
    packed = [b"packed"] * 3
    numbered = ProducerBatch(7, 0, 0)
    calls = together(
        log,
        fs,
        lambda: log.append(b"a", b"key", [("h", None)], NOW),
        lambda: log.append_many([b"b", None]),
        lambda: log.append_many(large),
        lambda: log.append(b"c"),
        lambda: log.append_many(packed, compression="zstd"),
        lambda: log.append_many(packed, compression="zstd"),
        lambda: log.append_batch([b"d", b"e"], producer=numbered).offsets,
        lambda: log.append_batch([b"f"], producer=ProducerBatch(7, 0, 2)).offsets,
        lambda: log.append_batch([b"d", b"e"], producer=numbered).offsets,  # a retry: it is there by then
        lambda: log.append(None),
    )
    assert [call.error for call in calls] == [None] * 10
    assert values(log, 2) == [b"a", b"b", None, *large, b"c", *packed, *packed, b"d", b"e", b"f", None]
    assert calls[6].result == calls[8].result
    assert calls[9].result == log.end_offset - 1
    assert log.read(2).headers == (("h", None),)


def test_all_of_a_group_get_the_highest_level_that_one_of_them_asked_for(log: pylog.Log, fs: HookedFileSystem) -> None:
    def append(level: Durability) -> Callable[[], Durability]:
        return lambda: log.append_batch([b"x"], durability=level).durability

    levels = [Durability.OS, Durability.INTERVAL(60_000), Durability.SYNC, Durability.OS]
    calls = together(log, fs, *map(append, levels))
    assert [call.result for call in calls] == [Durability.SYNC] * 4
    assert log.durable_offset == log.end_offset
    levels = [Durability.OS, Durability.INTERVAL(60_000), Durability.INTERVAL(50_000)]
    calls = together(log, fs, *map(append, levels))
    assert [call.result for call in calls] == [Durability.INTERVAL(50_000)] * 3


def test_appends_at_the_time_of_the_append_get_one_time_together(tmp_path: Path, fs: HookedFileSystem) -> None:
    with pylog.open(tmp_path, fs=fs) as store:
        store.create_topic("t", message_timestamp_type="LogAppendTime")
        log = store.log("t")
        log.append(b"first")
        together(log, fs, *(lambda stamp=stamp: log.append(b"x", timestamp=stamp) for stamp in (1, 2, 3)))
        stamps = [record.timestamp for record in log.records(2)]
        assert stamps[0] > 3
        assert len(set(stamps)) == 1


# ---- failures --------------------------------------------------------------------------------------------------------------


def test_a_record_that_is_refused_before_it_is_written_hurts_no_other_append(log: pylog.Log) -> None:
    """Of wrong type, too large, of an unknown codec."""

    def append(writer: int) -> list[int]:
        offsets = []
        for number in range(20):
            with pytest.raises(pylog.InvalidRecordError):
                log.append("text")  # type: ignore[arg-type]
            offsets.append(log.append(b"%d-%d" % (writer, number)))
            with pytest.raises(pylog.RecordTooLargeError):
                log.append(bytes(2 << 20))
            with pytest.raises(pylog.InvalidArgumentError):
                log.append_many([b"x"], compression="no such codec")
        return offsets

    with ThreadPoolExecutor(4) as pool:
        told = [offset for offsets in pool.map(append, range(4)) for offset in offsets]
    assert sorted(told) == list(range(1, 81))
    assert len(values(log)) == 81


def test_a_batch_that_turns_out_too_large_for_a_segment_fails_alone(store: pylog.Store, fs: HookedFileSystem) -> None:
    store.create_topic("t", segment_bytes=1000)
    log = store.log("t")
    log.append(b"first")
    writer = writer_of(log)
    assert writer is not None
    generous = BatchEncoder()  # the log's own encoder refuses such records before they are written

    def append(*sent: bytes) -> range:
        request = Request([rows(*sent)], generous, Durability.SYNC)
        request.options = engine_of(log)._source.options.now  # as of a request that was checked
        return writer.append(request).offsets

    calls = together(log, fs, lambda: append(b"a"), lambda: append(bytes(2000)), lambda: append(b"b", b"c"))
    assert [call.result for call in calls] == [range(2, 3), None, range(3, 5)]
    assert isinstance(calls[1].error, pylog.RecordTooLargeError)
    assert values(log) == [b"first", b"leader", b"a", b"b", b"c"]


def refuse_write() -> None:
    raise StorageFailedError("cannot write: no room, for a test", errno=28)


def refuse_sync() -> None:
    raise SyncFailedError("cannot sync: no room, for a test", errno=28)


def test_a_failed_write_refuses_all_of_its_group_and_the_next_appends_go_on(log: pylog.Log, fs: HookedFileSystem) -> None:
    calls = together(log, fs, *appends(log, 5), failing=("write", refuse_write))
    assert [(type(call.error), getattr(call.error, "offset", None)) for call in calls] == [(StorageFailedError, 2)] * 5
    assert len({id(call.error) for call in calls}) == 5  # each thread raises an error of its own
    assert log.append(b"next") == 2
    assert values(log) == [b"first", b"leader", b"next"]


def test_a_failed_sync_refuses_all_of_its_group_and_everything_after(log: pylog.Log, fs: HookedFileSystem) -> None:
    calls = together(log, fs, *appends(log, 5), failing=("sync", refuse_sync))
    assert all(isinstance(call.error, StorageFailedError) for call in calls)
    for _ in range(2):
        with pytest.raises(pylog.ClosedError, match="close the store and open it again"):
            log.append(b"never")
    assert values(log) == [b"first", b"leader"]


def test_a_retry_in_the_group_of_a_batch_whose_sync_failed_is_not_taken_for_a_duplicate(
    log: pylog.Log, fs: HookedFileSystem
) -> None:
    calls = together(
        log, fs, *[partial(log.append_batch, [b"x"], producer=ProducerBatch(7, 0, 0))] * 2, failing=("sync", refuse_sync)
    )
    assert [type(call.error) for call in calls] == [SyncFailedError, pylog.ClosedError]


# ---- interrupts ------------------------------------------------------------------------------------------------------------


def test_an_append_that_is_interrupted_while_it_waits_is_not_written_later(log: pylog.Log, fs: HookedFileSystem) -> None:
    """The main thread waits for another one's sync when Ctrl-C comes."""
    interrupted = threading.Event()
    handler = signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell has what it starts with & ignore it

    def interrupt_the_main_thread() -> None:
        wait_until(lambda: len(requests_of(log)._waiting) == 1)
        for _ in range(int(PATIENCE)):  # Python loses a signal that comes just before a thread begins to wait for a lock
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
            if interrupted.wait(1):
                return
        raise AssertionError("the main thread was not interrupted")

    fs.before("sync", ".log", interrupt_the_main_thread)
    leader = Call(lambda: log.append(b"leader"))
    leader.start()
    wait_until(lambda: requests_of(log)._leader is not None)
    with pytest.raises(KeyboardInterrupt):
        log.append(b"interrupted")
    interrupted.set()
    signal.signal(signal.SIGINT, handler)
    leader.join(PATIENCE)
    assert leader.result == 1
    assert log.append(b"next") == 2
    assert values(log) == [b"first", b"leader", b"next"]


def test_an_append_that_is_interrupted_while_it_waits_holds_up_none_after_it(log: pylog.Log, fs: HookedFileSystem) -> None:
    left: list[Request] = []

    def queue_three_and_interrupt_the_first() -> None:
        queue_up(log, calls)
        left.append(requests_of(log)._waiting[0])
        requests_of(log).leave(left[0])  # what its thread does when something is raised there

    calls = [Call(lambda number=number: log.append(b"%d" % number)) for number in range(3)]
    fs.before("sync", ".log", queue_three_and_interrupt_the_first)
    log.append(b"leader")
    for call in calls[1:]:
        call.join(PATIENCE)
    assert [call.result for call in calls[1:]] == [2, 3]
    left[0].signal.release()  # no interrupt has: let the thread end
    calls[0].join(PATIENCE)
    assert values(log) == [b"first", b"leader", b"1", b"2"]


@pytest.mark.parametrize("call", ["write", "sync"])
def test_a_thread_that_is_interrupted_while_it_writes_leaves_nothing_and_the_others_get_an_error(
    log: pylog.Log, fs: HookedFileSystem, tmp_path: Path, call: str
) -> None:
    def interrupt() -> None:
        raise KeyboardInterrupt

    calls = together(log, fs, *appends(log, 3), failing=(call, interrupt))
    assert [type(each.error) for each in calls] == [KeyboardInterrupt, StorageFailedError, StorageFailedError]
    assert batch_counts(tmp_path / "t-0") == [1, 1]
    assert log.append(b"next") == 2
    assert values(log) == [b"first", b"leader", b"next"]


@pytest.mark.parametrize("alone", [False, True])
def test_an_interrupt_right_after_queueing_leaves_no_leader_that_never_leads(alone: bool) -> None:
    class Interrupting(Requests):
        def lead_alone(self, request: Request) -> bool:
            if alone:
                super().lead_alone(request)
                raise KeyboardInterrupt
            return False

        def add(self, request: Request) -> bool:
            super().add(request)
            raise KeyboardInterrupt

    requests = Interrupting(ManualClock())
    with pytest.raises(KeyboardInterrupt):
        append_in_turn(requests, request(), threading.RLock(), lambda group: None)
    assert requests._leader is None
    assert requests.take() == []


# ---- the queue -------------------------------------------------------------------------------------------------------------
