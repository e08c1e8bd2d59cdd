"""Appends of several threads that wait for each other become one write, one sync, one publication, and each is told its own."""

from __future__ import annotations

import itertools
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pylog
from pylog import Durability, ProducerBatch, limits
from pylog.clock import ManualClock
from pylog.errors import StorageFailedError, SyncFailedError
from pylog.log.writing import group_commit
from pylog.log.writing.group_commit import Request, Requests, append_in_turn, grouped
from pylog.record.batch import scan_batches
from pylog.record.builder import BatchEncoder, rows_from_records
from pylog.record.format import COUNT
from pylog.record.rows import Rows
from support.faults.interruptions import interrupted_at_step
from support.faults.neighbours import HookedFileSystem, last_segment, values

PATIENCE = 20.0  # seconds, for what takes milliseconds
NOW = 1_700_000_000_000


@pytest.fixture
def fs() -> HookedFileSystem:
    return HookedFileSystem()


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
    assert log._mutator is not None
    return log._mutator.requests


def wait_until(met: Callable[[], bool]) -> None:
    """Waits for what other threads are about to do."""
    step, passed = 0.001, 0.0
    while not met():
        assert passed < PATIENCE
        threading.Event().wait(step)
        passed += step


def queue_up(log: pylog.Log, calls: Sequence[Call]) -> None:
    """Starts appends one after the other; each has joined the queue when the next one starts."""
    for count, call in enumerate(calls, start=len(requests_of(log)._waiting) + 1):
        call.start()
        wait_until(lambda count=count: len(requests_of(log)._waiting) == count)


def together(log: pylog.Log, fs: HookedFileSystem, *actions: Callable[[], Any]) -> list[Call]:
    """Makes calls that are one group: they come while another append is at its sync. Returns them when they are over."""
    calls = [Call(action) for action in actions]
    fs.before("sync", ".log", lambda: queue_up(log, calls))
    log.append(b"leader", durability=Durability.SYNC)
    for call in calls:
        call.join(PATIENCE)
        assert not call.is_alive()
    return calls


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


def test_what_is_refused_before_it_is_written_hurts_no_other_append(log: pylog.Log) -> None:
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


def rows(*sent: bytes) -> Rows:
    return rows_from_records(None, sent, None, None, NOW)


def test_a_batch_that_turns_out_too_large_for_a_segment_fails_alone(store: pylog.Store, fs: HookedFileSystem) -> None:
    store.create_topic("t", segment_bytes=1000)
    log = store.log("t")
    log.append(b"first")
    mutator = log._mutator
    assert mutator is not None
    generous = BatchEncoder()  # the log's own encoder refuses such records before they are written

    def append(*sent: bytes) -> range:
        request = Request([rows(*sent)], generous, Durability.SYNC)
        request.options = log._source.options.now  # as of a request that was checked
        return append_in_turn(mutator.requests, request, mutator.lock, mutator.commit).offsets

    calls = together(log, fs, lambda: append(b"a"), lambda: append(bytes(2000)), lambda: append(b"b", b"c"))
    assert [call.result for call in calls] == [range(2, 3), None, range(3, 5)]
    assert isinstance(calls[1].error, pylog.RecordTooLargeError)
    assert values(log) == [b"first", b"leader", b"a", b"b", b"c"]


def refuse_write() -> None:
    raise StorageFailedError("cannot write: no room, for a test", errno=28)


def refuse_sync() -> None:
    raise SyncFailedError("cannot sync: no room, for a test", errno=28)


def test_a_failed_write_refuses_all_of_its_group_and_the_next_appends_go_on(log: pylog.Log, fs: HookedFileSystem) -> None:
    def fail_next_write() -> None:
        queue_up(log, calls)
        fs.before("write", ".log", refuse_write)

    calls = [Call(lambda number=number: log.append(b"%d" % number)) for number in range(5)]
    fs.before("sync", ".log", fail_next_write)
    log.append(b"leader")
    for call in calls:
        call.join(PATIENCE)
        assert isinstance(call.error, StorageFailedError)
        assert call.error.offset == 2
    assert len({id(call.error) for call in calls}) == 5  # each thread raises an error of its own
    assert log.append(b"next") == 2
    assert values(log) == [b"first", b"leader", b"next"]


def test_a_failed_sync_refuses_all_of_its_group_and_everything_after(log: pylog.Log, fs: HookedFileSystem) -> None:
    def fail_next_sync() -> None:
        queue_up(log, calls)
        fs.before("sync", ".log", refuse_sync)

    calls = [Call(lambda number=number: log.append(b"%d" % number)) for number in range(5)]
    fs.before("sync", ".log", fail_next_sync)
    log.append(b"leader")
    for call in calls:
        call.join(PATIENCE)
        assert isinstance(call.error, StorageFailedError)
    for _ in range(2):
        with pytest.raises(pylog.ClosedError, match="close the store and open it again"):
            log.append(b"never")
    assert values(log) == [b"first", b"leader"]


