"""What is appended is read back: any records in any batching, codec, segment size and index interval, from anywhere."""

from __future__ import annotations

import itertools
import random
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, note, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

import pylog
from pylog import Durability, limits
from pylog.clock import ManualClock
from pylog.record.builder import HEADERS_TYPE
from pylog.record.format import CODEC_NAMES
from pylog.store import manager_of
from support.reference import records as reference

NOW = 1_700_000_000_000
TOPIC = "events"
DERIVED = (".index", ".timeindex", ".snapshot")

EXAMPLES = settings(max_examples=25, suppress_health_check=[HealthCheck.too_slow])

# ---- records and how they are appended ---------------------------------------------------------------------------------------

Header = tuple[str, bytes | None]


@dataclass(frozen=True)
class Given:
    """A record to be appended."""

    value: bytes | None
    key: bytes | None = None
    headers: tuple[Header, ...] = ()
    timestamp: int | None = None


fields = st.none() | st.binary(max_size=40)
stamps = st.none() | st.sampled_from([-1, 0, 1, NOW, NOW + 5, NOW + 10**9]) | st.integers(0, 2000)
headers = st.just(()) | st.lists(st.tuples(st.text(max_size=3), st.none() | st.binary(max_size=3)), max_size=2).map(tuple)
records = st.builds(Given, fields, fields, headers, stamps)
groups = st.lists(records, max_size=8)
VARIANTS = ("append", "many", "arrow", "chunks", "reopen")
steps = st.lists(st.tuples(st.sampled_from(VARIANTS), groups), max_size=6)
configurations = st.fixed_dictionaries(
    {
        "segment_bytes": st.sampled_from([300, 301, 500, 2000, 2**20]),  # 300: the largest record that is drawn, and no more
        "index_interval_bytes": st.sampled_from([0, 1, 100, 4096]),
        "segment_index_bytes": st.sampled_from([12, 36, 2**20]),
        "compression_type": st.sampled_from(CODEC_NAMES),
        "message_timestamp_type": st.sampled_from(["CreateTime", "LogAppendTime"]),
        "message_timestamp_after_max_ms": st.just(2**63 - 1),
        "segment_ms": st.sampled_from([1, 1000, 10**12]),
    }
)


def table_of(given: Sequence[Given]) -> pa.Table:
    columns = {
        "key": pa.array([record.key for record in given], pa.binary()),
        "value": pa.array([record.value for record in given], pa.large_binary()),
        "timestamp": pa.array([record.timestamp for record in given], pa.int64()),
        "headers": pa.array([[{"key": k, "value": v} for k, v in record.headers] for record in given], HEADERS_TYPE),
    }
    return pa.table(columns)


def append(log: pylog.Log, how: str, given: Sequence[Given]) -> range:
    """Appends records, one way or the other; the offsets that they got."""
    first = log.end_offset
    if how == "append":
        offsets = [log.append(record.value, record.key, record.headers, record.timestamp) for record in given]
        assert offsets == list(range(first, first + len(given)))
        return range(first, first + len(given))
    if how == "many":
        return log.append_many([(record.key, record.value, record.headers, record.timestamp) for record in given])
    table = table_of(given)
    if how == "chunks":
        middle = len(given) // 2
        table = pa.concat_tables([table.slice(0, middle), table.slice(middle)])
    return log.append_arrow(table)


@dataclass
class Model:
    """What a log holds, as a list."""

    records: list[pylog.Record] = field(default_factory=list)

    def add(self, given: Sequence[Given], now: int, *, log_append_time: bool) -> range:
        first = len(self.records)
        for offset, record in enumerate(given, first):
            stamp = now if log_append_time or record.timestamp is None else record.timestamp
            self.records.append(pylog.Record(TOPIC, 0, offset, stamp, record.key, record.value, record.headers))
        return range(first, len(self.records))

    def at_or_after(self, timestamp: int, bases: Sequence[int]) -> tuple[int, int] | None:
        """Kafka's rule: the first segment whose largest timestamp allows it, and in it the first record (5.8.1, 5.8.2).

        A segment without any timestamp is one that has no time index entry: pylog looks behind it.
        """
        for first, end in itertools.pairwise([*bases, len(self.records)]):
            inside = self.records[first:end]
            if max((record.timestamp for record in inside), default=-1) >= timestamp:
                return next((record.offset, record.timestamp) for record in inside if record.timestamp >= timestamp)
        return None


# ---- comparing ---------------------------------------------------------------------------------------------------------------


