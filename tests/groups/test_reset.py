"""Where a reset sets a partition to: Kafka's ways, its clamping, its texts for times."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pylog import InvalidArgumentError, TopicPartition, limits
from pylog.groups.reset import Bounds, PlannedOffset, ResetTarget, plan, target_of
from pylog.times import milliseconds_of

NOW = 1_700_000_000_000
PLACE = TopicPartition("t", 0)
OFFSETS = st.integers(0, 60)


@st.composite
def logs(draw: st.DrawFn) -> tuple[Bounds, list[tuple[int, int]]]:
    """A log's bounds, with its records as (offset, timestamp): some are deleted, and time may go back."""
    start = draw(OFFSETS)
    end = start + draw(st.integers(0, 20))
    kept = [offset for offset in range(start, end) if draw(st.booleans())]
    records = [(offset, draw(st.integers(0, 9))) for offset in kept]

    def offset_for_time(milliseconds: int) -> int | None:
        return next((offset for offset, stamp in records if stamp >= milliseconds), None)

    return Bounds(start, end, draw(st.none() | OFFSETS), offset_for_time), records


def expected(target: ResetTarget, bounds: Bounds, records: list[tuple[int, int]]) -> int:
    """The rules of groups-and-transactions 2.9 in a few lines."""
    if target.kind == "time":
        return min((offset for offset, stamp in records if stamp >= target.value), default=bounds.end)
    if target.kind == "current":
        return bounds.end if bounds.committed is None else bounds.committed
    wanted = {
        "earliest": bounds.start,
        "latest": bounds.end,
        "offset": target.value,
        "shift": (bounds.committed or 0) + target.value,
    }[target.kind]
    return sorted([bounds.start, wanted, bounds.end])[1]


KINDS = st.sampled_from(["earliest", "latest", "current", "offset", "shift", "time"])


@pytest.mark.slow
@given(logs(), KINDS, st.integers(-80, 80))
def test_a_plan_is_kafkas_and_tells_when_it_is_not_what_was_asked_for(log: Any, kind: Any, value: int) -> None:
    bounds, records = log
    planned = plan(ResetTarget(kind, value), PLACE, bounds)
    assert (planned.partition, planned.offset, planned.committed) == (
        PLACE,
        expected(ResetTarget(kind, value), bounds, records),
        bounds.committed,
    )
    if planned.wanted is not None:  # it was clamped, and to the nearer end
        assert planned.adjustment == ("beyond end" if planned.wanted > bounds.end else "before start")
        assert planned.wanted == (value if kind == "offset" else value + (bounds.committed or 0))
    assert planned.adjustment is not None or kind not in ("offset", "shift") or bounds.start <= planned.offset <= bounds.end


def test_an_offset_that_is_an_end_of_the_log_is_not_called_adjusted() -> None:
    bounds = Bounds(5, 9, None, lambda _: None)
    assert [plan(ResetTarget("offset", offset), PLACE, bounds).adjustment for offset in (4, 5, 9, 10)] == [
        "before start",
        None,
        None,
        "beyond end",
    ]


def test_a_reset_to_a_time_after_the_last_record_or_to_a_missing_commit_goes_to_the_end_and_says_so() -> None:
    bounds = Bounds(5, 9, None, lambda _: None)
    assert plan(ResetTarget("time", NOW), PLACE, bounds) == PlannedOffset(PLACE, 9, None, None, "no such time")
    assert plan(ResetTarget("current"), PLACE, bounds) == PlannedOffset(PLACE, 9, None, None, "nothing committed")


def target(to: Any = None, shift_by: Any = None, by_duration: Any = None) -> ResetTarget | None:
    return target_of(to, shift_by, by_duration, now_ms=lambda: NOW)


TIMES: list[tuple[Any, int]] = [
    ("2023-11-14T22:13:20.000", NOW),
    ("2023-11-14T22:13:20.123Z", NOW + 123),
    ("2023-11-15T00:13:20.000+02:00", NOW),
    ("2023-11-15T00:13:20.000+02", NOW),
    ("2023-11-14T19:43:20.000-0230", NOW),
    ("2023-11-14", NOW - 80_000_000),
    ("1969-12-31T23:59:59.999Z", 0),
    (datetime(2023, 11, 14, 22, 13, 20, tzinfo=UTC), NOW),
    (datetime(2023, 11, 14, 22, 13, 20, 1, tzinfo=UTC), NOW + 1),  # what is a microsecond older is too old
    (datetime(2023, 11, 15, 0, 13, 20, tzinfo=timezone(timedelta(hours=2))), NOW),
]


