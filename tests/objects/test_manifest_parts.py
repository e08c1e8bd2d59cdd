"""A partition with many segments: its manifests name parts, and every reader, writer and sweep has all segments."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import pylog
from pylog import archived_files, limits
from pylog.archive.sweeping import sweep
from pylog.archive.verifying import verify_archive
from pylog.archived_files import archived_store
from pylog.archived_outlines import ArchivedOutlines
from pylog.clock import ManualClock
from pylog.errors import CorruptionError, ObjectStoreError
from pylog.objects import partition_manifests
from pylog.objects.cache import SmallObjects
from pylog.objects.layout import ArchivedPartition, new_segment_id, parse_part_key, version_key
from pylog.objects.manifest import Manifest, RemoteSegment, decode_manifest
from pylog.objects.partition_manifests import manifests_of, split
from pylog.record.types import TopicPartition
from support.objects import AFTER, BEFORE, MemoryObjects, every_url

DAY = 86_400_000
URL = "s3://any"
FEW = 3
TIERED: dict[str, Any] = {"remote_storage_enable": True, "local_retention_bytes": 2400, "retention_ms": -1, "segment_bytes": 400}
PARTITION = ArchivedPartition("orders", "8SSgzKVaS0qTG9g3Uu47gg", 0)


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> int:
    """Three segments in a manifest at most."""
    monkeypatch.setattr(limits, "MANIFEST_SEGMENTS", FEW)
    return FEW


def forget(patch: pytest.MonkeyPatch) -> None:
    """Forgets the small objects that this process has read."""
    kept = SmallObjects(limits.REMOTE_CACHE_BYTES)
    for module in (partition_manifests, archived_files):
        patch.setattr(module, "SMALL_OBJECTS", kept)


@pytest.fixture
def memory() -> Iterator[MemoryObjects]:
    with every_url(MemoryObjects()) as found:
        yield found


def segment(number: int) -> RemoteSegment:
    facts: dict[str, Any] = {"size": 100, "log_crc32c": 1, "indexes_crc32c": 2, "indexes_size": 0}
    return RemoteSegment(base_offset=number * 10, end_offset=number * 10 + 10, segment_id=new_segment_id(), **facts)


def manifest(version: int, segments: tuple[RemoteSegment, ...], **given: Any) -> Manifest:
    known: dict[str, Any] = {"store_id": "s", "writer": "w", "written_ms": version, "topic": "orders"}
    return Manifest(version=version, topic_id=PARTITION.topic_id, partition=0, segments=segments, **known | given)


def parts(objects: MemoryObjects) -> list[str]:
    return [key for key in objects.objects if parse_part_key(key) is not None]


def fill(store: pylog.Store, count: int, topic: str = "orders") -> None:
    log = store.log(topic)
    for _ in range(count):
        log.append(b"%d" % log.end_offset + b"x" * 80)


def on_disk(memory: MemoryObjects, directory: Path) -> str:
    """Writes the objects to a directory. Returns its URL."""
    for key, data in memory.objects.items():
        path = directory / key
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    return f"file://{directory}"


def values(store: pylog.Store) -> list[int]:
    return [int(record.value[:-80]) for record in store.log("orders").records() if record.value is not None]


# ---- documents -------------------------------------------------------------------------------------------------------------


@settings(max_examples=60, deadline=None)
@given(st.lists(st.sampled_from(["add", "add many", "start", "cut", "replace", "all"]), max_size=25), st.data())
def test_any_history_reads_as_it_was_written(steps: list[str], data: st.DataObject) -> None:
    objects = MemoryObjects()
    versions, segments, number, before = manifests_of(objects, PARTITION), tuple[RemoteSegment, ...](), 0, None
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(limits, "MANIFEST_SEGMENTS", FEW)
        for version, step in enumerate(steps, 1):
            if step.startswith("add"):
                count = 1 if step == "add" else data.draw(st.integers(2, 11))
                segments += tuple(segment(each) for each in range(number, number + count))
                number += count
            else:
                at = data.draw(st.integers(0, len(segments)))
                changed = {"start": segments[at:], "cut": segments[:at], "all": ()}
                other = tuple(msgspec.structs.replace(each, segment_id=new_segment_id()) for each in segments[at : at + 1])
                segments = changed.get(step, segments[:at] + other + segments[at + 1 :])
            base = manifest(version, segments) if before is None else msgspec.structs.replace(before, version=version)
            assert versions.create(msgspec.structs.replace(base, segments=segments), before)
            newest = manifests_of(objects, PARTITION).newest()
            assert (newest.taken, newest.document is not None) == (version, True)
            before = newest.document
            assert before is not None
            assert before.segments == segments
            own = decode_manifest(objects.objects[version_key(PARTITION.manifests, version, ".json.zst")], "x")
            assert len(own.segments) <= FEW
            named = {each.part_id for each in before.parts} | {each.part_id for each in before.retired_parts}
            assert {(parse_part_key(key) or ("", ""))[1] for key in parts(objects)} == named


def test_a_commit_writes_the_last_segments_only_and_a_part_is_created_once(few: int) -> None:
    objects, before = MemoryObjects(), None
    for version in range(1, 12):
        known = () if before is None else before.segments
        base = manifest(version, ()) if before is None else msgspec.structs.replace(before, version=version)
        manifests_of(objects, PARTITION).create(msgspec.structs.replace(base, segments=(*known, segment(version))), before)
        before = manifests_of(objects, PARTITION).newest().document
    created = [key for request, key in objects.requests if request == "put_new" and parse_part_key(key)]
    assert created == parts(objects)
    assert len(created) == 3


def test_a_log_start_in_a_part_names_its_rest_and_creates_nothing(few: int) -> None:
    segments = tuple(segment(each) for each in range(8))
    first = split(manifest(1, segments), None)
    assert [name.count for name in first.document.parts] == [3, 3]
    before = msgspec.structs.replace(first.document, segments=segments)
    later = split(msgspec.structs.replace(before, version=2, segments=segments[4:]), before)
    assert later.created == {}
    (name,) = later.document.parts
    assert (name.skipped, name.count, name.base_offset, name.end_offset) == (1, 2, 40, 60)
    assert [each.part_id for each in later.document.retired_parts] == [first.document.parts[0].part_id]


def test_ten_thousand_segments(memory: MemoryObjects) -> None:
    """Adding one to them costs a document of the last ones, and reading them the parts, once."""
    segments = tuple(segment(each) for each in range(10_000))
    versions = manifests_of(memory, PARTITION)
    assert versions.create(manifest(1, segments), None)
    assert len(parts(memory)) == 2
    before = versions.newest().document
    assert before is not None
    assert before.segments == segments
    memory.requests.clear()
    added = msgspec.structs.replace(before, version=2, segments=(*segments, segment(10_000)))
    assert versions.create(added, before)
    assert [request for request, _ in memory.requests] == ["put_new", "head", "put_if"]
    sizes = [len(memory.objects[version_key(PARTITION.manifests, version, ".json.zst")]) for version in (1, 2)]
    whole = len(split(manifest(1, segments[:4000]), None).document.segments)
    assert max(sizes) < 100 * whole
    memory.requests.clear()
    found = versions.newest().document
    assert found is not None
    assert found.end_offset == 100_010
    assert [request for request, _ in memory.requests] == ["get"] * 3  # the parts are in memory


@pytest.mark.parametrize("kind", [BEFORE, AFTER])
def test_a_fault_at_any_request_of_a_commit_leaves_the_version_before_or_the_next(few: int, kind: str) -> None:
    segments = tuple(segment(each) for each in range(8))
    for failing in range(1, 20):
        objects = MemoryObjects()
        versions = manifests_of(objects, PARTITION)
        assert versions.create(manifest(1, segments[:2]), None)
        before = versions.newest().document
        assert before is not None
        numbers = iter(range(1, 100))
        objects.fault = lambda request, key: kind if next(numbers) == failing else None  # noqa: B023
        with suppress(ObjectStoreError):
            versions.create(msgspec.structs.replace(before, version=2, segments=segments), before)
        is_done = next(numbers) <= failing
        objects.fault = lambda request, key: None
        found = manifests_of(objects, PARTITION).newest().document
        assert found is not None
        assert found.segments in (segments[:2], segments)
        if is_done:
            assert found.segments == segments
            return
    pytest.fail("a commit has no 20 requests")


@pytest.mark.parametrize("damage", ["missing", "flipped", "other"])
def test_a_damaged_part_is_named_and_no_earlier_version_counts(
    few: int, memory: MemoryObjects, tmp_path: Path, damage: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An earlier version would lack segments that are nowhere else."""
    with pylog.open(tmp_path / "shop") as store:
        store.create_topic("orders", segment_bytes=400, retention_ms=-1)
        fill(store, 30)
        store.archive(URL, include_active=True)
        first, second = parts(memory)[:2]
        if damage == "missing":
            del memory.objects[first]
        elif damage == "flipped":
            memory.objects[first] = memory.objects[first][:-1] + bytes([memory.objects[first][-1] ^ 1])
        else:
            memory.objects[first] = memory.objects[second]
        forget(monkeypatch)
        before = dict(memory.objects)
        for call in (
            lambda: store.archive(URL),
            lambda: pylog.restore(URL, tmp_path / "copy"),
            lambda: pylog.read_table(on_disk(memory, tmp_path / "objects"), "orders"),
        ):
            with pytest.raises(CorruptionError, match=r"offsets 0 to \d+ are"):
                call()
        assert {key: memory.objects[key] for key in before if key.startswith("orders-")} == {
            key: data for key, data in before.items() if key.startswith("orders-")
        }
    found = verify_archive(memory, deep=True, orphans=True)
    assert [(each.kind, each.offset) for each in found.findings] == [("corrupt", 0)]
    assert found.orphans == ()
    memory.now_ms = lambda: 2 * 10**12
    report = sweep(URL, clock=ManualClock(2 * 10**12))
    assert not [each for each in report.objects if each.key.startswith("orders-")]
    assert len(report.left) == 1


