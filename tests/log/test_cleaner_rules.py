"""Compaction against others: what Kafka's cleaner left of the same logs, and a model of ten lines, transactions included."""

from __future__ import annotations

import struct
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import pylog
from pylog.clock import ManualClock
from pylog.fs import FileSystem, OsFileSystem
from pylog.log.checking.report import HARMLESS
from pylog.log.producer_state import Producer
from pylog.record.compression import compress
from pylog.record.format import (
    ATTRIBUTES,
    BASE_OFFSET,
    BASE_SEQUENCE,
    CONTROL_ABORT,
    CONTROL_BIT,
    CONTROL_COMMIT,
    COUNT,
    DELETE_HORIZON_BIT,
    LAST_OFFSET,
    MAGIC,
    MAX_TIMESTAMP,
    PRODUCER_EPOCH,
    PRODUCER_ID,
    TRANSACTIONAL_BIT,
)
from pylog.segment.names import DURABLE_POINT, LOG, file_name
from pylog.testing import MemoryFileSystem
from pylog.topics.catalog import CatalogTopic, write_topic
from support.engines import segments_of, writer_of
from support.golden.data import GoldenPartition, case, cases
from support.golden.rows import COLUMNS, rows
from support.reference.compacting import Entry, Model
from support.reference.records import Batch, Record

NOW = 1_700_000_000_000
RETENTION_MS = 1000
OPTIONS = ("cleanup.policy", "segment.bytes", "internal.segment.bytes", "delete.retention.ms", "index.interval.bytes")

# ---- Kafka's cleaner -----------------------------------------------------------------------------------------------------------


def compacted_cases(*names: str) -> list[GoldenPartition]:
    return [one for each in cases() if each.name.startswith("compact-") and each.name.endswith(names) for one in each.partitions]


def opened(golden: GoldenPartition, path: Path) -> pylog.Store:
    """A copy of a golden log in a store, with the options that its topic had."""
    golden.copy(path)
    given = golden.meta["topicOverrides"]
    config = {name.removeprefix("internal.").replace(".", "_"): given[name] for name in OPTIONS if name in given}
    store = pylog.open(path)
    topic = store.topic(golden.topic)
    options = {name: as_option(value) for name, value in config.items()}
    options["producer_id_expiration_ms"] = 2**63 - 1  # the broker knew its producers when it compacted
    known = CatalogTopic(topic.id or "A" * 22, 1, options)
    write_topic(OsFileSystem(), store.path, golden.topic, known)
    return store


def as_option(value: str) -> Any:
    return int(value) if value.isdigit() else value


def headers(log: pylog.Log, of: GoldenPartition) -> list[tuple[int, ...]]:
    """The batch headers from the log's start on, but for what Kafka counts otherwise: sizes and base timestamps.

    Of compact,delete without empty ones: which old producers a broker still knows, when it keeps them, is a matter of minutes.
    """
    start, horizons, empty = of.meta["logStartOffset"], of.version != "2.8.2", "delete" not in of.case  # 2.8.2 had no horizons
    fields = (MAGIC, BASE_OFFSET, LAST_OFFSET, COUNT, MAX_TIMESTAMP, PRODUCER_ID, PRODUCER_EPOCH, BASE_SEQUENCE)
    found = []
    for segment in segments_of(log):
        for region in segment.regions(0):
            for at in np.flatnonzero((region.table[LAST_OFFSET] >= start) & ((region.table[COUNT] != 0) | empty)).tolist():
                attributes = int(region.table[ATTRIBUTES, at]) & ~(0 if horizons else DELETE_HORIZON_BIT)
                found.append((max(start, segment.base_offset), attributes, *(int(region.table[row, at]) for row in fields)))
    return found


@pytest.mark.sampled(3)
@pytest.mark.parametrize("before", compacted_cases("/before"), ids=lambda partition: partition.id)
def test_remaining_records_are_those_that_kafkas_cleaner_left(before: GoldenPartition, tmp_path: Path) -> None:
    """Record for record, for both isolation levels; batch for batch: segments, offsets, counts, times, producers, horizons."""
    name = before.case.replace("/before", "/after1")
    (after,) = (one for one in case(before.version, name).partitions if one.tp == before.tp)
    start = after.meta["logStartOffset"]  # of compact,delete: retention took the segments before
    with opened(before, tmp_path / "s") as store, pylog.open(after.log_directory, mode="r") as kafkas:
        log, other = store.log(before.topic, before.partition), kafkas.log(after.topic, after.partition)
        store.compact(before.topic, before.partition)
        assert list(rows(log.scan(start, columns=COLUMNS))) == after.expected()
        assert list(rows(log.scan(start, columns=COLUMNS, isolation_level="read_committed"))) == after.expected_committed()
        assert headers(log, after) == headers(other, after)
        theirs = {segment.base_offset: segment.transactions().encoded() for segment in segments_of(other)}
        mine = {segment.base_offset: segment.transactions().encoded() for segment in segments_of(log)}
        assert {base: mine.get(base, b"") for base in theirs if base >= start} == {
            base: theirs[base] for base in theirs if base >= start
        }
        assert store.verify(records=True).ok