@pytest.mark.parametrize(("to", "milliseconds"), TIMES, ids=repr)
def test_times_are_iso_8601_in_utc_where_they_name_no_zone(to: Any, milliseconds: int) -> None:
    assert target(to) == ResetTarget("time", milliseconds)


DURATIONS: list[tuple[Any, int]] = [
    ("P1D", 86_400_000),
    ("PT1H", 3_600_000),
    ("P2DT3H4M5.6S", 183_845_600),
    ("pt0.001s", 1),
    ("PT-0.5S", -500),
    ("-PT1M", -60_000),
    ("PT+1,5S", 1500),
    ("PT1.S", 1000),
    (timedelta(minutes=1), 60_000),
    (timedelta(microseconds=1), 0),
]


@pytest.mark.parametrize(("duration", "milliseconds"), DURATIONS, ids=repr)
def test_durations_are_those_that_java_parses(duration: Any, milliseconds: int) -> None:
    assert milliseconds_of(duration) == milliseconds
    assert target(by_duration=duration) == ResetTarget("time", NOW - milliseconds)


@pytest.mark.parametrize(
    ("duration", "milliseconds"), [("P100000D", 0), (f"P{'9' * 18}D", 0), (f"-P{'9' * 18}D", limits.INT64_MAX)]
)
def test_a_duration_that_leads_out_of_all_times_means_the_first_or_the_last(duration: str, milliseconds: int) -> None:
    assert target(by_duration=duration) == ResetTarget("time", milliseconds)


@given(st.integers(-(10**12), 10**12))
def test_a_duration_and_its_text_mean_the_same(seconds: int) -> None:
    assert milliseconds_of(f"PT{seconds}S") == milliseconds_of(timedelta(seconds=seconds)) == 1000 * seconds


@pytest.mark.parametrize("duration", ["", "P", "PT", "P1DT", "1D", "P1W", "PT1H2", "P1H", "PT1.0000000001S", 60, None], ids=repr)
def test_text_that_is_no_duration_is_refused(duration: Any) -> None:
    with pytest.raises(InvalidArgumentError, match="not a timedelta, or text such as"):
        milliseconds_of(duration)


@pytest.mark.parametrize("digits", [20, 5_000])
@pytest.mark.parametrize("form", ["P{}D", "PT{}H", "-PT{}M", "PT{}S"])
def test_a_duration_of_more_digits_than_java_has_room_for_is_refused(form: str, digits: int) -> None:
    assert milliseconds_of(form.format("0" * 18 + "1")) == milliseconds_of(form.format(1))
    with pytest.raises(InvalidArgumentError, match="not a timedelta, or text such as"):
        milliseconds_of(form.format("9" * digits))


BAD: list[tuple[dict[str, Any], str]] = [
    ({"to": "tomorrow"}, "to='tomorrow' is not 'earliest'"),
    ({"to": "2023-13-01T00:00:00.000"}, "is not 'earliest'"),
    ({"to": True}, "to=True is not an int of 64 bits, a datetime"),
    ({"to": 2**63}, "is not an int of 64 bits"),
    ({"to": 1.5}, "to=1.5"),
    ({"to": datetime(2023, 1, 1)}, "has no time zone"),  # noqa: DTZ001 - what is tested
    ({"shift_by": "3"}, "shift_by='3' is not an int of 64 bits"),
    ({"to": 1, "shift_by": 1}, "to and shift_by are given together"),
    ({"to": "latest", "by_duration": "PT1S"}, "to and by_duration are given together"),
]


@pytest.mark.parametrize(("arguments", "message"), BAD, ids=repr)
def test_a_reset_without_a_target_is_refused(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidArgumentError, match=message):
        target(**arguments)


def test_ints_of_numpy_are_offsets() -> None:
    assert (target(np.int64(7)), target(shift_by=np.int32(-7))) == (ResetTarget("offset", 7), ResetTarget("shift", -7))
    assert type(target(np.int64(7)).value) is int


def test_nothing_given_is_no_target() -> None:
    assert target() is None