def scanned(frames: Iterator[pa.RecordBatch]) -> list[tuple[Any, ...]]:
    rows = []
    for frame in frames:
        columns = [frame.column(name) for name in ("offset", "timestamp", "key", "value", "headers")]
        lists = [columns[0].to_pylist(), columns[1].cast(pa.int64()).to_pylist(), *(column.to_pylist() for column in columns[2:])]
        rows += list(zip(*lists, strict=True))
    return rows


def as_row(record: pylog.Record) -> tuple[Any, ...]:
    pairs = [{"key": name, "value": value} for name, value in record.headers]
    return record.offset, record.timestamp, record.key, record.value, pairs


COLUMNS = ("offset", "timestamp", "key", "value", "headers")


def check_reads(log: pylog.Log, model: Model) -> None:
    """The same from every start, whole and in parts."""
    records = model.records
    assert (log.start_offset, log.end_offset, log.stable_offset) == (0, len(records), len(records))
    expected = [as_row(record) for record in records]
    for start in range(len(records) + 1):
        assert list(log.records(start)) == records[start:]
        assert scanned(log.scan(start, columns=COLUMNS, max_rows=3)) == expected[start:]
        end = (start * 7 + 3) % (len(records) + 1)
        assert list(log.records(start, end)) == records[start:end]
        if start < len(records):
            assert log.read(start) == records[start]


def check_times(log: pylog.Log, model: Model) -> None:
    bases = [segment.base_offset for segment in log.segments]
    edges = {record.timestamp for record in model.records} | {0, 1, NOW}
    for timestamp in sorted({edge + step for edge in edges for step in (-1, 0, 1) if edge + step >= 0} | {2**62}):
        found = log.offset_for_timestamp(timestamp)
        assert (None if found is None else (found.offset, found.timestamp)) == model.at_or_after(timestamp, bases), timestamp
        assert found is None or found.leader_epoch == 0


def batches_in(directory: Path) -> list[tuple[int, int]]:
    """(base offset, size) of every batch, read by the reference."""
    found = []
    for path in sorted(directory.glob("*.log")):
        data = path.read_bytes()
        columns, position, _ = reference.scan_batches(data, 0, len(data), verify=True, capacity=10**6)
        assert position == len(data)
        assert all(column.crc_state == 1 for column in columns)
        found += [(column.base_offset, column.size) for column in columns]
    return found