# ---- stores ----------------------------------------------------------------------------------------------------------------


def test_an_archive_with_parts_restores_reads_and_plans(few: int, memory: MemoryObjects, tmp_path: Path) -> None:
    clock = ManualClock(1_700_000_000_000)
    memory.now_ms = clock.now_ms
    with pylog.open(tmp_path / "shop", clock=clock) as store:
        store.create_topic("orders", segment_bytes=400, retention_ms=-1)
        for _ in range(4):
            fill(store, 15)
            store.archive(URL, include_active=True)
            clock.advance(DAY)
        assert len(parts(memory)) > 3
        then = clock.now_ms()
        clock.advance(DAY)
        store.log("orders").delete_records(40)
        store.archive(URL)
        store.log("orders").truncate(50)
        fill(store, 6)
        store.archive(URL, include_active=True)
    for name, as_of, expected in (("now", None, [*range(40, 56)]), ("past", then, [*range(60)])):
        report = pylog.restore(URL, tmp_path / name, as_of=as_of)
        assert report.lost == 0
        with pylog.open(tmp_path / name, "r") as copy:
            assert values(copy) == expected
            assert copy.verify().ok
    with pylog.open(on_disk(memory, tmp_path / "objects"), mode="r") as remote:
        assert values(remote) == [*range(40, 56)]
    outlines = ArchivedOutlines(memory, archived_store(memory))
    extent = outlines.extent(TopicPartition("orders", 0)).extent
    assert (extent.start_offset, extent.end_offset) == (40, 56)
    assert verify_archive(memory, deep=True, orphans=True).ok


