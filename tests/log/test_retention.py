"""Retention decides as Kafka does, and waits for a group where the topic says so; leader epochs are cut with the log."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import pylog
from pylog.clock import ManualClock
from pylog.config import TopicConfig
from pylog.directory.leader_epoch_cache import (
    EpochEntry,
    assign_epoch,
    epoch_for_offset,
    truncate_epochs_end,
    truncate_epochs_start,
)
from pylog.log.maintenance.retention_policy import Decision, Reason, RetainedSegment, deletable
from pylog.testing import MemoryFileSystem

NOW = 1_700_000_000_000
DELETE = TopicConfig(retention_ms=-1)


def facts(base_offset: int, size: int, timestamp: int = NOW) -> RetainedSegment:
    return RetainedSegment(base_offset, size, lambda age_ms, now_ms: now_ms - timestamp > age_ms)


def three_segments(timestamp: int = NOW) -> list[RetainedSegment]:
    """15 records of 10 bytes, five a segment."""
    return [facts(0, 50, timestamp), facts(5, 50, timestamp), facts(10, 50, timestamp)]


def decide(segments: Sequence[RetainedSegment], config: TopicConfig, **changed: Any) -> Decision:
    """Of a log that starts at 0 and ends at 15, all of it below the high watermark."""
    end = changed.pop("end_offset", 15)
    log = {"start_offset": 0, "end_offset": end, "high_watermark": end, "now_ms": NOW}
    return deletable(segments, config, **log | changed)


# ---- as Kafka's UnifiedLogTest and LocalLogTest have it ------------------------------------------------------------------------


def test_only_segments_that_lie_below_the_start_offset_as_a_whole_go_for_it() -> None:
    left = {start: 3 - decide(three_segments(), DELETE, start_offset=start).count for start in (1, 4, 5, 6, 10, 15)}
    assert left == {1: 3, 4: 3, 5: 2, 6: 2, 10: 1, 15: 1}


def test_a_start_offset_inside_a_segment_stays_where_it_is() -> None:
    assert decide(three_segments(), DELETE, start_offset=6).new_start_offset == 6


def test_the_oldest_segments_go_when_the_log_is_too_large() -> None:
    decision = decide(three_segments(), TopicConfig(retention_ms=-1, retention_bytes=100))
    assert decision == Decision((Reason.SIZE,), roll_first=False, new_start_offset=5)


def test_size_never_takes_a_log_below_its_limit() -> None:
    counts = [decide(three_segments(), TopicConfig(retention_ms=-1, retention_bytes=size)).count for size in (101, 150, 151)]
    assert counts == [0, 0, 0]


def test_a_limit_of_no_bytes_takes_everything_the_active_segment_too() -> None:
    decision = decide(three_segments(), TopicConfig(retention_ms=-1, retention_bytes=0))
    assert decision == Decision((Reason.SIZE,) * 3, roll_first=True, new_start_offset=15)


def test_all_segments_go_when_all_are_too_old_and_the_end_offset_does_not_change() -> None:
    decision = decide(three_segments(timestamp=10), TopicConfig(retention_ms=10_000))
    assert decision == Decision((Reason.TIME,) * 3, roll_first=True, new_start_offset=15)


def test_nothing_goes_before_it_is_older_than_the_limit() -> None:
    assert decide(three_segments(NOW - 10_000), TopicConfig(retention_ms=10_000)).count == 0
    assert decide(three_segments(NOW - 10_001), TopicConfig(retention_ms=10_000)).count == 3


def test_one_young_segment_keeps_all_after_it() -> None:
    segments = [facts(0, 50, 10), facts(5, 50, NOW + 10**12), facts(10, 50, 10)]
    assert decide(segments, TopicConfig(retention_ms=10_000)).reasons == (Reason.TIME,)


def test_retention_by_time_and_size_does_not_apply_to_a_compacted_topic() -> None:
    config = TopicConfig(retention_ms=10_000, retention_bytes=0, cleanup_policy="compact")
    assert decide(three_segments(timestamp=10), config) == Decision((), roll_first=False, new_start_offset=0)


def test_a_topic_with_compact_and_delete_drops_old_segments() -> None:
    config = TopicConfig(retention_ms=10_000, cleanup_policy="compact,delete")
    assert decide(three_segments(timestamp=10), config).count == 3


def test_a_compacted_topic_drops_what_lies_below_its_start_offset() -> None:
    config = TopicConfig(retention_ms=10_000, cleanup_policy="compact")
    decision = decide(three_segments(timestamp=10), config, start_offset=13)
    assert decision == Decision((Reason.START_OFFSET,) * 2, roll_first=False, new_start_offset=13)


def test_no_segment_at_or_above_the_high_watermark_goes() -> None:
    config = TopicConfig(retention_bytes=0)
    counts = {mark: decide(three_segments(), config, high_watermark=mark).count for mark in (0, 4, 5, 9, 10, 14, 15)}
    assert counts == {0: 0, 4: 0, 5: 1, 9: 1, 10: 2, 14: 2, 15: 3}


def test_an_empty_active_segment_stays() -> None:
    segments = [facts(0, 50, 10), facts(15, 0, 10)]
    assert decide(segments, TopicConfig(retention_ms=0, retention_bytes=0)).count == 1
    assert decide(segments[1:], TopicConfig(retention_ms=0, retention_bytes=0)) == Decision((), False, 0)


def test_a_log_without_segments_has_nothing_to_delete() -> None:
    assert decide([], TopicConfig(retention_bytes=0), end_offset=0) == Decision((), roll_first=False, new_start_offset=0)


def test_each_pass_begins_with_what_the_one_before_left() -> None:
    """Three reasons in one log; the size pass does not count the bytes that the start offset took."""
    segments = [facts(base, 50, NOW - 100 + base) for base in (0, 5, 10, 15, 20)]
    config = TopicConfig(retention_bytes=150, retention_ms=89)
    decision = decide(segments, config, start_offset=5, end_offset=25)
    assert decision.reasons == (Reason.START_OFFSET, Reason.SIZE, Reason.TIME)


def test_ages_are_asked_for_only_up_to_the_first_young_segment() -> None:
    asked = []

    def asks(base_offset: int, timestamp: int) -> Callable[[int, int], bool]:
        return lambda age_ms, now_ms: asked.append(base_offset) or now_ms - timestamp > age_ms

    segments = [RetainedSegment(base, 50, asks(base, stamp)) for base, stamp in ((0, 10), (5, NOW), (10, NOW))]
    assert decide(segments, TopicConfig(retention_ms=10_000)).count == 1
    assert decide(segments, DELETE).count == 0
    assert asked == [0, 5]


# ---- waiting for a group -------------------------------------------------------------------------------------------------------

WAITING = TopicConfig(retention_bytes=0, retention_group="billing")


def test_records_that_the_group_has_not_read_stay() -> None:
    counts = {committed: decide(three_segments(), WAITING, committed=committed).count for committed in (0, 4, 5, 9, 10, 14, 15)}
    assert counts == {0: 0, 4: 0, 5: 1, 9: 1, 10: 2, 14: 2, 15: 3}


def test_a_group_that_has_committed_nothing_holds_everything() -> None:
    assert decide(three_segments(10), WAITING, committed=None).count == 0


def test_a_commit_holds_nothing_back_when_the_topic_names_no_group() -> None:
    assert decide(three_segments(10), TopicConfig(), committed=0).count == 3


def test_time_waits_for_the_group_as_size_does() -> None:
    config = TopicConfig(retention_ms=10_000, retention_group="billing")
    assert decide(three_segments(10), config, committed=7).reasons == (Reason.TIME,)


def test_deleting_records_by_command_does_not_wait() -> None:
    assert decide(three_segments(), WAITING, start_offset=10, committed=None).reasons == (Reason.START_OFFSET,) * 2


def test_after_deleted_records_the_rest_still_waits_for_the_group() -> None:
    decision = decide(three_segments(), WAITING, start_offset=5, committed=10)
    assert decision.reasons == (Reason.START_OFFSET, Reason.SIZE)


def test_the_oldest_unread_segments_go_when_more_waits_than_the_topic_allows() -> None:
    bounds = (0, 49, 50, 99, 100, 149, 150)
    configs = [TopicConfig(retention_bytes=0, retention_group="billing", retention_group_max_bytes=bound) for bound in bounds]
    counts = [decide(three_segments(), config, committed=None).count for config in configs]
    assert counts == [3, 3, 2, 2, 1, 1, 0]


def test_of_what_exceeds_the_bound_no_more_goes_than_must() -> None:
    config = TopicConfig(retention_bytes=0, retention_group="billing", retention_group_max_bytes=60)
    assert decide([facts(0, 60), facts(5, 10), facts(10, 10)], config, committed=None).count == 1
    assert decide([facts(0, 10), facts(5, 10), facts(10, 60)], config, committed=None).count == 2


def test_the_bound_counts_only_what_stays_for_the_groups_sake() -> None:
    """The log may keep 100 bytes anyway: of 150 only the first 50 wait for the group."""
    config = TopicConfig(retention_bytes=100, retention_group="billing", retention_group_max_bytes=50)
    assert decide(three_segments(), config, committed=None).count == 0


def test_a_decision_says_which_segments_the_group_missed() -> None:
    config = TopicConfig(retention_bytes=0, retention_group="billing", retention_group_max_bytes=50)
    assert decide(three_segments(), config, committed=5).reasons == (Reason.SIZE, Reason.GROUP_BYTES)


# ---- against a reference -------------------------------------------------------------------------------------------------------


def reference(segments: Sequence[RetainedSegment], config: TopicConfig, log: dict[str, Any]) -> tuple[Reason, ...]:
    """Kafka's way: pass after pass takes segments off the log, one at a time."""
    left, gone = list(segments), []

    def walk(reason: Reason, predicate: Callable[[RetainedSegment, RetainedSegment | None], bool]) -> None:
        while left:
            following = left[1] if len(left) > 1 else None
            end = log["end_offset"] if following is None else following.base_offset
            if log["high_watermark"] < end or not predicate(left[0], following) or (following is None and not left[0].size):
                return
            gone.append((left.pop(0).size, end, reason))

    walk(Reason.START_OFFSET, lambda _, following: following is not None and following.base_offset <= log["start_offset"])
    if "delete" in config.cleanup_policy:
        limit = config.retention_bytes
        walk(Reason.SIZE, lambda segment, _: limit >= 0 and sum(other.size for other in left) - limit >= segment.size)
        walk(Reason.TIME, lambda segment, _: config.retention_ms >= 0 and segment.is_older(config.retention_ms, log["now_ms"]))
    held = [] if config.retention_group is None else [entry for entry in gone if entry[2] is not Reason.START_OFFSET]
    held = [entry for entry in held if log["committed"] is None or entry[1] > log["committed"]]
    free, over = gone[: len(gone) - len(held)], 0
    while 0 <= config.retention_group_max_bytes < sum(size for size, _, _ in held[over:]):
        over += 1
    return (*(reason for _, _, reason in free), *[Reason.GROUP_BYTES] * over)


