"""A partition in which features meet, with a model in plain Python of the records that it must hold.

A `Scene` is made with some features (links, LogAppendTime, odd timestamps, a broker's directory, ...) and is changed by others (a
roll, truncation, retention, a crash, ...). Then it is read in every way, and each answer is compared with the model's records.
Readers that were opened before the changes are read to their end. They return records that the log held, or raise an error.
"""

from __future__ import annotations

import base64
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import pylog
from pylog import Durability, ProducerBatch, TopicPartition
from pylog.clock import ManualClock
from pylog.testing import MemoryFileSystem
from support.golden.data import GoldenPartition, case
from support.reference.records import Batch, Record
from support.trust.features import FEATURES

NOW = 1_700_100_000_000  # later than all records of the golden partitions that are used here
DAY = 86_400_000
RETENTION_MS, RETENTION_BYTES = 20_000, 900
TRANSACTIONAL, CONTROL = 0x10, 0x20
GROUP = "readers"

CHANGES = FEATURES[FEATURES.index("retention by time") : FEATURES.index("second process") + 1]
ON_DISK = {"links", "broker's directory", "aborted transactions", "Spark"}


class Row(NamedTuple):
    """A record as the model has it; `known_ms` is the time that it has where its timestamp is -1."""

    key: bytes
    value: bytes | None
    timestamp: int
    known_ms: int

    @property
    def time(self) -> int:
        return self.known_ms if self.timestamp < 0 else self.timestamp


class Sent(NamedTuple):
    """A batch of a producer."""

    producer: ProducerBatch
    items: list[Any]
    offsets: range


class Held(NamedTuple):
    """A reader that was opened before the changes, and what the log held then."""

    name: str
    rows: Iterator[tuple[int, bytes | None]]
    before: dict[int, Row]