AFTER = [one for one in compacted_cases("/after1", "/after2", "/after3") if one.version == "4.3.0" or "legacy" in one.case]


@pytest.mark.sampled(3)
@pytest.mark.parametrize("golden", AFTER, ids=lambda partition: partition.id)
def test_a_log_that_kafka_has_compacted_is_compacted_further_and_keeps_the_last_record_of_each_key(
    golden: GoldenPartition, tmp_path: Path
) -> None:
    """Tombstones whose time is over go, and with them nothing else."""
    with opened(golden, tmp_path / "s") as store:
        log = store.log(golden.topic, golden.partition)
        before = list(rows(log.scan(columns=COLUMNS, isolation_level="read_committed")))
        store.compact(golden.topic, golden.partition)
        after = list(rows(log.scan(columns=COLUMNS, isolation_level="read_committed")))
        end = log.segments[-1].base_offset
        last = {row["key"]: row["offset"] for row in before if row["offset"] < end}
        wanted = [row for row in before if row["offset"] >= end or last[row["key"]] == row["offset"]]
        assert [row for row in wanted if row["value"] is not None] == [row for row in after if row["value"] is not None]
        assert all(row in wanted for row in after)


# ---- a model -------------------------------------------------------------------------------------------------------------------

letters = st.sampled_from([b"a", b"b", b"c", b"d", None])
contents = st.sampled_from([b"1", b"22", None])
PLAIN, IDEMPOTENT, FIRST, SECOND = -1, 7, 8, 9  # producers, the last two with transactions


class Written:
    """A log made batch by batch: its files, and what a reader sees."""

    def __init__(self) -> None:
        self.segments: list[list[Batch]] = [[]]
        self.records: list[Entry] = []
        self.aborted: set[int] = set()
        self._open: dict[int, list[int]] = {}
        self._sequences: dict[int, int] = {}
        self.end = 0

    def put(self, producer: int, pairs: list[tuple[bytes | None, bytes | None]], codec: int) -> None:
        """Appends a batch; of a transactional producer to its transaction."""
        records = [Record(delta, delta, key, value) for delta, (key, value) in enumerate(pairs)]
        transactional = TRANSACTIONAL_BIT if producer in (FIRST, SECOND) else 0
        sequence = self._sequences.get(producer, 0) if producer != PLAIN else -1
        batch = Batch(
            records, self.end, 0, transactional, NOW + self.end, None, producer, 0 if producer != PLAIN else -1, sequence
        )
        self._sequences[producer] = sequence + len(pairs)
        self.records += [(self.end + delta, key, value) for delta, (key, value) in enumerate(pairs)]
        if transactional:
            self._open.setdefault(producer, []).extend(range(self.end, self.end + len(pairs)))
        if codec:
            squeezed = compress(codec, batch.encoded()[61:]).tobytes()
            largest = batch.base_timestamp + len(pairs) - 1
            batch = replace(batch, attributes=transactional | codec, payload=squeezed, count=len(pairs), max_timestamp=largest)
            batch = replace(batch, last_offset_delta=len(pairs) - 1)
        self._append(batch, len(pairs))

    def end_transaction(self, producer: int, kind: int) -> None:
        """Appends a marker, of a transaction or of nothing."""
        record = Record(0, 0, struct.pack(">hh", 0, kind), struct.pack(">hi", 0, 1))
        attributes = TRANSACTIONAL_BIT | CONTROL_BIT
        self._append(Batch([record], self.end, 0, attributes, NOW + self.end, None, producer, 0), 1)
        offsets = self._open.pop(producer, [])
        self.aborted |= set(offsets) if kind == CONTROL_ABORT else set()

    def _append(self, batch: Batch, count: int) -> None:
        self.segments[-1].append(batch)
        self.end += count

    def roll(self) -> None:
        """Begins a segment."""
        if self.segments[-1]:
            self.segments.append([])

    def finish(self) -> None:
        """Ends what is open, and begins the active segment."""
        for producer in list(self._open):
            self.end_transaction(producer, CONTROL_COMMIT)
        self.roll()
        self.put(PLAIN, [(b"last", b"x")], 0)

    def save(self, fs: FileSystem, directory: str) -> None:
        """Writes the files."""
        for found in self.segments:
            file = fs.create(f"{directory}/{file_name(found[0].base_offset, LOG)}")
            file.write(memoryview(b"".join(batch.encoded() for batch in found)), 0)
            file.close()


