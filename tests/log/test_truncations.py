"""Readers beside truncations and compactions: only a reader whose records were truncated is told so."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import chain
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import pylog
from pylog import Durability, Store
from pylog.log.durable_point import Truncations, parse_truncations
from pylog.testing import MemoryFileSystem
from support.engines import engine_of
from support.faults.faulty_fs import Faults, FaultyFileSystem

KEYS = 4  # records of a segment
COUNT = 24


def _filled(store: Store) -> pylog.Log:
    """A log of segments in which each key comes again in the last one, so that a compaction empties the others."""
    config = {"cleanup_policy": "compact", "segment_bytes": 400, "min_cleanable_dirty_ratio": 0.0, "index_interval_bytes": 0}
    store.create_topic("t", exist_ok=True, config=config)
    log = store.log("t")
    for number in range(COUNT):
        log.append(b"%d" % number + bytes(20), key=b"%d" % (number % KEYS), timestamp=1)
    return log


def _offsets(frames: Iterator[Any]) -> Iterator[int]:
    return chain.from_iterable(frame["offset"].to_pylist() for frame in frames)


def _polled(store: Store) -> Iterator[int]:
    with store.consumer(max_poll_records=1, auto_offset_reset="none") as consumer:
        consumer.assign([pylog.TopicPartition("t", 0)])
        consumer.seek(pylog.TopicPartition("t", 0), 0)
        while records := consumer.poll(0):
            yield from (record.offset for record in chain.from_iterable(records.values()))


HELD: dict[str, Callable[[Store], Iterator[int]]] = {
    "scan": lambda store: _offsets(store.log("t").scan(0, COUNT, max_rows=1)),
    "records": lambda store: (record.offset for record in store.log("t").records(0, COUNT)),
    "read_committed": lambda store: _offsets(store.log("t").scan(0, COUNT, max_rows=1, isolation_level="read_committed")),
    "follow": lambda store: _offsets(store.log("t").follow(0, max_rows=1, timeout_ms=0)),
    "poll": _polled,
}


@pytest.mark.pair("scan and follow", "compaction", "truncation")
@pytest.mark.pair("compaction", "truncation")
@pytest.mark.parametrize("held", HELD)
@pytest.mark.parametrize("mode", ["rw", "r"])
def test_a_reader_below_a_truncation_goes_on_although_a_compaction_has_deleted_its_last_batch(held: str, mode: Any) -> None:
    fs = MemoryFileSystem()
    with pylog.open("/s", fs=fs, durability=Durability.OS) as writer:
        log = _filled(writer)
        with pylog.open("/s", fs=fs, mode=mode) as reading:
            reader = HELD[held](reading)
            assert [next(reader) for _ in range(5)] == [0, 1, 2, 3, 4]
            writer.compact("t")
            for _ in range(4):
                log.append(b"more", key=b"more", timestamp=1)
            log.truncate(COUNT + 2)
            writer.compact("t")
            rest = list(reader)
    assert rest == sorted(rest)
    assert rest[-4:] >= [*range(COUNT - 4, COUNT)]


@pytest.mark.pair("truncation", "scan and follow", "crash")
@pytest.mark.parametrize("held", sorted({*HELD} - {"records"}))  # it has read the whole log after its first record
def test_a_reader_is_told_of_a_truncation_that_failed_before_its_end(held: str, tmp_path: Path) -> None:
    fs = FaultyFileSystem()
    with pylog.open(tmp_path, fs=fs, durability=Durability.OS) as writer, pylog.open(tmp_path, mode="r") as reading:
        log = _filled(writer)
        reader = HELD[held](reading)
        assert [next(reader) for _ in range(14)] == [*range(14)]
        fs.faults = Faults({"rename": {*range(8, 40)}})
        with pytest.raises(pylog.StorageFailedError):
            log.truncate(2)
        assert 2 < log.end_offset <= 12
        fs.faults = Faults()
        while log.end_offset < COUNT:
            log.append(b"another", key=b"0", timestamp=1)
        with pytest.raises(pylog.OffsetOutOfRangeError, match=r"truncated|was changed"):
            list(reader)


def test_the_header_keeps_the_truncations_of_another_process_and_after_reopening() -> None:
    fs = MemoryFileSystem()
    for end in (20, 15, 18, 17):
        with pylog.open("/s", fs=fs) as store:
            store.create_topic("t", exist_ok=True)
            log = store.log("t")
            log.append_many([b"x"] * (30 - log.end_offset))
            with pylog.open("/s", fs=fs, mode="r") as reading:
                before = engine_of(reading.log("t")).snapshot()
                log.truncate(end)
                after = engine_of(reading.log("t")).snapshot()
                assert after.truncated_to(before.truncation_count) == end
    assert after.truncations == Truncations(((2, 15), (4, 17)))


CUTS = st.lists(st.integers(0, 50), max_size=40)


@given(CUTS, st.data())
def test_the_lowest_of_any_truncations_is_never_too_high_and_exact_for_the_last_ones(
    ends: list[int], data: st.DataObject
) -> None:
    cuts = Truncations()
    for count, end in enumerate(ends, 1):
        cuts = parse_truncations(cuts.with_cut(count, end).encoded())
    since = data.draw(st.integers(0, len(ends)))
    lowest = min(ends[since:], default=0)
    found = cuts.lowest(since, len(ends))
    assert found <= lowest
    assert found == lowest or len(ends) > 9


@given(CUTS, st.integers(1, 5), CUTS)
def test_truncations_that_were_not_noted_count_as_the_lowest(ends: list[int], missed: int, later: list[int]) -> None:
    """An older pylog counts its truncations, and does not note their offsets."""
    cuts = Truncations()
    for count, end in enumerate(ends, 1):
        cuts = cuts.with_cut(count, end)
    assert cuts.lowest(len(ends), len(ends) + missed) == 0
    for count, end in enumerate(later, len(ends) + missed + 1):
        cuts = cuts.with_cut(count, end)
    assert cuts.lowest(len(ends), len(ends) + missed + len(later)) == 0
    assert not later or cuts.lowest(len(ends) + missed, len(ends) + missed + len(later)) <= min(later)


@given(st.binary(max_size=200))
def test_a_damaged_block_of_truncations_counts_as_none(data: bytes) -> None:
    assert parse_truncations(data) == Truncations()
