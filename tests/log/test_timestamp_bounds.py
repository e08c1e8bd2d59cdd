"""Timestamps too far in the future or in the past are refused on every way into a log, by the options of that moment."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import pylog
from pylog.clock import ManualClock
from support.cli import call
from support.log import times
from support.log.times import ANY_TIME, HOUR, NOW, opened, values

clock = pytest.fixture(times.clock)
fs = pytest.fixture(times.fs)


# ---- what appends take ---------------------------------------------------------------------------------------------------------

Append = Callable[[pylog.Store, list[int]], object]


def _table(stamps: list[int]) -> pa.Table:
    return pa.table({"value": [b"x"] * len(stamps), "timestamp": pa.array(stamps, pa.int64())})


def _send(store: pylog.Store, stamps: list[int]) -> None:
    with store.producer() as producer:
        for future in [producer.send("t", b"x", timestamp=stamp) for stamp in stamps]:
            future.get()


def _send_arrow(store: pylog.Store, stamps: list[int]) -> None:
    with store.producer() as producer:
        producer.send_arrow("t", _table(stamps))


ROUTES: dict[str, Append] = {
    "append": lambda store, stamps: [store.log("t").append(b"x", timestamp=stamp) for stamp in stamps],
    "append_many": lambda store, stamps: store.log("t").append_many([(None, b"x", (), stamp) for stamp in stamps]),
    "many": lambda store, stamps: store.log("t").append_many(
        [(None, b"x", (), 5)] * 5000 + [(None, b"x", (), s) for s in stamps]
    ),
    "compressed": lambda store, stamps: store.log("t").append_many([(None, b"x", (), s) for s in stamps], compression="lz4"),
    "append_arrow": lambda store, stamps: store.log("t").append_arrow(_table(stamps)),
    "append_batch": lambda store, stamps: store.log("t").append_batch([(None, b"x", (), stamp) for stamp in stamps], atomic=True),
    "send": _send,
    "send_arrow": _send_arrow,
}

routes = pytest.mark.parametrize("route", ROUTES.values(), ids=ROUTES)


@routes
def test_a_timestamp_too_far_in_the_future_is_refused_before_anything_is_written(
    fs: Any, clock: ManualClock, route: Append
) -> None:
    with opened(fs, clock) as store:
        store.create_topic("t")
        with pytest.raises(pylog.InvalidTimestampError, match="message_timestamp_after_max_ms=3600000"):
            route(store, [NOW + HOUR + 1])
        assert store.log("t").end_offset == 0
        route(store, [NOW + HOUR])
        assert store.log("t").end_offset > 0


@routes
def test_a_timestamp_too_far_in_the_past_is_refused_before_anything_is_written(
    fs: Any, clock: ManualClock, route: Append
) -> None:
    with opened(fs, clock) as store:
        store.create_topic("t", message_timestamp_before_max_ms=NOW - 5)
        with pytest.raises(pylog.InvalidTimestampError, match="message_timestamp_before_max_ms"):
            route(store, [4])
        assert store.log("t").end_offset == 0
        route(store, [5])
        assert store.log("t").end_offset > 0


def test_records_without_a_timestamp_are_taken_whatever_the_bounds_are(fs: Any, clock: ManualClock) -> None:
    with opened(fs, clock) as store:
        store.create_topic("t", message_timestamp_before_max_ms=0, message_timestamp_after_max_ms=0)
        log = store.log("t")
        log.append(b"a", timestamp=-1)
        log.append_many([(None, b"b", (), -1), (None, b"c", (), NOW), b"d"])
        log.append_arrow(_table([-1, NOW]))
        assert log.end_offset == 6


@pytest.mark.pair("timestamps", "LogAppendTime")
def test_a_topic_that_stamps_records_itself_takes_any_timestamp(fs: Any, clock: ManualClock) -> None:
    with opened(fs, clock) as store:
        store.create_topic("t", message_timestamp_type="LogAppendTime", message_timestamp_before_max_ms=0)
        for append in ROUTES.values():
            append(store, [5, 2**62])
        assert {record.timestamp for record in store.log("t").records()} == {NOW}


@pytest.mark.parametrize("name", ["append", "append_many", "append_arrow"])
def test_timestamps_in_seconds_draw_one_warning_for_a_topic(
    fs: Any, clock: ManualClock, caplog: pytest.LogCaptureFixture, name: str
) -> None:
    route = ROUTES[name]
    with opened(fs, clock) as store, caplog.at_level(logging.WARNING, "pylog.timestamps"):
        store.create_topic("t", partition_count=2)
        route(store, [5, NOW, -1])
        assert not caplog.records
        for _ in range(3):
            route(store, [NOW, NOW // 1000])
            store.log("t", 1).append(b"x", timestamp=NOW // 1000)
        assert [record.getMessage()[:32] for record in caplog.records] == ["topic 't': timestamp 1700000000 "]
        assert store.log("t").end_offset == 9


# ---- what commands show --------------------------------------------------------------------------------------------------------


def test_commands_refuse_a_timestamp_too_far_in_the_future_and_leave_no_record_out_silently(tmp_path: Path) -> None:
    future = 2**61
    with pylog.open(tmp_path / "old") as store:
        store.create_topic("t", **ANY_TIME)
        store.log("t").append_many([(None, b"near", (), 5), (None, b"far", (), future)])
        store.alter_topic("t", message_timestamp_after_max_ms=HOUR)
    copied = call("copy", str(tmp_path / "old"), "t", str(tmp_path / "new"))
    assert copied.code == 1
    assert "message_timestamp_after_max_ms" in copied.complaints
    produced = call(
        "produce", str(tmp_path / "old"), "t", "--format", "jsonl", stdin=b'{"timestamp": %d, "value": "x"}\n' % future
    )
    assert produced.code == 1
    assert call("config", str(tmp_path / "new"), "t", "--set", f"message.timestamp.after.max.ms={2**63 - 1}").code == 0
    assert call("copy", str(tmp_path / "old"), "t", str(tmp_path / "new")).code == 0
    with pylog.open(tmp_path / "new", mode="r") as store:
        assert values(store.log("t")) == [b"near", b"far"]


@pytest.mark.pair("timestamps", "option change")
def test_bounds_of_timestamps_count_as_another_store_has_altered_them(fs: Any, clock: ManualClock) -> None:
    with opened(fs, clock) as store, opened(fs, clock) as other:
        store.create_topic("t")
        log = store.log("t")
        log.append(b"a")
        other.alter_topic("t", **ANY_TIME)
        assert log.append(b"b", timestamp=2**62) == 1
        other.alter_topic("t", message_timestamp_after_max_ms=0)
        with pytest.raises(pylog.InvalidTimestampError):
            log.append(b"c", timestamp=NOW + 1)
        assert log.end_offset == 2