@st.composite
def logs(draw: Any) -> Written:
    made = Written()
    for _ in range(draw(st.integers(1, 14))):
        what = draw(st.sampled_from(["put", "put", "put", "end", "roll"]))
        if what == "put":
            pairs = draw(st.lists(st.tuples(letters, contents), min_size=1, max_size=4))
            made.put(draw(st.sampled_from([PLAIN, PLAIN, IDEMPOTENT, FIRST, SECOND])), pairs, draw(st.sampled_from([0, 0, 0, 4])))
        elif what == "end":
            made.end_transaction(draw(st.sampled_from([FIRST, SECOND])), draw(st.sampled_from([CONTROL_ABORT, CONTROL_COMMIT])))
        else:
            made.roll()
    made.finish()
    return made


def store_of(made: Written, clock: ManualClock, buffer_size: int) -> tuple[MemoryFileSystem, pylog.Store]:
    fs = MemoryFileSystem(clock=clock)
    config = {"cleanup_policy": "compact", "delete_retention_ms": RETENTION_MS, "index_interval_bytes": 0}
    with pylog.open("/s", fs=fs, clock=clock) as store:
        store.create_topic("t", producer_id_expiration_ms=10**15, **config)
    made.save(fs, "/s/t-0")
    return fs, pylog.open("/s", fs=fs, clock=clock, cleaner_dedupe_buffer_size=buffer_size)


def entries(log: pylog.Log, isolation: str) -> list[Entry]:
    return [(record.offset, record.key, record.value) for record in log.records(isolation_level=isolation)]


def last_of(store: pylog.Store) -> dict[int, tuple[int, ...]]:
    """What the log knows of each producer, as who opens it without a snapshot finds it."""
    producers: list[Producer] = writer_of(store.log("t")).loaded.producers.producers  # type: ignore[union-attr]
    told = {one.producer_id: (one.epoch, one.last_sequence, one.last_offset, one.transaction_first_offset) for one in producers}
    return {key: entry for key, entry in told.items() if entry[2] >= 0}  # a marker that was emptied tells of nobody, as in Kafka


@pytest.mark.slow
@settings(max_examples=80)
@given(logs(), st.sampled_from([64, 1 << 20]), st.lists(st.sampled_from([0, RETENTION_MS]), min_size=1, max_size=3))
def test_any_log_is_compacted_as_ten_lines_say(made: Written, buffer_size: int, waits: list[int]) -> None:
    """The last record of each key, in order, at its offset; tombstones for as long as they must; nothing that was aborted."""
    clock = ManualClock(NOW)
    fs, store = store_of(made, clock, buffer_size)
    end = made.segments[-1][0].base_offset
    producers = last_of(store)
    model = Model(made.records, made.aborted, RETENTION_MS)
    for wait in waits:
        clock.advance(wait)
        store.compact("t")
        model.clean(end, clock.now_ms())
        assert entries(store.log("t"), "read_uncommitted") == model.records
        assert entries(store.log("t"), "read_committed") == model.records
        assert [str(finding) for finding in store.check().findings if finding.kind not in HARMLESS] == []
    assert store.log("t").end_offset == made.end
    store.close()
    for entry in fs.list("/s/t-0"):
        if entry.name.endswith((".snapshot", DURABLE_POINT, ".index")):
            fs.remove(f"/s/t-0/{entry.name}")
    fs.remove("/s/.kafka_cleanshutdown")
    with pylog.open("/s", fs=fs, clock=clock) as again:
        assert entries(again.log("t"), "read_committed") == model.records
        assert last_of(again) == producers
        assert again.log("t").end_offset == made.end


@pytest.mark.slow
@settings(max_examples=20)
@given(logs())
def test_compaction_leaves_all_after_an_open_transaction_unchanged(made: Written) -> None:
    made.roll()
    made.put(FIRST, [(b"a", b"open")], 0)
    made.roll()
    made.put(PLAIN, [(b"a", b"later")], 0)
    made.roll()
    made.put(PLAIN, [(b"a", b"active")], 0)
    _, store = store_of(made, ManualClock(NOW), 1 << 20)
    (done,) = store.compact("t")
    assert done.end == made.segments[-3][0].base_offset
    assert {b"open", b"later", b"active"} <= {value for _, _, value in entries(store.log("t"), "read_uncommitted")}
    store.close()