def check_plans(log: pylog.Log, directory: Path) -> None:
    batches = batches_in(directory)
    bases, total = {base for base, _ in batches}, sum(size for _, size in batches)
    end = log.end_offset
    assert log.size_between(0, end) == total
    for start, stop in [(0, end), (end // 3, end), (0, end // 2), (end // 2, end // 2)]:
        assert 0 <= log.size_between(start, stop) <= total
        for max_bytes in (1, 100, 400, 10**9):
            cuts = log.split_offsets(start, stop, max_bytes)
            assert cuts == sorted(set(cuts))
            assert all(start < cut < stop and cut in bases for cut in cuts), (cuts, bases)
            assert max_bytes < 10**9 or cuts == []
            edges = [start, *cuts, stop]
            covered = [record.offset for first, last in itertools.pairwise(edges) for record in log.records(first, last)]
            assert covered == list(range(start, stop))


@contextmanager
def directory() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="pylog-test-") as name:
        yield Path(name) / "data"


def opened(path: Path, mode: str = "rw", clock: ManualClock | None = None) -> pylog.Store:
    return pylog.open(path, mode, durability=Durability.OS, clock=clock or ManualClock(NOW))


def filled(path: Path, configuration: dict[str, Any], todo: Sequence[tuple[str, Sequence[Given]]]) -> Model:
    """A closed store whose log holds what the model holds."""
    model, clock = Model(), ManualClock(NOW)
    store = opened(path, clock=clock)
    store.create_topic(TOPIC, **configuration)
    for how, group in todo:
        if how == "reopen":
            store.close()
            store = opened(path, clock=clock)
            continue
        expected = model.add(group, clock.now_ms(), log_append_time=configuration["message_timestamp_type"] == "LogAppendTime")
        assert append(store.log(TOPIC), how, group) == expected
        clock.advance(3)
    check_reads(store.log(TOPIC), model)
    check_times(store.log(TOPIC), model)
    store.close()
    return model


@pytest.mark.slow
@EXAMPLES
@given(configurations, steps)
def test_any_records_in_any_batching_read_back_from_anywhere(configuration: dict[str, Any], todo: list[Any]) -> None:
    with directory() as path:
        model = filled(path, configuration, todo)
        for mode in ("r", "rw"):
            with opened(path, mode) as store:
                log = store.log(TOPIC)
                assert log.recovery_report == ()
                check_reads(log, model)
                check_times(log, model)
                check_plans(log, path / f"{TOPIC}-0")
                sizes = [segment.size for segment in log.segments]
                assert max(sizes, default=0) <= configuration["segment_bytes"]


# ---- derived files -------------------------------------------------------------------------------------------------------------


def test_each_record_of_many_chunks_has_its_own_headers() -> None:
    count = 2 * limits.RECORD_CHUNK_ROWS + 700
    given = [Given(b"v", b"%d" % i, tuple((f"h{j}", b"%d" % i if j % 2 else None) for j in range(i % 4))) for i in range(count)]
    with directory() as path, opened(path) as store:
        store.create_topic(TOPIC)
        log = store.log(TOPIC)
        for first in range(0, count, 500):
            append(log, "many", given[first : first + 500])
        expected = [(each.key, each.headers) for each in given]
        assert [(record.key, record.headers) for record in log.records()] == expected
        assert [(record.key, record.headers) for record in log.records(777, count - 3)] == expected[777:-3]
        with store.consumer(TOPIC, auto_offset_reset="earliest", max_poll_records=700, consumer_timeout_ms=0) as consumer:
            polled = [record for records in consumer.poll().values() for record in records]
            assert [(record.key, record.headers) for record in [*polled, *consumer]] == expected


def garble(path: Path, how: str, seed: int) -> None:
    """Does something to a derived file that a crash, a bad disk or a person could do.

    But for one thing: a time index that lost whole entries at its end cannot be told from a true one, by nobody.
    """
    data, chance = path.read_bytes(), random.Random(seed)
    if how == "remove":
        path.unlink()
    elif how == "truncate":
        size = chance.randrange(len(data) + 1)
        path.write_bytes(data[: size + 1 if path.suffix == ".timeindex" and size and size % 12 == 0 else size])
    elif how == "random":
        path.write_bytes(chance.randbytes(chance.choice([len(data), len(data) + 5, 12, 24, 64])))
    elif how == "zeros":
        path.write_bytes(data + bytes(chance.choice([1, 8, 12, 96, 1000])))
    elif how == "empty":
        path.write_bytes(b"")
    elif data:
        at = chance.randrange(len(data))
        path.write_bytes(data[:at] + bytes([data[at] ^ 1 << chance.randrange(8)]) + data[at + 1 :])


GARBLES = ("remove", "truncate", "random", "zeros", "empty", "flip")


@pytest.mark.slow
@pytest.mark.damaged("it was damaged on purpose")
@EXAMPLES
@given(
    configurations,
    steps,
    st.sampled_from(GARBLES),
    st.sampled_from([*DERIVED, "all"]),
    st.integers(0, 2**20),
    st.sampled_from(["r", "rw"]),
)
def test_derived_files_may_be_lost_or_garbled(
    configuration: dict[str, Any], todo: list[Any], how: str, kind: str, seed: int, mode: str
) -> None:
    with directory() as path:
        model = filled(path, configuration, todo)
        for number, derived in enumerate(sorted((path / f"{TOPIC}-0").iterdir())):
            if derived.suffix in DERIVED and kind in (derived.suffix, "all"):
                garble(derived, how, seed + number)
        with opened(path, mode) as store:
            check_reads(store.log(TOPIC), model)
            check_times(store.log(TOPIC), model)
            if mode == "rw":
                more = [Given(b"behind it all")]
                expected = model.add(more, NOW, log_append_time=configuration["message_timestamp_type"] == "LogAppendTime")
                assert append(store.log(TOPIC), "many", more) == expected
        with opened(path, "r") as store:
            check_reads(store.log(TOPIC), model)
            check_times(store.log(TOPIC), model)


# ---- one log through its life ------------------------------------------------------------------------------------------------


class LogMachine(RuleBasedStateMachine):
    """A log and a list: appended to, closed and opened, stopped without closing, its derived files lost, its tail torn."""

    @initialize(configuration=configurations)
    def make(self, configuration: dict[str, Any]) -> None:
        self.root = Path(tempfile.mkdtemp(prefix="pylog-test-"))
        self.path, self.clock, self.model = self.root / "data", ManualClock(NOW), Model()
        self.appended = configuration["message_timestamp_type"] == "LogAppendTime"
        self.store = opened(self.path, clock=self.clock)
        self.store.create_topic(TOPIC, **configuration)
        self.partition = self.path / f"{TOPIC}-0"

    @property
    def log(self) -> pylog.Log:
        return self.store.log(TOPIC)

    @rule(how=st.sampled_from(VARIANTS[:4]), given=groups)
    def append(self, how: str, given: list[Given]) -> None:
        expected = self.model.add(given, self.clock.now_ms(), log_append_time=self.appended)
        assert append(self.log, how, given) == expected

    @rule(codec=st.sampled_from(CODEC_NAMES), given=groups)
    def append_with_another_codec(self, codec: str, given: list[Given]) -> None:
        expected = self.model.add(given, self.clock.now_ms(), log_append_time=self.appended)
        assert self.log.append_arrow(table_of(given), compression=codec) == expected

    @rule(ms=st.sampled_from([1, 2000, 10**10]))
    def let_time_pass(self, ms: int) -> None:
        self.clock.advance(ms)

    @rule()
    def close_and_open(self) -> None:
        self.store.close()
        self.store = opened(self.path, clock=self.clock)
        assert self.kinds_found() == []

    @rule()
    def flush(self) -> None:
        self.log.flush()
        assert self.log.durable_offset == self.log.end_offset

    @rule()
    def read_beside_the_writer(self) -> None:
        with opened(self.path, "r") as reader:
            log = reader.log(TOPIC)
            assert list(log.records()) == self.model.records
            check_times(log, self.model)

    @rule(how=st.sampled_from(GARBLES), kind=st.sampled_from([*DERIVED, "all"]), seed=st.integers(0, 2**20))
    def lose_derived_files(self, how: str, kind: str, seed: int) -> None:
        self.store.close()
        for number, derived in enumerate(sorted(self.partition.iterdir())):
            if derived.suffix in DERIVED and kind in (derived.suffix, "all"):
                garble(derived, how, seed + number)
        self.store = opened(self.path, clock=self.clock)

    def kinds_found(self) -> list[str]:
        """What was found when the log was opened, except derived files that were created again."""
        return [finding.kind for finding in self.log.recovery_report if finding.kind != "rebuilt"]

    def stop_without_closing(self) -> None:
        """What is left when the process is killed: everything written, nothing concluded."""
        assert manager_of(self.store).locks is not None
        manager_of(self.store).locks.close()
        self.store = None  # type: ignore[assignment]

    @rule()
    def die_and_come_back(self) -> None:
        self.stop_without_closing()
        self.store = opened(self.path, clock=self.clock)
        assert self.kinds_found() == []

    @precondition(lambda self: len(self.model.records) > 0)
    @rule(torn=st.binary(min_size=1, max_size=100), given=st.none() | records, cut=st.integers(1, 10**4), closed=st.booleans())
    def die_while_writing(self, torn: bytes, given: Given | None, cut: int, closed: bool) -> None:
        if closed:  # the stop came just after the first write of a new process
            self.store.close()
            (self.path / ".kafka_cleanshutdown").unlink(missing_ok=True)
            self.store = None  # type: ignore[assignment]
        else:
            self.stop_without_closing()
        if given is not None:  # the beginning of the batch that was under way
            pairs = tuple((name.encode(), value) for name, value in given.headers)
            made = reference.Batch([reference.Record(0, 0, given.key, given.value, pairs)], len(self.model.records), 0)
            whole = made.encoded()
            torn = whole[: 1 + cut % (len(whole) - 1)]
        with max(self.partition.glob("*.log")).open("ab") as file:
            file.write(torn)
        self.store = opened(self.path, clock=self.clock)
        assert self.kinds_found() == (["torn"] if any(torn) else [])  # zeros are nobody's
        assert [finding.size for finding in self.log.recovery_report if finding.kind == "torn"] == [len(torn)] * any(torn)
        self.append("many", [Given(b"after the tear")])

    @invariant()
    def the_log_is_the_list(self) -> None:
        if hasattr(self, "store"):
            assert self.log.end_offset == len(self.model.records)
            assert list(self.log.records()) == self.model.records
            start = len(self.model.records) // 2
            assert scanned(self.log.scan(start, columns=COLUMNS)) == [as_row(record) for record in self.model.records[start:]]
            check_times(self.log, self.model)

    def teardown(self) -> None:
        if hasattr(self, "store"):
            note(f"{sorted(path.name for path in self.partition.iterdir())}")
            if self.store is not None:
                check_reads(self.log, self.model)
                self.store.close()
            shutil.rmtree(self.root)


LogMachine.TestCase.settings = settings(max_examples=16, stateful_step_count=20, suppress_health_check=[HealthCheck.too_slow])


@pytest.mark.slow
@pytest.mark.damaged("it was damaged on purpose")
class TestOneLogThroughItsLife(LogMachine.TestCase):
    """The machine above, as pytest finds it."""