def test_a_retry_in_the_group_of_a_batch_whose_sync_failed_is_not_taken_for_a_duplicate(
    log: pylog.Log, fs: HookedFileSystem
) -> None:
    def fail_next_sync() -> None:
        queue_up(log, calls)
        fs.before("sync", ".log", refuse_sync)

    calls = [Call(lambda: log.append_batch([b"x"], producer=ProducerBatch(7, 0, 0))) for _ in range(2)]
    fs.before("sync", ".log", fail_next_sync)
    log.append(b"leader")
    for call in calls:
        call.join(PATIENCE)
    assert [type(call.error) for call in calls] == [SyncFailedError, pylog.ClosedError]


# ---- interrupts ------------------------------------------------------------------------------------------------------------


def test_who_is_interrupted_while_it_waits_is_not_written_later(log: pylog.Log, fs: HookedFileSystem) -> None:
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


def test_who_is_interrupted_while_it_waits_holds_up_nobody_behind_it(log: pylog.Log, fs: HookedFileSystem) -> None:
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
def test_who_is_interrupted_while_it_writes_leaves_nothing_and_the_others_get_an_error(
    log: pylog.Log, fs: HookedFileSystem, tmp_path: Path, call: str
) -> None:
    def interrupt() -> None:
        raise KeyboardInterrupt

    def interrupt_the_next_leader() -> None:
        queue_up(log, calls)
        fs.before(call, ".log", interrupt)

    calls = [Call(lambda number=number: log.append(b"%d" % number)) for number in range(3)]
    fs.before("sync", ".log", interrupt_the_next_leader)
    log.append(b"leader")
    for each in calls:
        each.join(PATIENCE)
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


def request(size: int = 1, level: Durability = Durability.SYNC) -> Request:
    made = Request([rows(b"x")], BatchEncoder(), level)
    made.size = size
    return made


def may_go_on(requests: list[Request]) -> list[Request]:
    """Those whose threads have been woken and have not left."""
    return [each for each in requests if not each.signal.locked() and not each.left]


def test_the_first_one_leads_and_the_oldest_that_waits_leads_next_when_all_others_have_gone_on() -> None:
    requests = Requests(ManualClock())
    first, second, third = (request() for _ in range(3))
    assert [requests.add(each) for each in (first, second, third)] == [True, False, False]
    assert requests.take() == [first, second, third]
    late, later = request(), request()
    assert not requests.add(late)
    assert not requests.add(later)
    for leaving, woken in ((first, second), (second, third), (third, late)):
        requests.leave(leaving)
        assert may_go_on([second, third, late, later]) == [woken]
    assert not requests.add(request())  # it leads
    assert requests.take()[:2] == [late, later]


@pytest.mark.parametrize("count", [2, 3, 5])
def test_who_comes_back_while_others_are_being_woken_waits_for_them_and_then_leads_them_all(count: int) -> None:
    """Alone it would sync for itself, and they would wait behind it: every other sync would be one append's."""
    requests = Requests(ManualClock())
    group = [request() for _ in range(count)]
    for each in group:
        requests.add(each)
    requests.take()
    settle(group)
    back: list[Request] = []
    for leaving in group:
        requests.leave(leaving)
        assert may_go_on(back) == back[:1] * (leaving is group[-1])  # the last one has left: now it is time
        back.append(request())
        assert not requests.add(back[-1])
    assert requests.may_go_on(back[0])
    assert requests.take() == back


def test_nobody_waits_twice_for_one_that_does_not_go_on() -> None:
    """It may be in a handler of signals. Who has waited as long as it takes leads without it."""
    requests = Requests(ManualClock())
    group = [request() for _ in range(2)]
    for each in group:
        requests.add(each)
    requests.take()
    settle(group)
    requests.leave(group[0])
    first = request()
    assert not requests.add(first)
    assert requests.may_go_on(first)  # it looks by itself after a while
    assert requests.take() == [first]
    settle([first])
    requests.leave(first)
    assert requests.add(request())


def settle(group: list[Request]) -> None:
    for each in group:
        each.acknowledge(range(1), Durability.SYNC)


def time_to_append(requests: Requests, clock: ManualClock) -> float:
    """The milliseconds that a new thread waits before it commits, if it may lead at once."""
    before = clock.monotonic()
    append_in_turn(requests, request(), threading.RLock(), settle)
    return round(1000 * (clock.monotonic() - before), 6)


def behind_a_commit_of_two(took_ms: float) -> tuple[Requests, ManualClock]:
    """Requests that two threads have just left, and their clock."""
    clock = ManualClock()
    requests = Requests(clock)
    both = [request(), request()]
    for each in both:
        requests.add(each)
    requests.take()
    clock.sleep(took_ms / 1000)
    for each in both:
        requests.leave(each)
    return requests, clock


