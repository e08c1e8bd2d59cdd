"""Two ways to read agree: a time search with what a scan finds, a group with both, while the log changes between the two."""

from __future__ import annotations

from pathlib import Path

import pytest

import pylog
from pylog import TopicPartition
from support.trust.crossing import GROUP, Scene

PARTITION = TopicPartition("t", 0)


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    """A log that was cut at both ends, with timestamps that go up and down and some that are missing."""
    made = Scene(tmp_path, {"timestamps", "time search", "scan and follow", "groups"})
    for change in ("roll", "delete_records", "truncation", "roll"):
        made.change(change)
    return made


def times_of(scene: Scene) -> list[int]:
    return sorted({row.timestamp for row in scene.expected.values() if row.timestamp >= 0})


@pytest.mark.pair("time search", "scan and follow")
def test_a_scan_from_the_offset_of_a_time_misses_no_record_of_that_time_or_later(scene: Scene) -> None:
    for time in times_of(scene):
        found = scene.log.offset_for_timestamp(time)
        assert found is not None
        scanned = {record.offset for record in scene.log.records(found.offset)}
        followed = {offset for frame in scene.log.follow(found.offset, timeout_ms=0) for offset in frame["offset"].to_pylist()}
        late = {offset for offset, row in scene.expected.items() if row.timestamp >= time}
        assert late <= scanned == followed
    scene.verify()


@pytest.mark.pair("time search", "groups")
def test_a_group_that_is_reset_to_a_time_begins_at_its_first_record_also_after_changes(scene: Scene) -> None:
    for time in times_of(scene):
        plan = scene.store.group(GROUP).reset(to=pylog_time(time))
        wanted = next(offset for offset, row in scene.expected.items() if row.timestamp >= time)
        with scene.store.consumer("t", group_id=GROUP, enable_auto_commit=False) as consumer:
            found = consumer.offsets_for_times({PARTITION: time})[PARTITION]
            first = next(record for records in iter(consumer.poll, None) for each in records.values() for record in each)
        assert found is not None
        assert first.offset == found.offset == wanted, plan
        scene.committed = wanted
    scene.verify()


def pylog_time(time: int) -> object:
    from datetime import UTC, datetime, timedelta

    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=time)


@pytest.mark.pair("scan and follow", "groups")
def test_a_follower_and_a_group_get_the_same_records_while_the_log_goes_on(scene: Scene) -> None:
    follower = scene.log.follow(scene.start, columns=["offset", "value"], timeout_ms=0)
    with scene.store.consumer("t", group_id=GROUP, enable_auto_commit=False) as consumer:
        consumer.poll(max_records=1)
        consumer.seek_to_beginning(PARTITION)
        polled: list[tuple[int, bytes | None]] = []
        for change in ("roll", "option change", "roll"):
            scene.change(change)
            polled += [(each.offset, each.value) for records in consumer.poll().values() for each in records]
            consumer.commit()
        while records := consumer.poll():
            polled += [(each.offset, each.value) for found in records.values() for each in found]
        consumer.commit()
    followed = [pair for frame in follower for pair in zip(*frame.to_pydict().values(), strict=True)]
    assert polled == followed == [(offset, row.value) for offset, row in scene.expected.items()]
    assert scene.store.offsets.position(GROUP, PARTITION) == scene.end
    assert isinstance(scene.store, pylog.Store)
