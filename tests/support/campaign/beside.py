"""Every public method that reads, in threads next to a writer that rolls, trims, truncates, compacts and alters options.

The interpreter switches threads each microsecond. The writer runs in this process or in another one. A record's value names its
offset, and its timestamp follows from it, so that each answer can be judged by itself: for `./dev torture beside`.
"""

from __future__ import annotations

import itertools
import random
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

import pylog
from pylog import TopicPartition
from pylog.store import manager_of
from support.campaign.beside_board import Board
from support.engines import engine_of
from support.faults.neighbours import Neighbour

TOPIC: Final = TopicPartition("t", 0)
TIME: Final = 1_700_000_000_000
KEPT: Final = 600  # records before the end that the writer never trims
CUT: Final = 200  # records before the end that truncations may reach
THREADS: Final = 3
SLOW: Final = 0.2  # how often a method is called that takes long
SWITCH_SECONDS: Final = 1e-6
CELL_SECONDS: Final = 0.1  # of one method next to one change
PATIENCE: Final = 60.0  # seconds for the slowest of the threads
LONGEST_TURN_SECONDS: Final = 0.5  # of one method, while it waits for a change beside it
ROLLS_KEPT: Final = 200  # steps after which a log is trimmed that is only rolled
CHANGES = {"roll": 0, "truncate": 18, "delete_records": 19, "compaction": 21, "tick": 22, "alter_topic": 23}  # see `step`
CHANGES |= {"close": 24, "delete_topic": 25}  # of which the second creates the topic again
PASSING: Final[dict[str | None, tuple[type[Exception], ...]]] = {  # what calls may raise then
    "close": (pylog.ClosedError,),
    "delete_topic": (pylog.UnknownTopicOrPartitionError, pylog.OffsetOutOfRangeError, AssertionError),
}
OPTIONS: Final[dict[str, Any]] = {
    "segment_bytes": 1500,
    "cleanup_policy": "compact,delete",
    "retention_ms": -1,
    "min_cleanable_dirty_ratio": 0.01,
    "index_interval_bytes": 200,
    "message_timestamp_before_max_ms": (1 << 63) - 1,
}


# ---- the writer ----------------------------------------------------------------------------------------------------------------


