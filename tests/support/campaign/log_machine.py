"""One log and its model, in every order of calls, closings and crashes (reliability 8.1: stateful models)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, precondition, rule

import pylog
from pylog import ProducerBatch, TopicConfig
from pylog.testing import strategies
from pylog.testing.models import POWER_LOSS, Found, LogModel, Promise
from pylog.testing.strategies import NewRecord
from support.campaign.crashing import (
    GAP,
    LEVELS,
    Crashing,
    Stored,
    as_arrow,
    as_found,
    as_stored,
    bury,
    found_in,
    kinds,
    levels,
    parts,
    seeds,
    wrong_in,
)
from support.campaign.readers import READERS, Kept
from support.trust.features import covers

FIRST_PRODUCER = 1 << 48
OPTIONS: dict[str, st.SearchStrategy[Any]] = {  # that change while the log is open
    "segment_bytes": st.sampled_from([512, 700, 2_000, 1 << 20]),
    "max_message_bytes": st.sampled_from([600, 1 << 20]),
    "message_timestamp_type": st.sampled_from(["CreateTime", "LogAppendTime"]),
    "compression_type": st.sampled_from(["producer", "none", "gzip", "lz4"]),
}


@dataclass(frozen=True)
class Sent:
    """A batch of a producer that is in the log: its number, and its offsets."""

    sequence: int
    records: tuple[NewRecord, ...]
    offsets: range

    def again(self, producer: int) -> dict[str, Any]:
        return {"items": list(self.records), "producer": ProducerBatch(producer, 0, self.sequence)}


class LogMachine(Crashing[list[Promise]]):
    """What is asked for is a list of promises: any of them may be the one that a crash in the middle leaves."""

    @initialize(config=strategies.topic_configs())
    def begin(self, config: dict[str, Any]) -> None:
        self.model = LogModel()
        self.calls: list[int] = []  # the first offset of each append that is in the log
        self.producers: dict[int, Sent | None] = {}
        self.before: tuple[list[int], dict[int, Sent | None]] = [], {}  # the same before the last step
        self.kept: list[Kept] = []
        self.history: dict[int, set[Stored]] = {}
        self.altered: list[dict[str, Any]] = []  # options that the last step asked for
        self.has_crashed = False
        self.is_ready = True  # not so after a crash until the first write: opening leaves the disk as it is
        self.config = {**config, "retention_ms": -1}
        self.store = self.opened()
        self.store.create_topic("t", **self.config)
        self.log = self.store.log("t")

    def teardown(self) -> None:
        if hasattr(self, "store"):
            bury(self.store)

    # ---- the model -----------------------------------------------------------------------------------------------------------

    @property
    def start(self) -> int:
        return self.model.promise.first_start

    @property
    def expected(self) -> Found:
        return Found(self.start, self.model.promise.records[self.start :])

    def somewhere(self, part: float) -> int:
        """An offset from the log's start to its end."""
        return self.start + int(part * (self.model.end - self.start))

    def stored(self, batch: list[NewRecord]) -> list[Stored]:
        stamped = self.config.get("message_timestamp_type") == "LogAppendTime"
        return [as_stored(record, self.clock.now_ms() if stamped else None) for record in batch]

    def forget_behind(self, end: int) -> None:
        """Notes that the log ends there: what producers sent behind it is not there any more."""
        self.calls = [first for first in self.calls if first < end]
        for producer, sent in list(self.producers.items()):
            if sent is not None and sent.offsets.stop > end:
                del self.producers[producer]

    @contextmanager
    def doing(self, asked: list[Promise]) -> Iterator[None]:
        self.before = list(self.calls), dict(self.producers)
        self.altered.clear()
        with super().doing(asked):
            yield

    def forget_last_step(self) -> None:
        """It may have happened or not: no batch is known that it was about."""
        calls, producers = self.before
        self.calls = sorted({*calls, *self.calls})
        self.producers = {key: sent for key, sent in producers.items() if self.producers.get(key) == sent is not None}

    # ---- appends -------------------------------------------------------------------------------------------------------------

    def appending(self, batch: list[NewRecord], level: str, call: Any) -> range:
        first = self.model.end
        stored = self.stored(batch)
        for offset, record in enumerate(stored, first):
            self.history.setdefault(offset, set()).add(record)
        self.model.append(stored)
        with self.doing([self.model.promise]):
            offsets = call()
        self.model.acknowledge(durable=level == "sync")
        self.is_ready = True
        self.calls.append(first)
        assert offsets == range(first, self.model.end)
        assert level != "sync" or self.log.durable_offset == self.model.end
        return range(first, self.model.end)

    @rule(record=strategies.records(), level=levels)
    def append(self, record: NewRecord, level: str) -> None:
        key, value, headers, timestamp = record

        def call() -> range:
            offset = self.log.append(value, key, headers, timestamp, durability=LEVELS[level])
            return range(offset, offset + 1)

        self.appending([record], level, call)

    @rule(batch=strategies.batches(), level=levels, compression=st.sampled_from([None, "none", "gzip", "lz4", "zstd", "snappy"]))
    def append_many(self, batch: list[NewRecord], level: str, compression: str | None) -> None:
        self.appending(batch, level, lambda: self.log.append_many(batch, compression=compression, durability=LEVELS[level]))

    @rule(batch=strategies.batches(), level=levels)
    def append_arrow(self, batch: list[NewRecord], level: str) -> None:
        self.appending(batch, level, lambda: self.log.append_arrow(as_arrow(batch), durability=LEVELS[level]))

    @rule(number=st.integers(0, 2), given=strategies.batches(max_records=3, max_size=20), level=levels, again=st.none() | levels)
    def produce(self, number: int, given: list[NewRecord], level: str, again: str | None) -> None:
        """The next batch of a producer; one whose batches are gone begins again as another one."""
        known = sorted(self.producers)
        producer = known[number] if number < len(known) else self.new_producer()
        before = self.producers[producer]
        sequence = 0 if before is None else before.sequence + len(before.records)
        numbered = ProducerBatch(producer, 0, sequence)
        batch = [(*record[:3], self.clock.now_ms()) for record in given]
        offsets = self.appending(
            batch, level, lambda: self.log.append_batch(batch, durability=LEVELS[level], producer=numbered).offsets
        )
        sent = self.producers[producer] = Sent(sequence, tuple(batch), offsets)
        if again is not None:
            self.resend(producer, sent, again)

    def new_producer(self) -> int:
        self.made = getattr(self, "made", 0) + 1
        producer = FIRST_PRODUCER + self.made
        self.producers[producer] = None
        return producer

    @rule(part=parts, level=levels)
    @covers(*(("idempotence", name) for name in ("roll", "truncation", "delete_records", "LogAppendTime")))
    def send_again(self, part: float, level: str) -> None:
        """What is in the log already is acknowledged with the offsets that it has, and never twice there."""
        known = [(producer, sent) for producer, sent in sorted(self.producers.items()) if sent is not None]
        if known:
            self.resend(*known[int(part * (len(known) - 1))], level)

    def resend(self, producer: int, sent: Sent, level: str) -> None:
        with self.doing([self.model.promise]):
            done = self.log.append_batch(**sent.again(producer), durability=LEVELS[level])
        assert (done.offsets, done.duplicate) == (sent.offsets, True)
        if level == "sync":
            self.model.flushed(sent.offsets.stop)
            assert self.log.durable_offset >= sent.offsets.stop

    @rule(ahead=st.integers(1, 5))
    def send_too_early(self, ahead: int) -> None:
        """A number behind the next one: something is missing, and nothing is written."""
        for producer, sent in self.producers.items():
            if sent is not None:
                given = ProducerBatch(producer, 0, sent.sequence + len(sent.records) + ahead)
                with pytest.raises(pylog.OutOfOrderSequenceError):
                    self.log.append_batch([b"too early"], producer=given)

    # ---- trimming ------------------------------------------------------------------------------------------------------------

    @rule()
    def flush(self) -> None:
        with self.doing([self.model.promise]):
            self.log.flush()
        self.model.flushed(self.model.end)
        assert self.log.durable_offset == self.model.end

    @rule(part=parts)
    def delete_records(self, part: float) -> None:
        before = self.somewhere(part)
        self.model.delete(before)
        self.disturb()
        with self.doing([self.model.promise]):
            assert self.log.delete_records(before) == before
        self.model.deleted(before)
        for producer, sent in list(self.producers.items()):  # one whose records are gone may be forgotten, or not
            if sent is not None and sent.offsets.start < before:
                del self.producers[producer]

    @rule(part=parts)
    def truncate(self, part: float) -> None:
        """Within a batch the whole batch goes, and leaves a gap: which batches an append made, only the log knows."""
        end, all_of_it = self.somewhere(part), self.model.promise.records
        self.model.truncate(end)
        self.disturb()
        first = max([call for call in self.calls if call <= end], default=end)
        asked = self.model.promise
        cuts = [self.cut(asked, gap, end) for gap in range(max(first, self.start), end)] if end < self.model.end else []
        with self.doing([asked, *cuts]):
            self.log.truncate(end)
        if end == len(all_of_it):
            self.model = LogModel(replace(asked, survives_death=end, survives_power_loss=asked.survives_power_loss))
            return
        self.model.truncated(end)
        found = found_in(self.log)
        assert [] in [promise.problems(found, POWER_LOSS) for promise in [self.model.promise, *cuts]]
        self.model = LogModel(replace(self.model.promise, records=all_of_it[: found.start] + found.records))
        self.forget_behind(end - sum(record is GAP for record in found.records[-5:]))

    def cut(self, asked: Promise, gap: int, end: int) -> Promise:
        """The promise of a log that ends at `end`, with a gap from `gap` on."""
        return replace(asked, records=asked.records[:gap] + (GAP,) * (end - gap), survives_death=end, survives_power_loss=end)

    @rule(changed=st.fixed_dictionaries({}, optional=OPTIONS).filter(bool), elsewhere=st.booleans())
    @covers(("option change", "idempotence"), ("option change", "truncation"), ("option change", "delete_records"))
    def alter(self, changed: dict[str, Any], elsewhere: bool) -> None:
        """From this store, or from that of another process: the log that is open here goes by the options from then on."""
        before = dict(self.config)
        with self.doing([self.model.promise]):
            if elsewhere:
                with pylog.open(self.store.path, fs=self.fs.process(), clock=self.clock) as other:
                    other.alter_topic("t", **changed)
            else:
                self.store.alter_topic("t", **changed)
        self.altered.append(before)
        self.config.update(changed)

    def adopt_options(self) -> None:
        """After a crash in the middle of a change there are the options of before, or those of after."""
        found = self.store.topic("t").config.changed()
        known = [self.config, *self.altered]
        told = [TopicConfig(**config).changed() for config in known]
        assert found in told, f"{found}, and not one of {told}"
        self.config = dict(known[told.index(found)])

    @rule(ms=st.sampled_from([1, 5000]))
    @covers(("timestamps", "time search"), ("timestamps", "crash"), ("timestamps", "idempotence"))
    def set_clock_back(self, ms: int) -> None:
        """As an operator does, or the network's time: records may be older than those before them."""
        self.clock.set_back(ms)

    @rule(ms=st.sampled_from([1, 1000, 2_000_000_000]))
    def wait(self, ms: int) -> None:
        """Segments become old, and the next append rolls; producers that were idle for a day may be forgotten."""
        self.clock.advance(ms)
        if ms > TopicConfig().producer_id_expiration_ms:
            self.producers.clear()

    @rule()
    def tick(self) -> None:
        """Nothing is too old or too much here: only what lies below the log's start goes."""
        bases = [segment.base_offset for segment in self.log.segments]
        assert self.store.tick() == sum(end <= self.start for end in bases[1:])

    # ---- readers that are kept open ------------------------------------------------------------------------------------------

    def disturb(self) -> None:
        for kept in self.kept:
            kept.is_whole = False

    @precondition(lambda self: len(self.kept) < 3)
    @rule(how=st.sampled_from(sorted(READERS)))
    def open_reader(self, how: str) -> None:
        there = dict(self.readable())
        kept = Kept(how, 0, (0, 0), self.log, there, self.history)
        if kept.read(1):
            self.kept.append(kept)

    @precondition(lambda self: self.kept)
    @rule(number=st.integers(0, 2), frames=st.integers(1, 3))
    @covers(
        *(("scan and follow", name) for name in ("roll", "truncation", "delete_records", "option change", "timestamps")),
        ("scan and follow", "LogAppendTime"),
        ("scan and follow", "idempotence"),
    )
    def read_on(self, number: int, frames: int) -> None:
        kept = self.kept[number % len(self.kept)]
        if not kept.read(frames):
            self.kept.remove(kept)

    # ---- reads ---------------------------------------------------------------------------------------------------------------

    @invariant()
    def holds_what_it_should(self) -> None:
        assert found_in(self.log) == self.expected
        assert self.log.stable_offset == self.log.end_offset
        self.model.flushed(self.log.durable_offset)  # the log's own word is held against it

    @rule(first=parts, last=parts, columns=st.permutations(["offset", "key", "value"]))
    def scan(self, first: float, last: float, columns: list[str]) -> None:
        start, end = sorted((self.somewhere(first), self.somewhere(last)))
        frames = list(self.log.scan(start, end, columns=columns, isolation_level="read_committed", max_rows=3))
        rows = [row for frame in frames for row in frame.to_pylist()]
        wanted = [(offset, record) for offset, record in self.readable() if start <= offset < end]
        assert rows == [{"offset": offset, "key": record[0], "value": record[1]} for offset, record in wanted]

    @rule(part=parts)
    def read(self, part: float) -> None:
        offset = self.somewhere(part)
        behind = [(each, record) for each, record in self.readable() if each >= offset]
        if behind:
            found = self.log.read(offset)
            assert (found.offset, as_found(found)) == behind[0]

    @rule(part=parts, shift=st.sampled_from([-1, 0, 1]))
    @covers(*(("time search", name) for name in ("timestamps", "roll", "truncation", "delete_records", "LogAppendTime")))
    def find_time(self, part: float, shift: int) -> None:
        """The first record that is as late as a time: one of a record in the log, or just beside it."""
        records = self.readable()
        if records:
            timestamp = max(0, records[int(part * (len(records) - 1))][1][3] + shift)
            wanted = self.first_of(timestamp)
            found = self.log.offset_for_timestamp(timestamp)
            assert (None if found is None else (found.offset, found.timestamp)) == wanted

    def first_of(self, timestamp: int) -> tuple[int, int] | None:
        """The first record of those in the log, whatever was deleted, truncated or compacted before it."""
        late = ((offset, record[3]) for offset, record in self.readable() if record[3] >= timestamp)
        return next(late, None)

    def readable(self) -> list[tuple[int, Any]]:
        start, records = self.expected
        return [(offset, record) for offset, record in enumerate(records, start) if record is not GAP]

    @rule()
    def look_from_outside(self) -> None:
        """Another process that reads, beside this one."""
        other = self.fs.process()
        with pylog.open(self.store.path, "r", fs=other, clock=self.clock) as store:
            assert found_in(store.log("t")) == self.expected

    @precondition(lambda self: self.is_ready)
    @rule()
    def check(self) -> None:
        assert wrong_in(self.store, crashed=self.has_crashed) == []
        assert self.store.verify(records=True).ok or self.has_crashed

    # ---- ends and beginnings -------------------------------------------------------------------------------------------------

    @rule(look=st.booleans())
    @covers(("scan and follow", "close"), ("idempotence", "close"), ("timestamps", "close"), ("time search", "close"))
    def reopen(self, look: bool) -> None:
        with self.doing([self.model.promise]):
            self.store.close()
        for kept in self.kept:
            kept.refuses(is_deleted=False)
        self.kept.clear()
        if self.is_ready:  # who has only read leaves what a dead process wrote as it is
            self.model.flushed(self.model.end)
        if look:
            with self.opened("r") as store:
                assert found_in(store.log("t")) == self.expected
                with pytest.raises(pylog.ReadOnlyError):
                    store.log("t").append(b"never")
        self.store = self.opened()
        self.log = self.store.log("t")

    @rule(kind=kinds, part=parts, seed=seeds, look=st.booleans())
    @covers(("crash", "idempotence"), ("crash", "truncation"), ("crash", "delete_records"), ("crash", "time search"))
    def crash(self, kind: str, part: float, seed: int, look: bool) -> None:
        """The end at some moment of the last step; then what is left is judged, first by a reader perhaps."""
        dead = self.store
        self.kept.clear()
        asked = self.crashed(kind, part, seed)
        bury(dead)
        if asked is not None:
            self.forget_last_step()
        in_rest, asked = asked is None, asked or [self.model.promise]
        self.has_crashed, self.is_ready = True, False
        seen = self.seen_by_reader(kind, asked) if look else None
        self.store = self.opened()
        self.log = self.store.log("t")
        self.adopt_options()
        found = found_in(self.log)
        kept = self.judged(found, kind, asked)
        assert seen is None or not in_rest or found.records[: len(seen.records)] == seen.records
        assert {finding.kind for finding in self.log.recovery_report} <= {"torn", "rebuilt"}
        self.model = LogModel(kept.adopted(found, kind))
        self.forget_behind(found.end)

    def seen_by_reader(self, kind: str, asked: list[Promise]) -> Found:
        with self.opened("r") as store:
            found = found_in(store.log("t"))
        self.judged(found, kind, asked)
        return found

    def judged(self, found: Found, kind: str, asked: list[Promise]) -> Promise:
        """The promise that was kept."""
        problems = [promise.problems(found, kind) for promise in asked]
        assert [] in problems, problems
        return asked[problems.index([])]
