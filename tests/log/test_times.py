"""Records have a time: their timestamp, or that of their append. Nothing is deleted before it is that old, and a search by time
ends only when it has an answer or there is none.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import pylog
from pylog.clock import ManualClock
from pylog.record.decoder import RecordDecoder
from pylog.segment import age
from support import warm
from support.cli import call
from support.log import times
from support.log.times import ANY_TIME, HOUR, NOW, opened, values

clock = pytest.fixture(times.clock)
fs = pytest.fixture(times.fs)

DAY = 86_400_000


# ---- the age of records without a timestamp ------------------------------------------------------------------------------------


@pytest.mark.pair("retention by time", "timestamps", "roll")
@pytest.mark.parametrize("segment_bytes", [200, 1 << 20])
def test_a_record_without_a_timestamp_is_as_old_as_its_append(fs: Any, clock: ManualClock, segment_bytes: int) -> None:
    with opened(fs, clock) as store:
        store.create_topic("t", retention_ms=7 * DAY, segment_bytes=segment_bytes)
        log = store.log("t")
        for day in range(20):
            log.append(b"%d" % day, timestamp=-1)
            clock.advance(DAY - 1)
            store.tick()
            assert b"%d" % day in values(log)
            clock.advance(1)
        clock.advance(7 * DAY + 1)
        store.tick()
        assert values(log) == []


@pytest.mark.pair("timestamps", "retention by time")
@pytest.mark.parametrize(
    "append",
    [
        lambda log: (log.append(b"old", timestamp=NOW - 700 * DAY), log.append(b"new", timestamp=-1)),
        lambda log: (log.append(b"new", timestamp=-1), log.append(b"old", timestamp=NOW - 700 * DAY)),
        lambda log: log.append_many([(None, b"old", (), NOW - 700 * DAY), (None, b"new", (), -1), (None, b"old", (), 5)]),
        lambda log: log.append_many(
            [(None, b"old", (), NOW - 700 * DAY), (None, b"new", (), -1), (None, b"old", (), 5)], compression="zstd"
        ),
        lambda log: log.append_arrow(pa.table({"value": [b"old", b"new"], "timestamp": pa.array([5, -1], pa.int64())})),
    ],
    ids=["a later batch", "an earlier batch", "one batch", "one compressed batch", "arrow"],
)
def test_a_record_without_a_timestamp_keeps_its_segment_whatever_the_other_timestamps_are(
    fs: Any, clock: ManualClock, append: Callable[[pylog.Log], object]
) -> None:
    with opened(fs, clock) as store:
        store.create_topic("t", retention_ms=DAY)
        log = store.log("t")
        append(log)
        clock.advance(DAY)
        store.tick()
        assert b"new" in values(log)
    with opened(fs, clock) as store:
        store.tick()
        assert b"new" in values(store.log("t"))
        clock.advance(1)
        store.tick()
        assert values(store.log("t")) == []


@pytest.mark.pair("timestamps", "retention by time")
def test_where_all_records_have_timestamps_the_largest_one_decides(fs: Any, clock: ManualClock) -> None:
    """Kafka's rule: an import of old records is deleted at the next tick."""
    with opened(fs, clock) as store:
        store.create_topic("t", retention_ms=DAY)
        log = store.log("t")
        log.append_many([(None, b"a", (), NOW - DAY), (None, b"b", (), 5)])
        store.tick()
        assert values(log) == [b"a", b"b"]
        clock.advance(1)
        store.tick()
        assert values(log) == []


@pytest.mark.pair("retention by time", "close")
@pytest.mark.parametrize("durability", [pylog.Durability.OS, pylog.Durability.SYNC], ids=str)
def test_closing_a_store_makes_no_record_younger(fs: Any, clock: ManualClock, durability: pylog.Durability) -> None:
    with opened(fs, clock) as store:
        store.create_topic("t", retention_ms=7 * DAY)
        for _ in range(30):  # zeros are written ahead, and cut off by closing
            store.log("t").append(b"x", timestamp=-1, durability=durability)
        clock.advance(6 * DAY)
    with opened(fs, clock) as store:
        clock.advance(DAY)
        store.tick()
        assert len(values(store.log("t"))) == 30
        clock.advance(1)
        store.tick()
        assert values(store.log("t")) == []