@st.composite
def logs(draw: st.DrawFn) -> tuple[list[RetainedSegment], dict[str, Any]]:
    lengths = draw(st.lists(st.integers(1, 5), max_size=6))
    bases = [sum(lengths[:index]) for index in range(len(lengths))]
    sizes = [draw(st.integers(0, 30)) for _ in bases]
    end = sum(lengths) if sizes and sizes[-1] else max(bases, default=0)  # an empty active segment has no offsets
    segments = [facts(base, size, draw(st.integers(0, 20))) for base, size in zip(bases, sizes, strict=True)]
    log = {
        "start_offset": draw(st.integers(0, end)),
        "end_offset": end,
        "high_watermark": draw(st.integers(0, end) | st.just(end)),
        "now_ms": 20,
        "committed": draw(st.none() | st.integers(0, end)),
    }
    return segments, log


configs = st.builds(
    TopicConfig,
    retention_ms=st.integers(-1, 20),
    retention_bytes=st.integers(-1, 100),
    cleanup_policy=st.sampled_from(["delete", "compact", "compact,delete"]),
    retention_group=st.sampled_from([None, "billing"]),
    retention_group_max_bytes=st.integers(-1, 100),
)


@pytest.mark.slow
@given(logs(), configs)
def test_every_decision_is_the_references(log_of: tuple[list[RetainedSegment], dict[str, Any]], config: TopicConfig) -> None:
    segments, log = log_of
    assert deletable(segments, config, **log).reasons == reference(segments, config, log)


