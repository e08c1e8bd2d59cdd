"""Committed offsets beside records that are damaged, of another version, or that no Kafka writes."""

from __future__ import annotations

import pytest

import pylog
from pylog import OffsetsConfig
from pylog.config import TopicConfig
from pylog.log.maintenance import trimmer
from pylog.offsets.image import Image
from pylog.offsets.schema import (
    OFFSETS_TOPIC,
    format_offset,
    format_partition_key,
    offset_key,
    partition_of_group,
)
from pylog.store import Store
from pylog.testing import MemoryFileSystem
from support import offsets
from support.engines import append_as_another_program, writer_of
from support.offsets import NOW, T0, T1, damage, offsets_log, opened, planted

fs = pytest.fixture(offsets.fs)
store = pytest.fixture(offsets.store)


# ---- damage ------------------------------------------------------------------------------------------------------------------


def test_damaged_offsets_are_corrupt_and_never_none(fs: MemoryFileSystem, store: Store) -> None:
    for offset in range(5):
        store.offsets.commit("g", {T0: offset})
    path = offsets_log(store, "g").segments[0].path
    store.close()
    file = fs.open(path, write=True)
    file.write(memoryview(b"\x77"), 190)  # in the second of five batches
    file.close()
    with opened(fs) as damaged:
        for question in (lambda: damaged.offsets.fetch("g"), lambda: damaged.offsets.pending("g"), damaged.offsets.groups):
            for _ in range(2):  # the second time too
                with pytest.raises(pylog.CorruptionError):
                    question()
        for change in (lambda: damaged.offsets.delete("g"), lambda: damaged.offsets.expire(NOW * 2)):
            with pytest.raises(pylog.CorruptionError):
                change()


@pytest.mark.sampled(4)
@pytest.mark.parametrize(
    ("key", "value"),
    [
        (None, b""),
        (b"\0", b""),
        (b"", b""),
        (b"k", b"v"),
        (b"key", b"value"),
        (b"\xff\xff\0\1g", b""),
        (b"\0\1\0\5g", b""),
        (b"\0\1\0\1g\0\1t\0\0\0", b""),
        (b"\0\1\0\1\xff\0\1t\0\0\0\0", format_offset(1, b"", None, 0)),
        (b"\0\1\0\1g\0\1\xff\0\0\0\0", format_offset(1, b"", None, 0)),
        (b"\0\1\0\1g\0\1/\0\0\0\0", format_offset(1, b"", None, 0)),
        (b"\0\1\0\1g\0\1u\xff\0\0\0", format_offset(1, b"", None, 0)),
        (b"\0\2\0\5g", b""),
        (b"\0\2\0\1g", b"\0\3\0"),
        (b"\0\3\0\1g", b"\0\0"),
        (b"\0\5\0\1g", b"\0\0"),
        (b"\0\5\0\1g\0\1m", b"\0\0nonsense"),
        (offset_key(b"g", format_partition_key(T0)), b""),
        (offset_key(b"g", format_partition_key(T0)), format_offset(7, b"", None, 0)[:-1]),
        (offset_key(b"g", format_partition_key(T0)), format_offset(-5, b"", None, 0)),
        (offset_key(b"g", format_partition_key(T0)), format_offset(1, b"\xff", None, 0)),
    ],
)
@pytest.mark.parametrize("times", [1, 3])
def test_a_record_that_no_kafka_writes_is_skipped_and_no_commit_is_lost_by_it(
    fs: MemoryFileSystem,
    store: Store,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    key: bytes | None,
    value: bytes,
    times: int,
) -> None:
    monkeypatch.setattr(TopicConfig, "is_compacted", False)  # else a record without a key is refused
    number = partition_of_group("g", 2)
    others = [name for name in map(str, range(10)) if partition_of_group(name, 2) == number][:2]
    store.offsets.commit("g", {T0: 1, T1: 2})
    store.offsets.commit(others[0], {T0: 3})
    first = offsets_log(store, "g").end_offset
    planted(store, "g", *[(key, value)] * times)
    store.offsets.commit(others[1], {T0: 4})
    store.offsets.commit("g", {T1: 5})
    committed = {"g": {T0: 1, T1: 5}, others[0]: {T0: 3}, others[1]: {T0: 4}}
    with opened(fs, mode="r") as reading:
        for each in (store, reading):
            assert each.offsets.groups() == sorted(committed)
            for name, offsets in committed.items():
                assert {place: found.offset for place, found in each.offsets.fetch(name).items()} == offsets
                assert {part.partition: part.offset for part in each.group(name).describe().partitions} == offsets
            count, skipped = each.offsets.skipped_records()[number]
            assert (count, [offset for offset, _ in skipped]) == (times, list(range(first, first + times)))
            values = {sample.value for sample in each.metrics() if sample.name == "log_skipped_records"}
            assert values == {0, times}
    assert sorted({record.getMessage().split(":")[0] + record.getMessage().split(":")[1] for record in caplog.records}) == [
        f"/s/{OFFSETS_TOPIC}-{number} the record at offset {offset} is skipped, and no group is affected"
        for offset in range(first, first + times)
    ]