@pytest.mark.pair("retention by time", "second process")
def test_records_of_another_store_are_not_older_than_their_append(fs: Any, clock: ManualClock) -> None:
    with opened(fs, clock) as store, opened(fs, clock) as other:
        store.create_topic("t", retention_ms=7 * DAY)
        log = store.log("t")
        log.append(b"old", timestamp=-1)
        for _ in range(4):
            clock.advance(6 * DAY)
            other.log("t").append(b"theirs", timestamp=-1)
            clock.advance(2 * DAY)
            store.tick()
            assert b"theirs" in values(log)
        clock.advance(5 * DAY + 1)
        store.tick()
        assert values(log) == []


@pytest.mark.slow
@pytest.mark.pair("retention by time", "second process")
def test_records_that_another_process_appended_to_a_real_file_system_stay(tmp_path: Path) -> None:
    program = "import pylog, sys; store = pylog.open(sys.argv[1]); store.log('t').append(b'theirs', timestamp=-1); store.close()"
    with pylog.open(tmp_path) as store:
        store.create_topic("t", retention_ms=60_000)
        log = store.log("t")
        log.append(b"mine", timestamp=5)
        os.utime(next((tmp_path / "t-0").glob("*.log")), (1000, 1000))
        warm.run(["-c", program, tmp_path], check=True)
        store.tick()
        assert b"theirs" in values(log)


@pytest.mark.parametrize("file_ms", [0, NOW + 900 * DAY])
def test_a_file_time_that_cannot_be_right_makes_nothing_old(fs: Any, clock: ManualClock, file_ms: int) -> None:
    with opened(fs, clock) as store:
        store.create_topic("t", retention_ms=DAY, segment_bytes=150)
        store.log("t").append(b"a" * 50, timestamp=-1)
        store.log("t").append(b"b" * 50, timestamp=-1)
    for name in ("00000000000000000000.log", "00000000000000000001.log"):
        fs.open(f"/d/t-0/{name}", write=True).set_mtime(file_ms)
    with opened(fs, clock) as store:
        store.tick()
        assert len(values(store.log("t"))) == 2
        clock.advance(DAY)
        store.tick()
        assert len(values(store.log("t"))) == 2
        clock.advance(1)
        store.tick()
        assert values(store.log("t")) == []


@pytest.mark.pair("timestamps", "retention by time")
def test_a_clock_that_is_set_back_and_forth_makes_no_append_old(fs: Any, clock: ManualClock) -> None:
    with opened(fs, clock) as store:
        store.create_topic("t", retention_ms=DAY)
        log = store.log("t")
        log.append(b"before", timestamp=-1)
        clock.advance(-300 * DAY)
        log.append(b"early", timestamp=-1)
        store.tick()
        clock.advance(300 * DAY)
        store.tick()
        assert values(log) == [b"before", b"early"]
        clock.advance(900 * DAY)
        log.append(b"late", timestamp=-1)
        clock.advance(-900 * DAY)
        store.tick()
        clock.advance(3 * DAY)
        log.append(b"now", timestamp=-1)
        store.tick()
        assert b"now" in values(log)
        clock.advance(DAY + 1)
        store.tick()
        assert values(log) == []