class Scene:
    """One partition, its stores, and its model.

    Args:
        directory: for files, where a feature needs real ones.
        features: those that meet here; they decide how the partition is made and which options it has.
    """

    def __init__(self, directory: Path, features: set[str]) -> None:
        self.features = features
        self.clock = ManualClock(NOW)
        self.rows: dict[int, Row] = {}
        self.compacted: dict[int, Row] = {}  # what was there before a compaction
        self.aborted: set[int] = set()
        self.start = self.end = 0
        self.sent: list[Sent] = []
        self.producers = 0
        self.tag = b"v"
        self.topic, self.home = "t", directory / "0"
        self.fs = None if features & ON_DISK else MemoryFileSystem(clock=self.clock)
        self.config = self._options()
        self.others: list[pylog.Store] = []  # stores of processes that live on beside the one that acts
        self.held: list[Held] = []
        self._make()
        self.append(4)
        self._hold()

    # ---- how it is made ------------------------------------------------------------------------------------------------------

    def _options(self) -> dict[str, Any]:
        policies = ["compact"] * ("compaction" in self.features)
        policies += ["delete"] * (
            not policies or not self.features.isdisjoint({"retention by time", "retention by size", "delete_records"})
        )
        stamped = "LogAppendTime" in self.features
        return {
            "segment_bytes": 400,
            "min_cleanable_dirty_ratio": 1.0,  # a tick compacts nothing: what it deletes can be foreseen
            "cleanup_policy": ",".join(policies),
            "retention_ms": RETENTION_MS if "retention by time" in self.features else -1,
            "retention_bytes": RETENTION_BYTES if "retention by size" in self.features else -1,
            "message_timestamp_type": "LogAppendTime" if stamped else "CreateTime",
        }

    def _make(self) -> None:
        if "broker's directory" in self.features:
            self._take_a_brokers()
        elif "aborted transactions" in self.features:
            self._write_as_a_broker()
        if self.fs is None and self.rows:
            self.store = self.opened()
            self.store.alter_topic(self.topic, **self.config)
        else:
            self.store = self.opened()
            self.store.create_topic(self.topic, **self.config)
        if "links" in self.features:
            self.store.close()
            self._link()
            self.store = self.opened()

    def _take_a_brokers(self) -> None:
        name = "compact-txn/before" if "aborted transactions" in self.features else "compact-basic/before"
        golden: GoldenPartition = case("4.3.0", name).partitions[0]
        golden.copy(self.path)
        self.topic, self.end = golden.topic, golden.entry["logEndOffset"]
        for line in golden.expected():
            value = None if line["value"] is None else base64.b64decode(line["value"])
            row = Row(base64.b64decode(line["key"]), value, line["timestamp"], line["timestamp"])
            self.rows[line["offset"]] = row
        self.aborted = set(self.rows) - {line["offset"] for line in golden.expected_committed()}

    def _write_as_a_broker(self) -> None:
        """Two transactions, one aborted, and plain records around them."""
        parts = [self._plain(2), *self._transaction(7, abort=True), *self._transaction(8, abort=False), self._plain(2)]
        (self.path / "t-0").mkdir(parents=True)
        file = self.path / "t-0" / f"{0:020d}.log"
        file.write_bytes(b"".join(parts))
        os.utime(file, (NOW / 1000, NOW / 1000))
        (self.path / "t-0" / "leader-epoch-checkpoint").write_text("0\n1\n0 0\n")

    def _plain(self, count: int, attributes: int = 0, **fields: Any) -> bytes:
        first = self.end
        for offset in range(first, first + count):
            self.rows[offset] = Row(b"k%d" % (offset % 5), b"v%d" % offset, NOW, NOW)
        records = [Record(each, 0, self.rows[first + each].key, self.rows[first + each].value) for each in range(count)]
        self.end += count
        numbers = {"base_offset": first, "base_timestamp": NOW, "leader_epoch": 0, "attributes": attributes}
        return Batch(records, **numbers, **fields).encoded()

    def _transaction(self, producer: int, *, abort: bool) -> Iterator[bytes]:
        first = self.end
        yield self._plain(3, TRANSACTIONAL, producer_id=producer, producer_epoch=0, base_sequence=0)
        if abort:
            self.aborted.update(range(first, self.end))
        kind = b"\0\0\0\0" if abort else b"\0\0\0\1"
        marker = Record(0, 0, kind, b"\0\0\0\0\0\0")
        numbers = {"base_offset": self.end, "base_timestamp": NOW, "leader_epoch": 0, "attributes": TRANSACTIONAL | CONTROL}
        yield Batch([marker], **numbers, producer_id=producer, producer_epoch=0).encoded()
        self.end += 1

    def _link(self) -> None:
        """Moves the partition to another place, as to another disk, and leaves a link."""
        name = f"{self.topic}-0"
        elsewhere = self.home / "elsewhere"
        elsewhere.mkdir()
        shutil.move(self.path / name, elsewhere / name)
        (self.path / name).symlink_to(Path("..", "elsewhere", name))

    @property
    def path(self) -> Path:
        return self.home / "store"

    def opened(self, mode: str = "rw", fs: MemoryFileSystem | None = None) -> pylog.Store:
        if self.fs is None:
            self.home.mkdir(parents=True, exist_ok=True)
            return pylog.open(self.path, mode, clock=self.clock, durability=Durability.OS)
        return pylog.open("/data", mode, clock=self.clock, fs=fs or self.fs)

    @property
    def log(self) -> pylog.Log:
        return self.store.log(self.topic)

    # ---- what is done to it --------------------------------------------------------------------------------------------------

    def append(self, batches: int = 1) -> None:
        """Batches of four records each; a segment holds two or three."""
        for _ in range(batches):
            self.clock.advance(1000)
            items = [(b"k%d" % (each % 5), self.tag + b"%d" % each, (), self._stamp(each)) for each in self._next_offsets()]
            offsets = self._append(items)
            assert offsets == self._next_offsets()
            now = self.clock.now_ms()
            stamped = self.config["message_timestamp_type"] == "LogAppendTime"
            for offset, (key, value, _, timestamp) in zip(offsets, items, strict=True):
                self.rows[offset] = Row(key, value, now if stamped else timestamp, now)
            self.end = offsets.stop

    def _next_offsets(self) -> range:
        return range(self.end, self.end + 4)

    def _append(self, items: list[Any]) -> range:
        if "idempotence" not in self.features:
            return self.log.append_many(items)
        last = self.sent[-1] if self.sent and self.sent[-1].offsets.start >= self.start else None
        if last is None:
            self.producers += 1
            given = ProducerBatch(1000 + self.producers, 0, 0)
        else:
            given = last.producer._replace(sequence=last.producer.sequence + len(last.items))
        done = self.log.append_batch(items, producer=given)
        self.sent.append(Sent(given, items, done.offsets))
        return done.offsets

    def _stamp(self, offset: int) -> int:
        now = self.clock.now_ms()
        return (-1, now - 10 * DAY, now, now + 30_000)[offset % 4] if "timestamps" in self.features else now

    def change(self, name: str) -> None:
        """Does one of `CHANGES`, and to the model what follows from it."""
        DOING[name](self)

    def tick(self) -> None:
        start = self._start_after_retention()
        self.store.tick()
        self._forget_below(start)

    def _start_after_retention(self) -> int:
        """Deletes first what is below the start, then what is too much, then what is too old."""
        log = self.log
        bases = [segment.base_offset for segment in log.segments]
        sizes = [segment.size for segment in log.segments[:-1]] + [log.size_between(bases[-1], self.end)]
        left = list(zip(bases, [*bases[1:], self.end], sizes, strict=True))
        start = self.start
        if "delete" not in self.config["cleanup_policy"]:
            return start
        while len(left) > 1 and left[0][1] <= start:
            left.pop(0)
        excess = sum(size for _, _, size in left) - self.config["retention_bytes"] if self.config["retention_bytes"] >= 0 else 0
        while left and 0 < left[0][2] <= excess:
            excess -= left[0][2]
            start = max(start, left.pop(0)[1])
        while left and 0 <= self.config["retention_ms"] < self._age(*left[0][:2]):
            start = max(start, left.pop(0)[1])
        return start

    def _age(self, base: int, end: int) -> int:
        """The age of a segment's youngest record; where compaction has left none, that of the youngest that was there."""
        times = [row.time for offset, row in self.rows.items() if base <= offset < end]
        times = times or [row.time for offset, row in self.compacted.items() if base <= offset < end]
        return self.clock.now_ms() - max(times) if times else -1

    def _forget_below(self, start: int) -> None:
        found = self.log.start_offset
        assert found == start, f"the log starts at {found}, and at {start} by the model"
        self.start = start

    def retain_by_time(self) -> None:
        """What was appended half the time ago stays, what is older goes."""
        self.clock.advance(RETENTION_MS * 3 // 4)
        self.append(3)
        self.clock.advance(RETENTION_MS // 2)
        self.tick()

    def retain_by_size(self) -> None:
        self.append(4)
        self.tick()

    def compact(self) -> None:
        """Of each key only the last record stays, in all segments but the active one."""
        if "compact" not in self.config["cleanup_policy"]:
            self.alter(cleanup_policy="compact")
        self.roll()
        active = self.log.segments[-1].base_offset
        self.store.compact(self.topic)
        last: dict[bytes, int] = {}
        for offset, row in self.rows.items():
            if self.start <= offset < active and offset not in self.aborted:
                last[row.key] = max(offset, last.get(row.key, -1))
        kept = set(last.values()) | {offset for offset in self.rows if not self.start <= offset < active}
        self.compacted.update(self.rows)
        self.rows = {offset: row for offset, row in self.rows.items() if offset in kept}

    def truncate(self) -> None:
        """Cuts the last batch and a half of the second last, and appends others at the same offsets."""
        self.append(2)
        end = self.end - 8
        self.log.truncate(end)
        assert self.log.end_offset == end
        self.end = end
        self.rows = {offset: row for offset, row in self.rows.items() if offset < end}
        self.sent = [sent for sent in self.sent if sent.offsets.stop <= end]
        self.tag += b"'"
        self.append(1)

    def delete_records(self) -> None:
        before = min(max(self.start + 3, self.end - 10), self.end)
        assert self.log.delete_records(before) == before
        self._forget_below(before)

    def alter(self, **options: Any) -> None:
        self.store.alter_topic(self.topic, **options)
        self.config.update(options)

    def change_options(self) -> None:
        """Each option counts from this moment on: a bound for records, both retentions, the policy, the type of timestamps."""
        self.alter(max_message_bytes=300)
        with pytest.raises(pylog.RecordTooLargeError):
            self.log.append(b"x" * 400, b"k")
        changed = {"max_message_bytes": 2000, "segment_bytes": 600}
        if self.config["retention_ms"] >= 0:
            changed["retention_ms"] = 2 * self.config["retention_ms"]
        if self.config["retention_bytes"] >= 0:
            changed["retention_bytes"] = 2 * self.config["retention_bytes"]
        self.alter(**changed)
        if "LogAppendTime" in self.features:
            self.append()
            self.alter(message_timestamp_type="CreateTime")
        self.append()
        self.tick()

    def roll(self) -> None:
        before = self.log.segments[-1].base_offset
        while self.log.segments[-1].base_offset == before:
            self.append()

    def crash(self) -> None:
        """All processes die at once; in memory the power is lost too."""
        dead, self.others = [self.store, *self.others], []
        if self.fs is None:
            home = self.home.with_name(str(int(self.home.name) + 1))
            self._set_file_times()
            shutil.copytree(self.home, home, symlinks=True)  # what a process that is killed leaves
            self.home = home
        else:
            self.fs = self.fs.crash()
        self.held.clear()
        for store in dead:
            with suppress(pylog.PylogError):
                store.close()
        self.store = self.opened()

    def _set_file_times(self) -> None:
        """A file was last changed when its last record was appended, by the clock of this test."""
        bases = [segment.base_offset for segment in self.log.segments]
        for base, end in zip(bases, [*bases[1:], self.end], strict=True):
            known = [row.known_ms for offset, row in self.rows.items() if base <= offset < end]
            file = self.path / f"{self.topic}-0" / f"{base:020d}.log"
            if known and file.exists():
                os.utime(file, (max(known) / 1000, max(known) / 1000))

    def close(self) -> None:
        """What was open refuses from now on, and the next store goes on."""
        log, closed = self.log, self.store
        if self.fs is None:
            self._set_file_times()
        closed.close()
        for read in (
            lambda: log.read(self.start),
            lambda: list(log.scan()),
            lambda: log.offset_for_timestamp(0),
            lambda: log.append(b"x", b"k"),
        ):
            with pytest.raises(pylog.ClosedError):
                read()
        if not self.others:  # else the readers are another process's
            for held in self.held:
                with pytest.raises(pylog.ClosedError):
                    self.finish(held)
            self.held.clear()
        self.store = self.opened()

    def another_process(self) -> None:
        """From now on another process acts, while this one and its readers stay."""
        self.others.append(self.store)
        self.store = self.opened(fs=None if self.fs is None else self.fs.process())
        self.append(2)

    # ---- readers that were there before ------------------------------------------------------------------------------------

    def _hold(self) -> None:
        log = self.log
        self._begin_group()
        scan = (row for frame in log.scan(columns=["offset", "value"], max_rows=3) for row in _pairs(frame))
        records = ((record.offset, record.value) for record in log.records())
        follow = (row for frame in log.follow(self.start, columns=["offset", "value"], timeout_ms=0) for row in _pairs(frame))
        for name, rows in (("scan", scan), ("records", records), ("follow", follow)):
            held = Held(name, rows, dict(self.rows))
            offset, value = next(held.rows)
            assert value == self.rows[offset].value
            self.held.append(held)

    def _begin_group(self) -> None:
        with self._consumer() as consumer:
            found = _drained(consumer, 6)
            consumer.commit()
            self.committed = found[-1][0] + 1
        assert self.committed == sorted(self.rows)[len(found) - 1] + 1

    def _consumer(self) -> pylog.Consumer:
        return self.store.consumer(self.topic, group_id=GROUP, auto_offset_reset="earliest", enable_auto_commit=False)

    def finish_held(self) -> None:
        """Each goes on from where it was, or refuses with an error of pylog's."""
        for held in self.held:
            with suppress(pylog.PylogError):
                self.finish(held)

    def finish(self, held: Held) -> None:
        """Reads it to its end."""
        known = {offset: {row.value} for offset, row in held.before.items()}
        if held.name == "follow":
            for offset, row in self.rows.items():
                known.setdefault(offset, set()).add(row.value)
        last = -1
        for offset, value in held.rows:
            assert offset in known, f"{held.name} gave {offset}, which was not there"
            assert value in known[offset], f"{held.name} gave {value!r} at {offset}"
            assert offset > last or held.name == "follow", f"{held.name} went back"
            last = offset

    # ---- what it holds -------------------------------------------------------------------------------------------------------

    @property
    def expected(self) -> dict[int, Row]:
        return {offset: self.rows[offset] for offset in sorted(self.rows) if self.start <= offset < self.end}

    def verify(self) -> None:
        """Every way to read, in every process and after opening again, gives what the model has."""
        self.finish_held()
        for store in (self.store, *self.others):
            self.verify_store(store)
        with self.opened("r", None if self.fs is None else self.fs.process()) as reader:
            self.verify_store(reader)
        self.verify_group()
        self.verify_producers()
        for store in (*self.others, self.store):
            store.close()
        if self.fs is None:
            return
        with self.opened() as store:
            self.verify_store(store)

    def verify_store(self, store: pylog.Store) -> None:
        log, expected = store.log(self.topic), self.expected
        bounds = log.start_offset, log.end_offset
        assert bounds == (self.start, self.end), f"{bounds} instead of {(self.start, self.end)}"
        records = {each.offset: (each.key, each.value, each.timestamp) for each in log.records()}
        wanted = {offset: row[:3] for offset, row in expected.items()}
        assert records == wanted, f"{sorted(set(records.items()) ^ set(wanted.items()))}"
        scanned = [pair for frame in log.scan(columns=["offset", "value"], max_rows=5) for pair in _pairs(frame)]
        assert [offset for offset, _ in scanned] == list(expected)
        committed = {each.offset for each in log.records(isolation_level="read_committed")}
        assert committed == set(expected) - self.aborted
        for offset in range(self.start, self.end, 3):
            later = [each for each in expected if each >= offset]
            if later:
                assert log.read(offset).offset == later[0]
        self.verify_times(log)

    def verify_times(self, log: pylog.Log) -> None:
        """A time search gives the first record at or after a time."""
        stamped = [(offset, row.timestamp) for offset, row in self.expected.items() if row.timestamp >= 0]
        times = sorted({timestamp for _, timestamp in stamped})
        for asked in {each + shift for each in times[:: max(1, len(times) // 6)] for shift in (-1, 0, 1)} | {NOW + 10 * DAY}:
            wanted = next(((offset, timestamp) for offset, timestamp in stamped if timestamp >= asked), None)
            found = log.offset_for_timestamp(asked)
            if "aborted transactions" in self.features and found is not None and found.offset not in self.rows:
                continue  # the marker of a transaction has a time too
            assert (found and (found.offset, found.timestamp)) == wanted, f"the first at {asked}"

    def verify_group(self) -> None:
        """The group goes on from what it committed, or from the start if that is deleted."""
        inside = self.start <= self.committed <= self.end
        wanted = [(offset, row.value) for offset, row in self.expected.items() if offset >= (self.committed if inside else 0)]
        with self._consumer() as consumer:
            assert _drained(consumer) == wanted
            assert consumer.position(TopicPartition(self.topic, 0)) == self.end
            consumer.commit()
        assert self.store.group(GROUP).lag()[TopicPartition(self.topic, 0)] == 0

    def verify_producers(self) -> None:
        """What is in the log is not taken again, and the next batch is."""
        last = self.sent[-1] if self.sent else None
        if last is not None and last.offsets.start >= self.start:
            done = self.log.append_batch(last.items, producer=last.producer)
            assert (done.duplicate, done.offsets) == (True, last.offsets)
            assert self.log.end_offset == self.end
            gap = last.producer._replace(sequence=last.producer.sequence + len(last.items) + 5)
            with pytest.raises(pylog.OutOfOrderSequenceError):
                self.log.append_batch(last.items, producer=gap)


DOING: dict[str, Callable[[Scene], None]] = {
    "retention by time": Scene.retain_by_time,
    "retention by size": Scene.retain_by_size,
    "compaction": Scene.compact,
    "truncation": Scene.truncate,
    "delete_records": Scene.delete_records,
    "option change": Scene.change_options,
    "roll": Scene.roll,
    "crash": Scene.crash,
    "close": Scene.close,
    "second process": Scene.another_process,
}


def _pairs(frame: Any) -> list[tuple[int, bytes | None]]:
    return list(zip(frame["offset"].to_pylist(), frame["value"].to_pylist(), strict=True))


def _drained(consumer: pylog.Consumer, limit: int = 1 << 30) -> list[tuple[int, bytes | None]]:
    """What a consumer gets until nothing more comes."""
    found: list[tuple[int, bytes | None]] = []
    silent = 0
    while silent < 3 and len(found) < limit:
        polled = [record for records in consumer.poll(max_records=min(limit, 500)).values() for record in records]
        found += [(record.offset, record.value) for record in polled]
        silent = 0 if polled else silent + 1
    return found