def test_a_record_that_is_skipped_is_reported_once_by_a_store(store: Store, caplog: pytest.LogCaptureFixture) -> None:
    store.offsets.commit("g", {T0: 1})
    planted(store, "g", (b"key", b"value"))
    for offset in range(3):
        store.offsets.commit("g", {T0: offset})
        log = offsets_log(store, "g")
        trimmer.truncate(writer_of(log), log.end_offset - 1)  # all is replayed
        assert store.offsets.groups() == ["g"]
    assert len([record for record in caplog.records if "is skipped" in record.getMessage()]) == 1


def test_records_of_a_transaction_that_no_kafka_writes_are_skipped() -> None:
    image = Image()
    image.take(0, offset_key(b"g", format_partition_key(T0)), format_offset(1, b"", None, 0), producer=7)
    image.take(1, offset_key(b"g", format_partition_key(T0)), b"short", producer=7)
    image.take(2, b"key", b"value", producer=7)
    image.take(3, None, b"value", producer=7)
    assert (image.skipped_count, image.pending_of(b"g")) == (3, {format_partition_key(T0)})


def test_expiry_and_retention_go_by_the_commits_that_can_be_read(fs: MemoryFileSystem) -> None:
    with opened(fs) as store:
        store.create_topic("t", segment_bytes=200, retention_ms=1000, retention_group="g")
        for _ in range(20):
            store.log("t").append_many([(None, b"x" * 50, (), NOW)])
        store.offsets.commit("g", {T0: 10})
        planted(store, "g", (offset_key(b"g", format_partition_key(T0)), b"short"))
        assert store.tick(NOW + 5000) > 0
        assert 8 <= store.log("t").start_offset <= 10
        assert store.offsets.expire(NOW + 10**11) == 0  # retention waits for it
        store.alter_topic("t", retention_group=None)
        assert store.offsets.expire(NOW + 10**11) == 1
        log = offsets_log(store, "g")
        assert log.read(log.end_offset - 1).timestamp == NOW  # the tombstone's: by the clock, not by the time asked for


def test_a_compaction_of_the_topic_keeps_the_groups_beside_a_record_that_is_skipped(fs: MemoryFileSystem) -> None:
    small = OffsetsConfig(topic_num_partitions=1, topic_segment_bytes=4096)
    with opened(fs, offsets=small) as store:
        store.create_topic("t")
        store.log("t").append(b"x")
        store.offsets.commit("a", {T0: 0})
        append_as_another_program(store.log(OFFSETS_TOPIC), (b"key", b"v"))
        for _ in range(200):
            store.offsets.commit("b", {T0: 1})
        assert store.compact(OFFSETS_TOPIC)[0].read
        assert store.offsets.groups() == ["a", "b"]
    with opened(fs, mode="r", offsets=small) as store:
        assert (store.offsets.position("a", T0), store.offsets.position("b", T0)) == (0, 1)
        assert store.offsets.skipped_records()[0][0] == 1
        assert store.verify().ok


def test_damage_in_one_partition_hides_the_groups_of_no_other_one(fs: MemoryFileSystem, store: Store) -> None:
    groups = {partition_of_group(name, 2): name for name in ("a", "b", "c", "d")}
    for offset in range(3):
        for name in groups.values():
            store.offsets.commit(name, {T0: offset})
    damage(fs, offsets_log(store, groups[0]).segments[0].path, 190)
    store.close()
    with opened(fs) as damaged:
        names, errors = damaged.offsets.known_groups()
        assert (names, list(errors), type(errors[0])) == ([groups[1]], [0], pylog.CorruptionError)
        assert damaged.offsets.position(groups[1], T0) == 2
        assert damaged.group(groups[1]).lag() == {T0: 8}
        with pytest.raises(pylog.CorruptionError):
            damaged.offsets.expire(NOW * 2)
        assert damaged.offsets.known_groups()[0] == []  # what had expired elsewhere is deleted all the same
        found = {sample.labels["partition"]: sample.value for sample in damaged.metrics() if _is_unreadable(sample)}
        assert found == {"0": 1, "1": 0}


def _is_unreadable(sample: pylog.metrics.Sample) -> bool:
    return sample.name == "log_unreadable" and sample.labels["topic"] == OFFSETS_TOPIC


def test_values_of_later_versions_are_refused_and_those_of_other_groups_still_served(store: Store) -> None:
    store.offsets.commit("other", {T0: 1})
    store.offsets.commit("g", {T0: 1})
    planted(store, "g", (offset_key(b"g", format_partition_key(T0)), b"\0\5" + bytes(30)))
    with pytest.raises(pylog.UnsupportedFormatError):
        store.offsets.fetch("g")
    assert store.offsets.position("other", T0) == 1


def test_kinds_of_records_that_are_not_ours_are_passed_over_and_kept(store: Store) -> None:
    store.offsets.commit("g", {T0: 1})
    foreign = [(b"\0" + bytes([kind]) + b"\0\1g", b"\0\0") for kind in (4, 6, 7, 8, 9, 99)] + [(b"\x7f\xff", b"any")]
    planted(store, "g", *foreign)
    store.offsets.commit("g", {T0: 2})
    assert store.offsets.position("g", T0) == 2
    kept = [(record.key, record.value) for record in offsets_log(store, "g").records()]
    assert kept[1:-1] == foreign