class Writer:
    """Appends, and does everything else that changes a log."""

    def __init__(self, store: pylog.Store, board: Board, seed: int, only: str | None = None) -> None:
        self._only = only
        self.store = store
        self._log = store.log("t")
        self._board = board
        self._rng = random.Random(seed)
        self._generation = 0
        self._end = self._log.end_offset  # its own count: a look of another thread's may be an older one
        self.steps = 0

    def append(self, count: int) -> None:
        self._append(count)
        self._board.end = self._end

    def _append(self, count: int) -> None:
        first = self._end
        items = [
            (b"k%d" % (each % 50), b"%d/%d" % (each, self._generation), (), TIME + each * 10)
            for each in range(first, first + count)
        ]
        offsets = self._log.append_many(items, durability=pylog.Durability.OS)
        assert offsets == range(first, first + count)
        self._end = offsets.stop

    def step(self) -> None:
        self.steps += 1
        choice = self._rng.randrange(24)
        if self._only is not None:
            choice = CHANGES[self._only] if choice > (20 if self._only in PASSING else 15) else 0
        if choice < 18:
            self.append(self._rng.randint(1, 8))
        elif choice == 18:
            self._truncate(self._end - self._rng.randint(1, 8))
        elif choice < 21:
            self._delete_records()
        elif choice == 21:
            self.store.compact("t")
        elif choice == 22:
            self.store.tick()
        elif choice == 23:
            self.store.alter_topic("t", segment_bytes=self._rng.choice([1500, 2500]))
        elif choice == 24:
            self._close()
        else:
            self._delete_topic()
        if self._only is not None and choice == CHANGES[self._only]:
            self._board.note_change()
        if self._only == "roll" and self.steps % ROLLS_KEPT == 0:
            self._delete_records()  # so that checks of it stay short

    def _delete_records(self) -> None:
        before = max(self._log.start_offset, self._end - KEPT)
        self._board.trimmed = before
        self._log.delete_records(before)

    def _close(self) -> None:
        self._board.note_truncation()
        self.store.close()
        self.store = pylog.open(self.store.path, durability=pylog.Durability.OS)
        self._log = self.store.log("t")
        self._board.note_truncation()

    def _delete_topic(self) -> None:
        self._generation += 1
        self._board.note_truncation()
        self.store.delete_topic("t")
        self.store.create_topic("t", **OPTIONS)
        self._log, self._end, self._board.trimmed = self.store.log("t"), 0, 0
        for _ in range(KEPT // 50):
            self._append(50)
        self._board.end = self._end
        self._board.note_truncation()

    def _truncate(self, end: int) -> None:
        self._generation += 1
        self._board.note_truncation()  # before it is begun
        self._board.end = self._end = end
        self._log.truncate(end)
        self.append(1)


def write(path: str, board: str, seed: int, only: str | None = None) -> int:
    """Writes until it is told to end, in the process that this is called in. Returns how many steps that were."""
    there = Board(Path(board))
    writer = Writer(pylog.open(path, durability=pylog.Durability.OS), there, seed, only)
    while not there.is_over:
        writer.step()
        time.sleep(0.002 if only else 0)
    writer.store.close()
    return writer.steps


# ---- the readers ---------------------------------------------------------------------------------------------------------------


class Reader:
    """A thread's view: calls methods and judges what they answer."""

    def __init__(self, store: pylog.Store, board: Board, seen: dict[int, bytes] | None, seed: int, since: int) -> None:
        self.board, self.since = board, since
        self.rng = random.Random(seed)
        self._seen = seen
        self._asked = sys.maxsize
        self.use(store)

    def use(self, store: pylog.Store) -> None:
        """Reads through this store from now on. What changes after `since` may make its log and its consumer useless."""
        self.store, self.log = store, store.log("t")
        self.consumer = store.consumer(auto_offset_reset="earliest")
        self.consumer.assign([TOPIC])

    def use_next(self, current: Callable[[], pylog.Store]) -> None:
        """Reads on, after the store was closed or the topic deleted."""
        while True:
            self.consumer.close()  # does nothing in a store that is closed
            self.since = self.board.truncations  # before the store is asked for, which can be closed then
            try:
                self.use(current())
            except (pylog.ClosedError, pylog.UnknownTopicOrPartitionError):
                assert self.board.has_changed(self.since)
            if not self.board.has_changed(self.since):
                return  # otherwise this may still be the log that is being deleted
            time.sleep(0.001)

    def begin(self) -> int:
        """An offset that is not truncated during the next call, nor trimmed unless the call takes long."""
        end = self.board.end
        self._asked = self.rng.randint(end - KEPT // 2, end - CUT)
        return self._asked

    def call(self, one: Callable[[Reader], None]) -> None:
        """Makes a call. It may say that its offset was trimmed, if the writer did so meanwhile: a busy machine stops a thread."""
        self._asked = sys.maxsize
        try:
            one(self)
        except pylog.OffsetOutOfRangeError:
            if self._asked >= self.board.trimmed:
                raise

    def judge(self, offset: int, value: bytes | None, timestamp: int | None = None) -> None:
        """A record says which it is, and never becomes another one once it is out of a truncation's reach."""
        assert value is not None
        assert int(value.partition(b"/")[0]) == offset, f"{value!r} at offset {offset}"
        assert timestamp is None or timestamp == TIME + offset * 10
        if self._seen is not None and offset < self.board.end - CUT:
            assert self._seen.setdefault(offset, value) == value, (
                f"{value!r} at offset {offset}, where {self._seen[offset]!r} was"
            )

    def judge_all(self, rows: Iterator[tuple[int, bytes | None]], start: int, end: int | None = None) -> None:
        last = start - 1
        for offset, value in rows:
            assert last < offset < (end or sys.maxsize), f"{offset} after {last}, from {start} to {end}"
            self.judge(offset, value)
            last = offset

    def judge_end(self, ask: Callable[[], int]) -> None:
        """No end is before an offset that was acknowledged before it was asked for."""
        truncations, before = self.board.truncations, self.board.end
        end = ask()
        if self.board.truncations == truncations:
            assert end >= before, f"the log ends at {end}, and {before} was acknowledged before"

    def isolation(self) -> str:
        return self.rng.choice(["read_committed", "read_uncommitted"])


def _frames(frames: Iterator[Any]) -> Iterator[tuple[int, bytes | None]]:
    for frame in frames:
        yield from zip(frame["offset"].to_pylist(), frame["value"].to_pylist(), strict=True)


def read(reader: Reader) -> None:
    asked = reader.begin()
    record = reader.log.read(asked)
    assert record.offset >= asked
    reader.judge(record.offset, record.value, record.timestamp)


def scan(reader: Reader) -> None:
    start = reader.begin()
    end = reader.board.end - CUT
    frames = reader.log.scan(start, end, columns=["offset", "value"], max_rows=50, isolation_level=reader.isolation())
    reader.judge_all(_frames(frames), start, end)


def records(reader: Reader) -> None:
    start = reader.begin()
    end = reader.board.end - CUT
    found = reader.log.records(start, end, isolation_level=reader.isolation())
    reader.judge_all(((each.offset, each.value) for each in found), start, end)


def at_snapshot(reader: Reader) -> None:
    start = reader.begin()
    end = reader.board.end - CUT
    columns = ["offset", "value"]
    with suppress(pylog.OffsetOutOfRangeError, *([pylog.PylogTimeoutError] if reader.store.mode == "r" else [])):  # gone; late
        found = reader.store.read_table(
            "t", 0, start=start, end=end, columns=columns, snapshot=reader.store.snapshot(["t"], groups=())
        )
        reader.judge_all(_frames(iter(found.to_batches())), start, end)


def follow(reader: Reader) -> None:
    start = reader.begin()
    frames = reader.log.follow(start, columns=["offset", "value"], max_rows=50, timeout_ms=0, isolation_level=reader.isolation())
    with suppress(pylog.OffsetOutOfRangeError):  # says that the end, which it has come to, was truncated
        for offset, value in _frames(frames):
            assert offset >= start
            reader.judge(offset, value)


def read_many(reader: Reader) -> None:
    asked = range(reader.begin(), reader.board.end - CUT)[::-3]
    for offset, value in _frames(iter(reader.log.read_many(asked, isolation_level=reader.isolation()).to_batches())):
        reader.judge(offset, value)


def offset_for_timestamp(reader: Reader) -> None:
    asked = reader.begin()
    found = reader.log.offset_for_timestamp(TIME + asked * 10, isolation_level=reader.isolation())
    assert found is not None, f"no record at or after the time of offset {asked}, which is there"
    assert found.offset >= asked
    assert found.timestamp == TIME + found.offset * 10


def split_offsets(reader: Reader) -> None:
    start = reader.begin()
    end = reader.board.end - CUT
    found = reader.log.split_offsets(start, max(start, end), 500)
    assert found == sorted(set(found))
    assert all(start <= each <= end for each in found)


def size_between(reader: Reader) -> None:
    start = reader.begin()
    assert reader.log.size_between(start, max(start, reader.board.end - CUT)) >= 0


def segments(reader: Reader) -> None:
    bases = [segment.base_offset for segment in reader.log.segments]
    assert bases == sorted(set(bases))
    assert bases


def bounds(reader: Reader) -> None:
    before = reader.board.end
    reader.judge_end(lambda: reader.log.end_offset)
    reader.judge_end(lambda: reader.log.stable_offset)
    reader.judge_end(lambda: reader.log.segments[-1].end_offset)
    reader.judge_end(lambda: engine_of(reader.log).snapshot().end_offset)
    reader.judge_end(lambda: reader.log.wait_for(before - CUT, timeout_ms=0))
    start = reader.log.start_offset
    assert start <= reader.board.end - CUT
    assert reader.log.durable_offset >= 0


def facts(reader: Reader) -> None:
    assert engine_of(reader.log).next_sequence(99, 0) is None
    assert not engine_of(reader.log).is_deleted
    assert isinstance(reader.log.recovery_report, tuple)


def check(reader: Reader) -> None:
    if reader.rng.random() < SLOW:
        report = reader.store.check()
        assert report.ok, str(report)


def verify(reader: Reader) -> None:
    if reader.rng.random() < SLOW:
        report = reader.store.verify()
        assert report.ok, str(report)


def views(reader: Reader) -> None:
    assert set(reader.store.topics()) == {"t"}
    assert reader.store.topic("t").partition_count == 1
    assert reader.store.log("t") is not None
    assert manager_of(reader.store).outline("t") is not None
    assert reader.store.groups() == []
    assert reader.store.metrics()
    assert isinstance(reader.store.recovery_report, tuple)


def ends_of_many(reader: Reader) -> None:
    low = reader.begin()
    found = reader.store.start_and_end_offsets([TOPIC])[TOPIC]
    assert found is not None
    assert found[0] <= found[1]
    assert found[1] >= low


def poll(reader: Reader) -> None:
    start = reader.begin()
    reader.consumer.seek(TOPIC, start)
    found = reader.consumer.poll(max_records=100).get(TOPIC, [])
    reader.judge_all(((each.offset, each.value) for each in found), start)
    position = reader.consumer.position(TOPIC)
    assert position is not None
    assert position >= start


def poll_arrow(reader: Reader) -> None:
    start = reader.begin()
    reader.consumer.seek(TOPIC, start)
    frame = reader.consumer.poll_arrow(max_records=100).get(TOPIC)
    assert frame is None or frame["offset"].to_pylist()[0] >= start


def consumer_bounds(reader: Reader) -> None:
    reader.judge_end(lambda: reader.consumer.end_offsets([TOPIC])[TOPIC])
    assert reader.consumer.beginning_offsets([TOPIC])[TOPIC] <= reader.board.end - CUT
    reader.consumer.seek_to_beginning(TOPIC)
    reader.judge_end(lambda: (reader.consumer.seek_to_end(TOPIC), reader.consumer.position(TOPIC) or 0)[1])


def offsets_for_times(reader: Reader) -> None:
    asked = reader.begin()
    found = reader.consumer.offsets_for_times({TOPIC: TIME + asked * 10})[TOPIC]
    assert found is not None
    assert found.offset >= asked


def consumer_views(reader: Reader) -> None:
    assert reader.consumer.topics() == {"t"}
    assert reader.consumer.partitions_for_topic("t") == {0}
    assert reader.consumer.assignment() == {TOPIC}
    assert reader.consumer.paused() == set() == reader.consumer.subscription()


Read = Callable[[Reader], None]

# Each public method: the function that calls it here, or why it is called nowhere here.
LOG: Final[dict[str, Read | str]] = {
    "read": read,
    "read_many": read_many,
    "records": records,
    "scan": scan,
    "follow": follow,
    "offset_for_timestamp": offset_for_timestamp,
    "split_offsets": split_offsets,
    "size_between": size_between,
    "segments": segments,
    **dict.fromkeys(("start_offset", "end_offset", "stable_offset", "durable_offset", "wait_for"), bounds),
    **dict.fromkeys(("recovery_report",), facts),
    **dict.fromkeys(("append", "append_arrow", "append_batch", "append_many", "delete_records", "truncate"), "writes"),
    **dict.fromkeys(("flush", "exclusively"), "writes, or keeps writers out"),
    **dict.fromkeys(("config", "remote_offsets", "archived_end_offset", "local_start_offset"), "of another object"),
}
STORE: Final[dict[str, Read | str]] = {
    "check": check,
    "verify": verify,
    **dict.fromkeys(("topics", "topic", "log", "groups", "metrics", "recovery_report"), views),
    "consumer": poll,
    **dict.fromkeys(("read_table", "snapshot"), at_snapshot),
    "start_and_end_offsets": ends_of_many,
    "serve_metrics": "serves the text of `metrics`: tests/monitoring",
    "serve_ui": "serves pages: tests/ui",
    **dict.fromkeys(
        ("add_partitions", "alter_topic", "create_topic", "delete_topic", "compact", "tick", "flush", "close"), "writes"
    ),
    **dict.fromkeys(("retain", "producer", "transaction", "archive"), "writes"),
    **dict.fromkeys(("group", "offsets"), "of groups: tests/groups and the machine of a store have them"),
    "transactions": "of transactions: tests/transactions, and the matrix of calls",
}
CONSUMER: Final[dict[str, Read | str]] = {
    **dict.fromkeys(("poll", "seek", "position", "assign"), poll),
    "poll_arrow": poll_arrow,
    **dict.fromkeys(("beginning_offsets", "end_offsets", "seek_to_beginning", "seek_to_end"), consumer_bounds),
    "offsets_for_times": offsets_for_times,
    **dict.fromkeys(("topics", "partitions_for_topic", "assignment", "paused", "subscription"), consumer_views),
    **dict.fromkeys(
        ("commit", "commit_async", "committed", "group_metadata", "subscribe", "unsubscribe"), "of groups, as for a store"
    ),
    **dict.fromkeys(("pause", "resume", "close"), "reads nothing of a log"),
    "wakeup": "of a poll that waits: tests/consumer has it",
}
READS: Final = tuple(dict.fromkeys(each for table in (LOG, STORE, CONSUMER) for each in table.values() if callable(each)))


# ---- together ------------------------------------------------------------------------------------------------------------------


@contextmanager
def hurried() -> Iterator[None]:
    """Threads are switched a thousand times as often as usual, and more."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(SWITCH_SECONDS)
    try:
        yield
    finally:
        sys.setswitchinterval(before)


def read_beside(directory: Path, seed: int, seconds: float, *, elsewhere: bool, only: str | None = None) -> dict[str, Any]:
    """Reads in some threads beside a writer.

    Args:
        directory: an empty one.
        seed: of what writer and readers choose.
        seconds: how long.
        elsewhere: the writer is in another process.
        only: a change, by its name in `CHANGES`: all threads call the same method for a while, each once at least, then the
            next one.

    Returns:
        How many calls and steps there were, and what was wrong, as texts.
    """
    path, board = directory / "store", Board.new(directory / "board")
    store = pylog.open(path, durability=pylog.Durability.OS)
    store.create_topic("t", **OPTIONS)
    writer = Writer(store, board, seed, only)
    with closing_store(writer):
        for _ in range(KEPT // 8):
            writer.append(10)
        if elsewhere:
            with Neighbour() as other:
                code = "import sys; sys.path.append(tests); from support.campaign.beside import write"
                given = {"path": str(path), "board": str(directory / "board"), "seed": seed, "only": only}
                other.run(code, tests=str(Path(__file__).parents[2]), **given)
                other.begin("write(path, board, seed, only)")
                done = _read_in_threads(writer, board, seed, seconds, only, elsewhere=True)
                done["steps"] = other.answer()
        else:
            done = _read_in_threads(writer, board, seed, seconds, only, elsewhere=False)
            done["steps"] = writer.steps
    board.close()
    return done


@contextmanager
def closing_store(writer: Writer) -> Iterator[None]:
    """Closes the store that a writer has at the end."""
    try:
        yield
    finally:
        writer.store.close()


class _Readers:
    """Threads that call methods: all the same one next to a change, for a while each, else each what it chooses."""

    def __init__(self, writer: Writer, board: Board, seconds: float, only: str | None, *, elsewhere: bool) -> None:
        self._writer = writer
        self._board = board
        self._seconds = seconds
        self._only = only
        self._passing = () if only == "close" and elsewhere else PASSING.get(only, ())
        self._together = threading.Barrier(THREADS)
        self.seen: dict[int, bytes] | None = None if only == "delete_topic" else {}
        self.wrong: list[str] = []
        self.calls = 0

    def work(self, seed: int) -> None:
        """What each thread does."""
        try:
            with suppress(threading.BrokenBarrierError):
                self._work(self._reader(seed))
        except Exception:  # noqa: BLE001 - it would end the thread without a word
            self.wrong.append(traceback.format_exc())
            self._together.abort()

    def _work(self, reader: Reader) -> None:
        for one in self._turns(reader):
            self.calls += 1
            self._call(one, reader)
            if self.wrong:
                self._together.abort()
                break
        reader.consumer.close()

    def _reader(self, seed: int) -> Reader:
        while True:
            since = self._board.truncations
            try:
                return Reader(self._writer.store, self._board, self.seen, seed, since)
            except self._passing:
                assert self._board.has_changed(since)
                time.sleep(0.001)

    def _turns(self, reader: Reader) -> Iterator[Read]:
        deadline = time.monotonic() + self._seconds
        while self._only is None and time.monotonic() < deadline:
            yield reader.rng.choice(READS)
        for one in READS if self._only else ():
            self._together.wait(PATIENCE)
            end, changes = time.monotonic() + self._seconds / len(READS), self._board.changes
            yield one
            while time.monotonic() < (end if self._board.changes > changes else end + LONGEST_TURN_SECONDS):
                yield one

    def _call(self, one: Read, reader: Reader) -> None:
        try:
            reader.call(one)
        except Exception as error:  # noqa: BLE001 - whatever it is, it is a finding
            if isinstance(error, self._passing) and self._board.has_changed(reader.since):
                reader.use_next(lambda: self._writer.store)
            else:
                self.wrong.append(f"{one.__name__}: {traceback.format_exc()}")


def _read_in_threads(
    writer: Writer, board: Board, seed: int, seconds: float, only: str | None, *, elsewhere: bool
) -> dict[str, Any]:
    readers = _Readers(writer, board, seconds, only, elsewhere=elsewhere)
    _warm_up(writer.store, board, seed)
    threads = [threading.Thread(target=readers.work, args=(seed * THREADS + number,)) for number in range(THREADS)]
    with hurried():
        for thread in threads:
            thread.start()
        while any(thread.is_alive() for thread in threads):
            if not elsewhere:
                writer.step()
            time.sleep(0.0005)
    board.end_writing()
    return {"calls": readers.calls, "violations": readers.wrong}


def _warm_up(store: pylog.Store, board: Board, seed: int) -> None:
    """Calls each method once, so that the kernels are compiled before the time counts."""
    reader = Reader(store, board, {}, seed, board.truncations)
    for one in READS:
        with suppress(Exception):  # judged later: another process may be deleting the topic
            one(reader)
    reader.consumer.close()


def run(seed: int, seconds: float) -> dict[str, Any]:
    """Reads next to a writer in this process, and then next to one in another: of all changes, then of each. For long runs."""
    done: dict[str, Any] = {"seed": seed, "violations": []}
    for elsewhere, only in itertools.product((False, True), (None, *CHANGES)):
        with tempfile.TemporaryDirectory(prefix="pylog-beside-") as directory:
            share = seconds / 4 if only is None else seconds / 4 / len(CHANGES)
            found = read_beside(Path(directory), seed, share, elsewhere=elsewhere, only=only)
        done["violations"] += found["violations"]
        for name in ("calls", "steps"):
            done[name] = done.get(name, 0) + (found[name] or 0)
    return done