@pytest.mark.slow
@given(logs(), configs)
def test_done_once_there_is_nothing_left_to_do(log_of: tuple[list[RetainedSegment], dict[str, Any]], config: TopicConfig) -> None:
    segments, log = log_of
    decision = deletable(segments, config, **log)
    left = segments[decision.count :]
    if decision.roll_first:
        left = [facts(log["end_offset"], 0, 0)]
    assert bool(left) == bool(segments)
    again = deletable(left, config, **log | {"start_offset": decision.new_start_offset})
    assert again == Decision((), roll_first=False, new_start_offset=decision.new_start_offset)


@pytest.mark.slow
@given(logs(), configs)
def test_the_log_starts_where_its_first_segment_does_or_later(
    log_of: tuple[list[RetainedSegment], dict[str, Any]], config: TopicConfig
) -> None:
    segments, log = log_of
    decision = deletable(segments, config, **log)
    first = [*(segment.base_offset for segment in segments), log["end_offset"]][decision.count]
    moved = decision.count > 0
    assert decision.new_start_offset == (max(log["start_offset"], first) if moved else log["start_offset"])


# ---- leader epochs -------------------------------------------------------------------------------------------------------------

EPOCHS = [EpochEntry(2, 10), EpochEntry(4, 20), EpochEntry(5, 30)]