@pytest.mark.parametrize(("took_ms", "given_ms"), [(0.9, 0), (1, 0.1), (10, 1), (5_000, 2)])
def test_behind_a_slow_commit_of_several_threads_the_next_leader_gives_them_time_to_come_back(
    took_ms: float, given_ms: float
) -> None:
    requests, clock = behind_a_commit_of_two(took_ms)
    assert time_to_append(requests, clock) == given_ms
    assert time_to_append(requests, clock) == 0  # behind one that was alone


def test_who_was_waiting_alone_gives_time_to_the_leader_before_it() -> None:
    clock = ManualClock()
    requests = Requests(clock)
    leader = request()
    requests.add(leader)
    requests.take()
    waiting = threading.Thread(target=append_in_turn, args=(requests, request(), threading.RLock(), settle))
    waiting.start()
    wait_until(lambda: len(requests._waiting) == 1)
    clock.sleep(0.01)
    before = clock.monotonic()
    requests.leave(leader)
    waiting.join(PATIENCE)
    assert clock.monotonic() - before == pytest.approx(0.001)


def test_nobody_waits_for_threads_that_have_not_come_back_for_long() -> None:
    requests, clock = behind_a_commit_of_two(10)
    clock.sleep(0.0015)
    assert time_to_append(requests, clock) == 0


def test_who_stops_waiting_is_passed_over_when_the_others_are_woken() -> None:
    requests = Requests(ManualClock())
    leader, *others = [request() for _ in range(5)]
    for each in (leader, *others):
        requests.add(each)
    requests.take()
    late = request()
    requests.add(late)
    requests.leave(others[0])  # interrupted while it waited
    requests.leave(leader)
    assert may_go_on([*others, late]) == [others[1]]
    requests.leave(others[2])  # interrupted too: it wakes one more, which hurts nobody
    assert may_go_on([*others, late]) == [others[1], others[3]]
    requests.leave(others[3])
    requests.leave(others[1])
    assert may_go_on([late]) == [late]


@pytest.mark.parametrize("who", [0, 2], ids=["the leader", "one that it has written for"])
@pytest.mark.parametrize("again", [False, True], ids=["once", "and its second attempt"])
def test_wherever_one_is_interrupted_as_it_leaves_all_others_are_woken(who: int, again: bool) -> None:
    for number in itertools.count(1):
        requests = Requests(ManualClock())
        waiting = [request() for _ in range(4)]
        for each in waiting:
            requests.add(each)
        requests.take()
        late = [request() for _ in range(2)]
        for each in late:
            requests.add(each)
        if who:
            requests.leave(waiting[0])
            requests.leave(waiting[1])
        came = interrupted_at_step(number, lambda: requests.leave(waiting[who]), group_commit.__file__)  # noqa: B023 - called at once
        if again:
            interrupted_at_step(number // 2 + 1, lambda: requests.leave(waiting[who]), group_commit.__file__)  # noqa: B023
        assert not requests._guard.locked()
        requests.leave(waiting[who])
        left = [each for each in (*waiting, *late[:1]) if not each.left]
        while woken := may_go_on(left):
            for each in woken:
                requests.leave(each)
        assert [each.left for each in (*waiting, *late[:1])] == [True] * 5
        assert may_go_on(late[1:]) == late[1:]  # it leads, because the one before has left without taking anything
        if not came:
            break
    assert number > 4


def test_wherever_one_that_is_alone_is_interrupted_the_next_one_leads() -> None:
    for number in itertools.count(1):
        requests, lock = Requests(ManualClock()), threading.RLock()
        came = interrupted_at_step(number, lambda: append_in_turn(requests, request(), lock, settle), group_commit.__file__)  # noqa: B023
        assert not requests._guard.locked()
        assert requests._leader is None
        append_in_turn(requests, following := request(), lock, settle)
        assert following.done
        if not came:
            break
    assert number > 10


def test_a_group_is_not_larger_than_one_write_but_one_request_may_be() -> None:
    requests = Requests(ManualClock())
    sizes = [limits.APPEND_CHUNK_BYTES // 2, limits.APPEND_CHUNK_BYTES // 2, 1, 10 * limits.APPEND_CHUNK_BYTES, 1]
    waiting = [request(size) for size in sizes]
    for each in waiting:
        requests.add(each)
    assert [requests.take() for _ in range(4)] == [waiting[:2], waiting[2:3], waiting[3:4], waiting[4:]]


def test_who_has_left_is_neither_taken_nor_made_leader() -> None:
    requests = Requests(ManualClock())
    first, second, third = (request() for _ in range(3))
    for each in (first, second, third):
        requests.add(each)
    requests.leave(second)
    requests.leave(first)
    third.wait()
    assert requests.take() == [third]


def test_a_group_acknowledges_what_lies_below_the_logs_end_and_refuses_the_rest() -> None:
    """A roll publishes what the old segment holds, so the first ones of a group that fails may be in the log."""
    first, second = request(), request()
    group = grouped([first, second], 10)
    assert group.end_offset == 12
    error = StorageFailedError("cannot write, for a test")
    group.settle(11, error)
    assert first.result().offsets == range(10, 11)
    with pytest.raises(StorageFailedError):
        second.result()