def test_a_sweep_deletes_parts_once_no_restore_of_the_past_needs_them(few: int, memory: MemoryObjects, tmp_path: Path) -> None:
    clock = ManualClock(1_700_000_000_000)
    memory.now_ms = clock.now_ms
    with pylog.open(tmp_path / "shop", clock=clock) as store:
        store.create_topic("orders", segment_bytes=400, retention_ms=-1)
        fill(store, 40)
        store.archive(URL, include_active=True)
        then, known = clock.now_ms(), parts(memory)
        clock.advance(DAY)
        store.log("orders").delete_records(30)
        store.archive(URL)
        orphan = next(iter(known)).replace(known[0][-31:-9], new_segment_id())
        memory.put_new(orphan, b"left by a crash")
        assert verify_archive(memory, orphans=True).orphans[0].key == orphan
        clock.advance(36 * DAY)
        sweep(URL, clock=clock)
        assert orphan not in memory.objects
        assert set(known) <= set(memory.objects)
        pylog.restore(URL, tmp_path / "past", as_of=then)
        clock.advance(2 * DAY)
        sweep(URL, clock=clock)
        assert len(set(known) & set(memory.objects)) < len(known)
        fill(store, 30)
        store.archive(URL, include_active=True)
        assert verify_archive(memory, deep=True, orphans=True)[4:] == ((), ())
        pylog.restore(URL, tmp_path / "now")
    with pylog.open(tmp_path / "now", "r") as copy:
        assert values(copy) == [*range(30, 70)]


def test_a_tiered_topic_with_parts_reads_from_both_tiers(few: int, memory: MemoryObjects, tmp_path: Path) -> None:
    clock = ManualClock(1_700_000_000_000)
    memory.now_ms = clock.now_ms
    with pylog.open(tmp_path / "shop", archive=memory, clock=clock) as store:
        store.create_topic("orders", **TIERED)
        for _ in range(5):
            fill(store, 12)
            store.tick()
        log = store.log("orders")
        assert log.local_start_offset > 40
        assert values(store) == [*range(60)]
        log.delete_records(20)
        log.truncate(55)
        fill(store, 5)
        store.tick()
        assert len(parts(memory)) > 2
    with pylog.open(tmp_path / "shop", archive=memory, clock=clock) as store:
        assert values(store) == [*range(20, 60)]
        store.delete_topic("orders")
        clock.advance(2 * DAY)
        store.tick()
        clock.advance(40 * DAY)
        store.tick()
        sweep(URL, clock=clock)
    assert not [key for key in memory.objects if key.startswith("orders-")]