@pytest.mark.pair("retention by time", "timestamps", "second process")
@pytest.mark.parametrize("also_appends", [False, True])
def test_records_of_another_store_are_not_old_after_the_clock_was_set_back_and_forth(
    fs: Any, clock: ManualClock, also_appends: bool
) -> None:
    with opened(fs, clock) as store, opened(fs, clock) as other:
        store.create_topic("t", retention_ms=DAY)
        log = store.log("t")
        log.append(b"mine", timestamp=-1)
        other.log("t").append(b"theirs", timestamp=-1)
        clock.advance(23 * HOUR)
        other.log("t").append(b"late", timestamp=-1)
        clock.advance(-40 * DAY)
        assert b"late" in values(log)
        if also_appends:
            log.append(b"at a wrong time", timestamp=-1)
        clock.advance(40 * DAY + DAY)
        store.tick()
        assert b"late" in values(log)
        clock.advance(1)
        store.tick()
        assert values(log) == []


@pytest.mark.pair("retention by time", "timestamps", "second process")
@pytest.mark.parametrize("type_", ["CreateTime", "LogAppendTime"])
def test_records_from_before_the_clock_was_set_back_age_from_the_moment_the_store_noticed_it(
    fs: Any, clock: ManualClock, type_: str
) -> None:
    """Their timestamps are in the future. Kafka keeps them until that time comes."""
    with opened(fs, clock) as store, opened(fs, clock) as other:
        store.create_topic("t", retention_ms=DAY, message_timestamp_type=type_)
        store.log("t").append(b"before")
        clock.advance(-40 * DAY)
        other.log("t").append(b"after")
        clock.advance(DAY)
        for each in (store, other):
            each.tick()
            assert values(each.log("t")) == [b"before", b"after"]
        clock.advance(1)
        other.tick()
        assert values(other.log("t")) == values(store.log("t")) == []


@pytest.mark.pair("truncation", "timestamps", "retention by time")
@pytest.mark.parametrize("segment_bytes", [150, 1 << 20])
def test_truncation_makes_no_record_older_or_younger(fs: Any, clock: ManualClock, segment_bytes: int) -> None:
    with opened(fs, clock) as store:
        store.create_topic("t", retention_ms=7 * DAY, segment_bytes=segment_bytes)
        log = store.log("t")
        for number in range(4):
            log.append(b"%d" % number * 50, timestamp=-1)
        clock.advance(6 * DAY)
        log.truncate(2)
        clock.advance(DAY)
        store.tick()
        assert len(values(log)) == 2
        clock.advance(1)
        store.tick()
        assert values(log) == []


@pytest.mark.slow
@pytest.mark.pair("compaction", "timestamps", "retention by time")
@pytest.mark.parametrize("reopened", [False, True])
def test_compaction_keeps_the_time_of_the_appends(fs: Any, clock: ManualClock, reopened: bool) -> None:
    with opened(fs, clock) as store:
        store.create_topic("t", retention_ms=7 * DAY, segment_bytes=150, cleanup_policy="compact,delete")
        log = store.log("t")
        for number in range(6):
            clock.advance(HOUR)
            log.append(b"x" * 50, key=b"%d" % (number % 3), timestamp=-1)
        clock.advance(5 * DAY)
        store.compact("t")
        assert [record.offset for record in log.records()] == [2, 3, 4, 5]  # the active segment supersedes nothing
        if not reopened:
            _grows_old(store, clock)
    if reopened:
        with opened(fs, clock) as store:
            _grows_old(store, clock)


def _grows_old(store: pylog.Store, clock: ManualClock) -> None:
    """Record 2 was appended three hours before the last one; all of it five days ago."""
    clock.advance(2 * DAY - 3 * HOUR)
    store.tick()
    assert [record.offset for record in store.log("t").records()] == [2, 3, 4, 5]
    clock.advance(3 * HOUR + 1)
    store.tick()
    assert not list(store.log("t").records())


# ---- timestamps in the future --------------------------------------------------------------------------------------------------