def test_a_cut_log_forgets_the_epochs_from_there_on() -> None:
    left = {offset: len(truncate_epochs_end(EPOCHS, offset)) for offset in (31, 30, 21, 20, 11, 10, 0)}
    assert left == {31: 3, 30: 2, 21: 2, 20: 1, 11: 1, 10: 0, 0: 0}
    assert truncate_epochs_end([], 5) == []


def test_the_epoch_that_a_log_starts_in_begins_at_its_start() -> None:
    assert truncate_epochs_start(EPOCHS, 19) == [EpochEntry(2, 19), *EPOCHS[1:]]
    assert truncate_epochs_start(EPOCHS, 20) == EPOCHS[1:]
    assert truncate_epochs_start(EPOCHS, 21) == [EpochEntry(4, 21), EPOCHS[2]]
    assert truncate_epochs_start(EPOCHS, 99) == [EpochEntry(5, 99)]


def test_the_epoch_file_is_not_rewritten_when_no_epoch_changes() -> None:
    """The very list comes back: that is how its owner knows."""
    empty: list[EpochEntry] = []
    assert truncate_epochs_end(EPOCHS, 31) is EPOCHS
    assert truncate_epochs_end(empty, 0) is empty
    assert truncate_epochs_start(EPOCHS, 10) is truncate_epochs_start(EPOCHS, 0) is EPOCHS
    assert truncate_epochs_start(empty, 7) is empty


@given(st.lists(st.integers(0, 9), max_size=30), st.integers(-1, 31), st.integers(-1, 31))
def test_epochs_of_a_log_cut_at_both_ends_are_those_of_its_records(column: list[int], start: int, end: int) -> None:
    """`column` is the epoch of each record, made to rise as a log's do."""
    by_offset = list(np.maximum.accumulate(column)) if column else []
    epochs: list[EpochEntry] = []
    for offset, epoch in enumerate(by_offset):
        epochs = assign_epoch(epochs, int(epoch), offset)
    assert [epoch_for_offset(epochs, offset) for offset in range(len(by_offset))] == by_offset
    cut = truncate_epochs_start(truncate_epochs_end(epochs, end), start)
    for offset in range(max(start, 0), min(end, len(by_offset))):
        assert epoch_for_offset(cut, offset) == by_offset[offset]
    assert all(entry.start_offset >= start for entry in cut)
    assert all(entry.start_offset < end or entry.start_offset == start for entry in cut)


def test_a_brokers_topic_is_kept_because_its_retention_is_not_known() -> None:
    """Its configuration is in the broker's metadata log. Without this a directory that is only looked after loses old records."""
    fs = MemoryFileSystem(clock=ManualClock(1_000))
    with pylog.open("/s", fs=fs, clock=fs.clock) as store:
        log = store.create_topic("t", segment_bytes=200) and store.log("t")
        for number in range(9):
            log.append(b"%d" % number, timestamp=1_000)
    fs.remove("/s/pylog.json")
    fs.clock.advance(100 * 365 * 86_400_000)
    with pylog.open("/s", fs=fs, clock=fs.clock) as store:
        assert store.topic("t").config.retention_ms == -1
        store.tick()
        assert [record.value for record in store.log("t").records()] == [b"%d" % number for number in range(9)]
