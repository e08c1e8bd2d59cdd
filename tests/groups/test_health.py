"""A group's health: each rule, against the complaint about other tools that asks for it. Threads are named owner#number."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

import pylog
from pylog import GroupIdNotFoundError, InvalidArgumentError, OffsetsConfig
from pylog.groups.health import Verdict
from support.golden import data as golden_data
from support.groups.course import HOUR, MINUTE, NOON, SECOND, GroupCourse


@pytest.fixture
def course() -> Iterator[GroupCourse]:
    made = GroupCourse()
    yield made
    made.close()


# ---- the numbers -------------------------------------------------------------------------------------------------------------


def test_lag_is_that_of_now_and_grows_when_commits_have_ended_burrow_287(course: GroupCourse) -> None:
    course.produce(5)
    course.commit()
    assert (course.row().lag, course.row().lag_seconds) == (0, 0)
    for expected in (3, 6):
        course.produce(3)
        course.wait(10 * SECOND)
        assert (course.row().lag, course.row().lag_records) == (expected, expected)
    assert course.row().lag_seconds == 20


def test_lag_in_seconds_is_the_age_of_the_first_unread_record_and_not_a_guess_seglo_111_353_496(course: GroupCourse) -> None:
    for _ in range(10):
        course.produce()
        course.wait(SECOND)
    course.commit(4)
    assert course.row().lag_seconds == 6
    course.wait(250)
    assert course.row().lag_seconds == 6.25


def test_a_timestamp_in_the_future_is_no_lag_and_a_missing_one_is_none_and_never_a_number(course: GroupCourse) -> None:
    course.commit(0)
    course.produce(timestamp=NOON + HOUR)
    assert course.row().lag_seconds == 0
    course.produce(timestamp=-1)
    course.commit(1)
    assert (course.row().lag, course.row().lag_seconds) == (1, None)


def test_a_partition_without_a_commit_has_no_row_seglo_45_kafka_exporter_28() -> None:
    with pylog.open("/s", fs=GroupCourse().fs, offsets=OffsetsConfig(topic_num_partitions=1)) as store:
        store.create_topic("t", partition_count=3)
        store.offsets.commit("g", {("t", 1): 0})
        assert [each.partition for each in store.group("g").health().partitions] == [("t", 1)]


def test_a_group_whose_consumers_have_died_keeps_its_rows_seglo_36_63_66_kafka_exporter_226_463(course: GroupCourse) -> None:
    course.produce(4)
    with course.store.consumer("orders", group_id="billing", auto_offset_reset="earliest") as consumer:
        consumer.poll()
        consumer.commit()
    course.produce(2)
    assert [each.lag for each in course.health().partitions] == [2]


def test_markers_of_transactions_are_lag_and_no_records() -> None:
    case = next(case for case in golden_data.cases() if case.name == "txn")
    with pylog.open(case.log_directory, mode="r") as store:
        rows = [row for group in store.groups() for row in store.group(group).health().partitions if row.verdict != "LOST"]
        for row in rows:
            read = store.log(*row.partition).records(row.offset) if row.lag else ()
            assert row.lag_records == sum(1 for _ in read), row
        assert rows


@pytest.mark.pair("compaction", "groups")
def test_unread_records_of_a_compacted_topic_are_counted_without_the_gaps() -> None:
    course = GroupCourse(cleanup_policy="compact", segment_bytes=400)
    for number in range(60):
        course.log.append(b"v" * 20, key=b"key%d" % (number % 7))
    course.store.compact("orders")
    for offset in range(0, 60, 7):
        course.commit(offset)
        records = sum(1 for _ in course.log.records(offset))
        assert (course.row().lag, course.row().lag_records) == (60 - offset, records)
    course.close()


def test_lag_of_the_golden_groups_is_what_describe_and_kafka_say() -> None:
    case = next(case for case in golden_data.cases() if case.name == "groups")
    with pylog.open(case.log_directory, mode="r") as store:
        for group in store.groups():
            health = {each.partition: (each.offset, each.lag) for each in store.group(group).health().partitions}
            described = {
                each.partition: (each.offset, max(0, each.lag))
                for each in store.group(group).describe().partitions
                if each.lag is not None
            }
            assert health == described


def test_catching_up_takes_the_lag_over_consumption_less_production(course: GroupCourse) -> None:
    course.produce(1000)
    course.commit(0)
    for number in range(1, 11):
        course.wait(10 * SECOND)
        course.produce(10)
        course.commit(50 * number)
    row = course.row()
    assert row.rate == pytest.approx(5)
    assert row.catch_up_seconds == pytest.approx(600 / 4)


# ---- the rules ---------------------------------------------------------------------------------------------------------------


def test_a_group_that_has_read_everything_is_ok_however_long_ago_burrow_38_94_140_171(course: GroupCourse) -> None:
    course.produce(3)
    course.commit()
    course.wait(30 * HOUR)
    assert course.verdict() == "OK"
    assert course.row().lag_seconds == 0


def test_the_first_record_after_a_long_silence_is_no_stop_burrow_38_94_140_171(course: GroupCourse) -> None:
    for _ in range(3):
        course.produce()
        course.commit()
        course.wait(10 * SECOND)
    course.wait(5 * HOUR)
    course.produce()
    course.wait(30 * SECOND)
    assert course.verdict() == "OK"
    assert course.verdict(rules="burrow") == "OK"  # it had caught up in the last minutes
    course.wait(3 * HOUR)
    assert course.verdict() == "STOP"


def test_two_quick_commits_and_half_a_minute_of_silence_are_no_stop_burrow_38(course: GroupCourse) -> None:
    course.produce(100)
    course.wait(HOUR)
    course.commit(10)
    course.wait(100)
    course.commit(20)
    course.wait(30 * SECOND)
    assert course.verdict() != "STOP"
    assert course.verdict(rules="burrow") == "ERR"


def test_a_stop_is_found_minutes_after_the_group_had_caught_up_burrow_290(course: GroupCourse) -> None:
    for _ in range(10):
        course.produce(5)
        course.commit()
        course.wait(5 * SECOND)
    course.produce(5)
    course.wait(2 * MINUTE)
    row = course.row()
    assert (row.verdict, row.lag) == (Verdict.STOP, 5)
    assert row.trend == "rising", "it had read everything at each commit, and its lag in time grows by a second a second"
    assert "no member reads" in row.why
    assert row.since == NOON + 45 * SECOND


def test_a_stop_is_not_called_before_the_group_is_silent_for_longer_than_its_commits_take(course: GroupCourse) -> None:
    course.produce(100)
    for number in range(10):
        course.commit(number)
        course.wait(MINUTE)
    course.wait(7 * MINUTE)  # the commits span nine minutes; eight have passed
    assert course.row().verdict != Verdict.STOP
    course.wait(2 * MINUTE)
    assert course.row().verdict == Verdict.STOP


def test_a_member_that_lives_and_does_not_commit_stalls_and_one_that_has_left_has_stopped(course: GroupCourse) -> None:
    course.produce(50)
    options = {"auto_offset_reset": "earliest", "max_poll_records": 10, "enable_auto_commit": False}
    consumer = course.store.consumer("orders", group_id="billing", **options)
    for _ in range(3):
        consumer.poll()
        consumer.commit()
        course.wait(5 * SECOND)
    course.wait(3 * MINUTE)
    row = course.row()
    assert (row.verdict, row.offset) == (Verdict.STALL, 30)
    assert "a member reads" in row.why
    consumer.close()
    assert course.row().verdict == Verdict.STOP


def test_a_member_that_commits_often_and_pauses_for_half_a_minute_does_not_stall(course: GroupCourse) -> None:
    course.produce(50)
    course.wait(2 * MINUTE)
    options = {"auto_offset_reset": "earliest", "max_poll_records": 10, "enable_auto_commit": False}
    with course.store.consumer("orders", group_id="billing", **options) as consumer:
        for _ in range(3):
            consumer.poll()
            consumer.commit()
        course.wait(30 * SECOND)
        assert course.row().verdict != Verdict.STALL
        course.wait(40 * SECOND)
        assert course.row().verdict == Verdict.STALL


def test_commits_of_one_offset_over_minutes_are_a_stall(course: GroupCourse) -> None:
    course.produce(50)
    for _ in range(10):
        course.commit(7)
        course.wait(15 * SECOND)
    assert course.verdict() == "STALL"
    assert course.verdict(rules="burrow") == "ERR"


def test_equal_offsets_of_a_group_that_had_read_everything_are_no_stall(course: GroupCourse) -> None:
    course.produce(7)
    for _ in range(10):
        course.commit(7)
        course.wait(15 * SECOND)
    course.produce(2)
    course.wait(20 * SECOND)
    assert course.verdict() == "OK"


def test_a_group_that_falls_behind_has_a_warning(course: GroupCourse) -> None:
    for number in range(30):
        course.produce(10)
        course.wait(10 * SECOND)
        course.commit(3 * number)
    row = course.row()
    assert (row.verdict, row.trend) == (Verdict.WARN, "rising")
    assert row.catch_up_seconds is None


def test_a_constant_lag_keeps_up_where_burrow_warns(course: GroupCourse) -> None:
    for number in range(30):
        course.produce(10)
        course.wait(29 * SECOND)
        course.commit(10 * number + 5)
        course.wait(SECOND)
    assert (course.row().verdict, course.row().trend) == (Verdict.OK, "steady")
    assert course.verdict(rules="burrow") == "WARN"


def test_a_lag_of_hours_that_shrinks_too_slowly_has_a_warning_and_one_that_shrinks_fast_has_none(course: GroupCourse) -> None:
    course.produce(3000, timestamp=NOON)
    course.wait(2 * HOUR)
    course.produce(300)
    for number in range(10):
        course.commit(2700 + 62 * number)
        course.wait(10 * SECOND)
    assert course.row().trend == "falling"
    assert course.verdict(window="PT1H") == "OK"
    assert course.verdict(window="PT1S") == "WARN"


def test_an_offset_that_went_back_is_a_rewind_until_it_is_reached_again(course: GroupCourse) -> None:
    course.produce(100)
    course.commit(60)
    course.wait(SECOND)
    course.commit(10)
    assert course.verdict() == "REWIND"
    assert "from 60 to 10" in course.row().why
    for offset in (30, 59):
        course.wait(SECOND)
        course.commit(offset)
        assert course.verdict() == "REWIND"
    course.wait(SECOND)
    course.commit(60)
    assert course.verdict() == "OK"


@pytest.mark.pair("retention by time", "groups")
def test_records_that_retention_deleted_unread_are_lost_kaskade_98() -> None:
    course = GroupCourse(segment_bytes=200, retention_ms=MINUTE)
    course.produce(20)
    course.commit(3)
    course.wait(5 * MINUTE)
    course.produce()
    course.store.tick()
    row = course.row()
    assert row.verdict == Verdict.LOST
    assert f"offsets 3 to {course.log.start_offset - 1} were deleted" in row.why
    by_burrow = course.row(rules="burrow")
    assert (by_burrow.verdict, by_burrow.why, course.verdict(rules="burrow")) == ("LOST", row.why, "ERR")
    course.close()


@pytest.mark.pair("truncation", "groups")
def test_a_committed_offset_beyond_a_truncated_log_is_lost_and_its_lag_is_kafkas(course: GroupCourse) -> None:
    course.produce(20)
    course.commit(15)
    course.log.truncate(10)
    row = course.row()
    assert (row.verdict, row.lag, row.lag_seconds) == (Verdict.LOST, -5, 0)
    assert "committed 15, but the log ends at 10" in row.why
    by_burrow = course.row(rules="burrow")
    assert (by_burrow.verdict, by_burrow.why, course.verdict(rules="burrow")) == ("LOST", row.why, "ERR")


@pytest.mark.pair("retention by time", "groups")
def test_a_group_that_is_slower_than_retention_is_doomed_before_records_are_lost_kaskade_98() -> None:
    course = GroupCourse(segment_bytes=2_000, retention_ms=10 * MINUTE)
    for number in range(60):
        course.produce(10)
        course.wait(5 * SECOND)
        course.commit(number // 10)
    row = course.row()
    assert row.verdict == Verdict.DOOMED
    assert row.deleted_in_seconds is not None
    assert row.deleted_in_seconds < 600
    course.store.alter_topic("orders", retention_ms=-1)
    assert course.row().verdict == Verdict.WARN
    course.close()


@pytest.mark.pair("retention by size", "groups")
def test_retention_by_size_dooms_a_group_too_unless_it_waits_for_that_group() -> None:
    course = GroupCourse(segment_bytes=2_000, retention_ms=-1, retention_bytes=60_000)
    for number in range(60):
        course.produce(10)
        course.wait(5 * SECOND)
        course.commit(number // 10)
    assert course.row().verdict == Verdict.DOOMED
    course.store.alter_topic("orders", retention_group="billing")
    assert course.row().verdict == Verdict.WARN
    course.close()


@pytest.mark.damaged("a byte is flipped")
def test_a_damaged_next_record_is_an_error_and_damage_elsewhere_is_none(tmp_path: Path) -> None:
    with pylog.open(tmp_path, offsets=OffsetsConfig(topic_num_partitions=1)) as store:
        store.create_topic("t", segment_bytes=300)
        for _ in range(20):
            store.log("t").append(b"x" * 100)
        store.offsets.commit("g", {("t", 0): 0})
        store.offsets.commit("h", {("t", 0): 15})
    file = tmp_path / "t-0" / f"{0:020d}.log"
    data = bytearray(file.read_bytes())
    data[100] ^= 1
    file.write_bytes(data)
    with pylog.open(tmp_path, mode="r") as store:
        (row,) = store.group("g").health().partitions
        assert (row.verdict, row.lag_records) == (Verdict.DAMAGED, None)
        assert store.group("h").health().partitions[0].verdict == Verdict.OK


# ---- where it works ----------------------------------------------------------------------------------------------------------


@pytest.mark.pair("compaction", "groups")
def test_commits_that_compaction_removed_shorten_the_window_and_their_number_says_so() -> None:
    course = GroupCourse()
    course.produce(100)
    for number in range(20):
        course.commit(number)
        course.wait(SECOND)
    assert course.row().commit_count == 20
    course.store.alter_topic("__consumer_offsets", segment_bytes=200)
    for number in range(20, 24):
        course.commit(number)
        course.wait(SECOND)
    course.store.compact("__consumer_offsets")
    assert 1 <= course.row().commit_count < 10
    course.close()


def test_a_deleted_group_that_commits_again_is_judged_by_its_new_commits_only(course: GroupCourse) -> None:
    course.produce(100)
    course.commit(90)
    course.store.offsets.delete("billing")
    course.commit(10)
    assert (course.verdict(), course.row().commit_count) == ("OK", 1)


@pytest.mark.pair("second process", "groups")
def test_a_cold_copy_and_a_reader_beside_the_writer_give_the_same_verdicts(tmp_path: Path) -> None:
    with pylog.open(tmp_path / "s", offsets=OffsetsConfig(topic_num_partitions=2)) as store:
        store.create_topic("t", segment_bytes=500, retention_ms=-1)
        for number in range(20):
            store.log("t").append(b"x" * 50, timestamp=NOON + number)
        for group, offsets in {"a": [3, 9, 2], "b": [20], "c": [5, 5], "d": [0]}.items():
            for offset in offsets:
                store.offsets.commit(group, {("t", 0): offset})
        store.log("t").delete_records(1)
        store.flush()
        here = {group: store.group(group).health().verdict for group in store.groups()}
        shutil.copytree(tmp_path / "s", tmp_path / "copy")
        for path in (tmp_path / "s", tmp_path / "copy"):
            with pylog.open(path, mode="r") as reader:
                assert {group: reader.group(group).health().verdict for group in reader.groups()} == here
    assert here == {"a": "REWIND", "b": "OK", "c": "OK", "d": "LOST"}


def test_a_clock_that_goes_back_makes_no_stop_and_no_negative_number(course: GroupCourse) -> None:
    course.produce(10)
    course.wait(HOUR)
    course.commit(3)
    course.clock.advance(-2 * HOUR)
    course.commit(5)
    row = course.row()
    assert (row.verdict, row.lag_seconds) == (Verdict.OK, 0)
    course.wait(3 * MINUTE)
    assert course.row().lag_seconds == 0


def test_a_group_that_does_not_exist_and_a_window_that_is_none_are_refused(course: GroupCourse) -> None:
    with pytest.raises(GroupIdNotFoundError):
        course.store.group("no").health()
    course.commit(0)
    for window in ("PT0S", "10m", "-PT1S"):
        with pytest.raises(InvalidArgumentError, match=r"window|timedelta"):
            course.health(window=window)
    with pytest.raises(InvalidArgumentError, match=r"'pylog', 'burrow'"):
        course.health(rules="lag")


def test_a_group_without_a_speed_is_doomed_if_its_records_are_deleted_within_a_minute() -> None:
    """It was judged to keep up: no speed, no doom; and its silence was too short for a stop."""
    course = GroupCourse(segment_bytes=2_000, retention_ms=10 * MINUTE)
    course.produce(60)
    course.wait(9 * MINUTE - 10 * SECOND)
    course.commit(3)
    course.wait(5 * SECOND)
    assert course.row().verdict == Verdict.OK
    course.wait(15 * SECOND)
    row = course.row()
    assert row.verdict == Verdict.DOOMED
    assert row.why.startswith("retention deletes offsets 3 to ")
    assert "the group has not moved since" in row.why
    course.close()


def test_the_sentence_of_a_stopped_group_says_when_retention_deletes_what_it_has_not_read() -> None:
    course = GroupCourse(segment_bytes=2_000, retention_ms=10 * MINUTE)
    course.produce(60)
    course.commit(3)
    course.wait(5 * MINUTE)
    row = course.row()
    assert row.verdict == Verdict.STOP
    assert "; retention deletes offsets 3 to " in row.why
    assert row.why.endswith("in 5 min")
    course.store.alter_topic("orders", retention_ms=-1)
    assert "retention" not in course.row().why
    course.close()