@pytest.mark.pair("timestamps", "retention by time")
@pytest.mark.parametrize("future", [NOW + 9000 * DAY, NOW * 1_000_000, 2**63 - 1])
def test_a_timestamp_in_the_future_does_not_hold_retention_up(fs: Any, clock: ManualClock, future: int) -> None:
    with opened(fs, clock) as store:
        store.create_topic("t", retention_ms=DAY, segment_bytes=200, **ANY_TIME)
        log = store.log("t")
        log.append(b"future", timestamp=future)
        for day in range(5):
            log.append_many([b"%d" % day * 50] * 3)
            clock.advance(DAY)
            store.tick()
        assert b"future" not in values(log)
        assert len(values(log)) <= 6


@pytest.mark.pair("timestamps", "retention by time")
def test_a_timestamp_in_the_future_makes_no_other_record_of_its_segment_old(fs: Any, clock: ManualClock) -> None:
    with opened(fs, clock) as store:
        store.create_topic("t", retention_ms=HOUR, **ANY_TIME)
        log = store.log("t")
        log.append_many([(None, b"far", (), 2**62), (None, b"near", (), NOW + HOUR // 2)])
        clock.advance(HOUR + 1)
        store.tick()
        assert b"near" in values(log)
        clock.advance(HOUR // 2)
        store.tick()
        assert values(log) == []


@pytest.mark.pair("timestamps", "roll")
@pytest.mark.parametrize("first", [NOW * 1_000_000, 2**63 - 1, -1])
def test_a_segment_rolls_by_the_clock_if_its_first_timestamp_is_in_the_future_or_missing(
    fs: Any, clock: ManualClock, first: int
) -> None:
    with opened(fs, clock) as store:
        store.create_topic("t", segment_ms=DAY, retention_ms=-1, **ANY_TIME)
        log = store.log("t")
        log.append(b"first", timestamp=first)
        clock.advance(DAY)
        log.append_many([b"second"] * 2)
        assert len(log.segments) == 1
        clock.advance(1)
        log.append(b"third")
        assert len(log.segments) == 2
        clock.advance(DAY + 1)
        log.append_many([(None, b"fourth", (), -1)] * 100)
        assert len(log.segments) == 3


@pytest.mark.pair("timestamps", "roll")
def test_timestamps_of_the_past_and_the_present_in_turn_do_not_roll_at_each_append(fs: Any, clock: ManualClock) -> None:
    with opened(fs, clock) as store:
        store.create_topic("t", segment_ms=DAY, retention_ms=-1, **ANY_TIME)
        log = store.log("t")
        for stamp in (5, None, -1, 2**62) * 20:
            log.append(b"x", timestamp=stamp)
        assert len(log.segments) <= 3


@pytest.mark.pair("roll", "timestamps", "close")
def test_a_segment_without_timestamps_rolls_by_time_even_if_its_store_is_opened_daily(fs: Any, clock: ManualClock) -> None:
    with opened(fs, clock) as store:
        store.create_topic("t", segment_ms=3 * DAY, segment_bytes=500, retention_ms=-1)
        store.log("t").append_many([(None, b"x" * 300, (), -1)] * 2)
    for _ in range(8):
        clock.advance(DAY)
        with opened(fs, clock) as store:
            store.log("t").append(b"x", timestamp=-1)
    with opened(fs, clock, mode="r") as store:
        assert len(store.log("t").segments) >= 3


@pytest.mark.pair("timestamps", "compaction")
@pytest.mark.parametrize("stamp", [-1, 2**62])
def test_the_least_lag_counts_from_the_append_of_what_has_no_timestamp_or_one_in_the_future(
    fs: Any, clock: ManualClock, stamp: int
) -> None:
    with opened(fs, clock) as store:
        store.create_topic(
            "t", cleanup_policy="compact", segment_bytes=150, min_compaction_lag_ms=DAY, min_cleanable_dirty_ratio=0.0, **ANY_TIME
        )
        log = store.log("t")
        for _ in range(3):
            log.append(b"x" * 50, key=b"a", timestamp=stamp)
        clock.advance(DAY - 1)
        store.compact("t")
        assert len(values(log)) == 3
        clock.advance(1)
        store.compact("t")
        assert len(values(log)) == 1 + 1  # the active segment's, and the last one of the others


@pytest.mark.pair("timestamps", "compaction")
@pytest.mark.parametrize("stamp", [-1, 2**62])
def test_the_most_lag_counts_from_the_append_of_what_has_no_timestamp_or_one_in_the_future(
    fs: Any, clock: ManualClock, stamp: int
) -> None:
    with opened(fs, clock) as store:
        store.create_topic(
            "t", cleanup_policy="compact", segment_bytes=150, max_compaction_lag_ms=DAY, min_cleanable_dirty_ratio=1.0, **ANY_TIME
        )
        log = store.log("t")
        for _ in range(4):
            log.append(b"x" * 50, key=b"a", timestamp=stamp)
        clock.advance(DAY)
        store.tick()
        assert len(values(log)) == 4
        clock.advance(1)
        store.tick()
        assert len(values(log)) == 2


@pytest.mark.pair("timestamps", "compaction")
def test_tombstones_are_kept_however_long_they_are_to_be_kept(fs: Any, clock: ManualClock) -> None:
    with opened(fs, clock) as store:
        store.create_topic("t", cleanup_policy="compact", segment_bytes=150, delete_retention_ms=2**63 - 1)
        log = store.log("t")
        for value in (b"x" * 60, None, b"y" * 60, b"z" * 60):
            log.append(value, key=b"k" * 60 if value is None else b"a")
        for _ in range(2):
            store.compact("t")
            clock.advance(9000 * DAY)
        assert None in values(log)


# ---- search by time ------------------------------------------------------------------------------------------------------------


@pytest.mark.pair("time search", "delete_records")
@pytest.mark.parametrize("segment_bytes", [150, 400, 1 << 20])
def test_a_search_by_time_passes_segments_whose_latest_record_was_deleted(
    fs: Any, clock: ManualClock, segment_bytes: int
) -> None:
    with opened(fs, clock) as store:
        store.create_topic("t", segment_bytes=segment_bytes, retention_ms=-1)
        log = store.log("t")
        stamps = [5000, 1000, 1001, 1002, 4999, 1003, 1004, 4000, -1, 3999, 1005]
        for stamp in stamps:
            log.append(b"x" * 50, timestamp=stamp)
        for start in range(len(stamps) + 1):
            log.delete_records(start)
            for asked in range(0, 5002, 7):
                there = [offset for offset in range(start, len(stamps)) if stamps[offset] >= asked]
                found = log.offset_for_timestamp(asked)
                assert (found and found.offset) == (there[0] if there else None)


@pytest.mark.pair("time search", "compaction", "idempotence")
def test_a_search_by_time_passes_batches_that_compaction_emptied(fs: Any, clock: ManualClock) -> None:
    with opened(fs, clock) as store:
        options = {"cleanup_policy": "compact", "min_cleanable_dirty_ratio": 0.0, "producer_id_expiration_ms": 2**63 - 1}
        store.create_topic("t", segment_bytes=300, **options)  # the producer is known: its last batch stays, emptied
        log = store.log("t")
        with store.producer() as producer:
            producer.send("t", b"x", key=b"a", timestamp=5_000_000).get()
        for key, stamp in ((b"b", 1_000_000), (b"a", 1_000_001), (b"c", 4_000_000), (b"d", 1_000_002)):
            log.append(b"x" * 200, key=key, timestamp=stamp)
        store.compact("t")
        found = log.offset_for_timestamp(3_000_000)
        assert found is not None
        assert (found.offset, found.timestamp) == (3, 4_000_000)


@pytest.mark.pair("time search", "timestamps")
def test_the_time_of_a_file_is_not_the_timestamp_of_a_record(fs: Any, clock: ManualClock) -> None:
    with opened(fs, clock) as store:
        store.create_topic("t", segment_bytes=150, retention_ms=-1)
        log = store.log("t")
        for stamp in (-1, -1, NOW - 10, -1):
            log.append(b"x" * 50, timestamp=stamp)
        for asked, offset in ((0, 2), (NOW - 10, 2), (NOW - 9, None), (NOW, None)):
            found = log.offset_for_timestamp(asked)
            assert (found and found.offset) == offset


# ---- what commands show --------------------------------------------------------------------------------------------------------


def test_reading_all_timestamps_of_an_imported_segment_happens_once(
    fs: Any, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[tuple[Any, ...]] = []
    monkeypatch.setattr(age, "RecordDecoder", lambda *given, **named: made.append(given) or RecordDecoder(*given, **named))
    with opened(fs, clock) as store:
        store.create_topic("t", retention_ms=DAY)
        store.log("t").append_many([(None, b"old", (), 5), (None, b"new", (), -1)])
        for _ in range(5):
            store.tick()
        assert len(made) == 1


@pytest.mark.pair("timestamps", "retention by time")
@pytest.mark.parametrize("segment_bytes", [400, 10**6], ids=["sealed", "active"])
def test_appends_do_not_wait_while_the_timestamps_of_an_import_are_read(
    fs: Any, clock: ManualClock, monkeypatch: pytest.MonkeyPatch, segment_bytes: int
) -> None:
    finished: list[bool] = []
    with opened(fs, clock) as store:
        store.create_topic("t", retention_ms=DAY, segment_bytes=segment_bytes)
        log = store.log("t")
        for _ in range(3):
            log.append_many([(None, b"old" * 20, (), 5), (None, b"new" * 20, (), -1)])

        def decoder(*given: Any, **named: Any) -> RecordDecoder:
            if not finished:
                appending = threading.Thread(target=log.append, args=(b"beside",), kwargs={"timestamp": 5})
                appending.start()
                appending.join(5)
                finished.append(not appending.is_alive())
            return RecordDecoder(*given, **named)

        monkeypatch.setattr(age, "RecordDecoder", decoder)
        store.tick()
        assert finished == [True]
        assert log.start_offset == 0  # records without a timestamp are as old as their append
        monkeypatch.undo()
        clock.advance(2 * DAY)
        store.tick()
        assert log.start_offset == log.end_offset


def test_describe_and_stats_show_the_same_times(tmp_path: Path) -> None:
    clock = ManualClock(NOW)
    with pylog.open(tmp_path, clock=clock) as store:
        store.create_topic("t", segment_bytes=150, retention_ms=-1)
        store.log("t").append_many([(None, b"x" * 20, (), NOW - 5000), (None, b"x" * 20, (), NOW - 10)])
        clock.advance(1000)
        store.log("t").append(b"x" * 50, timestamp=-1)
    shown = call("describe", str(tmp_path), "t", "--json").json["partitions"][0]["segments"]
    counted = call("stats", str(tmp_path), "--json").json["topics"][0]["partitions"][0]["segments"]
    described = [(each["base_offset"], each["largest_timestamp"], each["last_append"]) for each in shown]
    assert described == [(each["base_offset"], each["last_timestamp"], each["last_append"]) for each in counted]
    assert described == [
        (0, "2023-11-14T22:13:19.990Z", "2023-11-14T22:13:20.000Z"),
        (2, None, "2023-11-14T22:13:21.000Z"),
    ]
    assert [each["first_timestamp"] for each in counted] == ["2023-11-14T22:13:15.000Z", None]


@pytest.mark.pair("crash", "timestamps", "retention by time")
def test_a_crash_makes_no_record_older_than_its_append(fs: Any, clock: ManualClock) -> None:
    store = pylog.open("/d", fs=fs, clock=clock)
    store.create_topic("t", retention_ms=DAY, segment_bytes=200)
    for _ in range(6):
        clock.advance(2 * DAY)
        store.log("t").append(b"x" * 50, timestamp=-1)
    with pylog.open("/d", fs=fs.crash(), clock=clock) as again:
        again.tick()
        assert again.log("t").end_offset == 6
        assert list(again.log("t").records())
        assert again.log("t").start_offset <= 5
