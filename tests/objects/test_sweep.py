"""`pylog.sweep` deletes what no manifest needs, and nothing that anybody needs, whatever runs beside it and wherever it dies."""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest

import pylog
from pylog.archive.sweep_plan import MARKER, ORPHAN, RETIRED, TOPIC, VERSION, SweepReport
from pylog.archive.sweeping import sweep
from pylog.archive.verifying import verify_archive
from pylog.clock import ManualClock
from pylog.errors import InvalidArgumentError, NotALogDirectoryError, ObjectStoreError
from pylog.objects.directory_objects import DirectoryObjects
from pylog.objects.layout import SWEEPS, ArchivedPartition, new_segment_id, segment_key, version_key
from pylog.objects.manifest import encode
from pylog.objects.partition_manifests import manifests_of
from pylog.objects.versions import Versions, store_manifests
from support.cli import call
from support.objects import AFTER, BEFORE, MemoryObjects, every_url

NOW = 1_700_000_000_000
DAY = 86_400_000
URL = "s3://any"
TIERED = {"remote_storage_enable": True, "local_retention_bytes": 0}
CONFIG = {"segment_bytes": 400, "retention_ms": -1}


class Killed(BaseException):
    """The process dies in a request."""


class Scene:
    """A store, its archive, and the clock of both."""

    def __init__(self, path: Path, memory: MemoryObjects) -> None:
        self.path = path
        self.memory = memory
        self.clock = ManualClock(NOW)
        memory.now_ms = self.clock.now_ms
        self.appended = 0

    def open(self, directory: str = "shop", **options: object) -> pylog.Store:
        return pylog.open(self.path / directory, durability=pylog.Durability.OS, clock=self.clock, **options)  # type: ignore[arg-type]

    def fill(self, store: pylog.Store, count: int = 12, topic: str = "orders") -> None:
        for _ in range(count):
            store.log(topic).append(b"%d" % self.appended + b"x" * 80)
            self.appended += 1

    def sweep(self, **options: object) -> SweepReport:
        return sweep(URL, clock=self.clock, **options)  # type: ignore[arg-type]

    def orphan(self, store: pylog.Store, topic: str = "orders") -> list[str]:
        """The objects of an upload that was cut off before its commit."""
        archived = ArchivedPartition(topic, store.topic(topic).id or "", 0)
        segment_id = new_segment_id()
        keys = [segment_key(archived, 0, segment_id, suffix) for suffix in (".log", ".indexes")]
        for key in keys:
            self.memory.put_new(key, b"left")
        return keys

    def days(self, count: float) -> None:
        self.clock.advance(int(count * DAY))

    def restored(self, name: str, **options: object) -> list[bytes | None]:
        pylog.restore(URL, self.path / name, **options)  # type: ignore[arg-type]
        with self.open(name, mode="r") as store:
            return [record.value for record in store.log("orders").records()]


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    with every_url(MemoryObjects()) as memory:
        yield Scene(tmp_path, memory)


def reasons(report: pylog.archive.sweep_plan.SweepReport) -> set[str]:  # type: ignore[name-defined]
    return {each.reason for each in report.objects}


# ---- what goes, and what stays ---------------------------------------------------------------------------------------------


def test_orphans_go_after_the_grace_period_each_with_a_line(scene: Scene, caplog: pytest.LogCaptureFixture) -> None:
    with scene.open() as store:
        store.create_topic("orders", **CONFIG)
        scene.fill(store)
        store.archive(URL, include_active=True)
        orphans = scene.orphan(store)
        scene.memory.put_new("notes/readme.txt", b"not pylog's")
        scene.days(6)
        assert scene.sweep().objects == ()
        scene.days(2)
        before = set(scene.memory.objects)
        plan = scene.sweep(dry_run=True)
        assert (set(scene.memory.objects), plan.executed, {each.key for each in plan.objects}) == (before, False, set(orphans))
        with caplog.at_level(logging.INFO, "pylog.archive"):
            report = scene.sweep()
        assert report.objects == plan.objects
        assert (report.executed, report.bytes, reasons(report)) == (True, 8, {ORPHAN})
        assert not set(scene.memory.objects) & set(orphans)
        assert "notes/readme.txt" in scene.memory.objects
        lines = [each.pylog for each in caplog.records if each.pylog["event"] == "swept"]  # type: ignore[attr-defined]
        assert {line["path"] for line in lines} == {f"{scene.memory.url}/{key}" for key in orphans}
        assert {line["reason"] for line in lines} == {ORPHAN}
        assert scene.sweep().objects == ()
    assert verify_archive(scene.memory, deep=True, orphans=True).ok
    assert len(scene.restored("copy")) == 12


def test_deleted_records_go_once_no_restore_of_the_past_needs_them(scene: Scene) -> None:
    with scene.open() as store:
        store.create_topic("orders", **CONFIG)
        scene.fill(store)
        store.archive(URL, include_active=True)
        then = scene.clock.now_ms()
        scene.days(1)
        store.log("orders").delete_records(8)
        store.archive()
        scene.days(36)
        scene.sweep()
        assert len(scene.restored("past", as_of=then)) == 12  # 36 days back: the promise is 30
        scene.days(2)
        report = scene.sweep()
        assert reasons(report) == {RETIRED, VERSION}
        assert verify_archive(scene.memory, deep=True, orphans=True).orphans == ()
        assert len(scene.restored("now")) == 4
        with pytest.raises(InvalidArgumentError, match="was swept: the archive can be restored as of 17"):
            pylog.restore(URL, scene.path / "too-old", as_of=then)
        scene.fill(store)
        store.archive(include_active=True)
    assert len(scene.restored("later")) == 16


def test_a_deleted_topic_goes_as_a_whole_once_no_restore_of_the_past_needs_it(scene: Scene) -> None:
    with scene.open() as store:
        for topic in ("orders", "old"):
            store.create_topic(topic, **CONFIG)
            scene.fill(store, topic=topic)
        store.archive(URL, include_active=True)
        scene.days(1)
        store.delete_topic("old")
        store.archive()
        scene.days(36)
        assert not [each for each in scene.sweep().objects if "old-" in each.key]
        scene.days(2)
        report = scene.sweep()
    assert {each.reason for each in report.objects if "old-" in each.key} == {TOPIC}
    assert not [key for key in scene.memory.objects if "old-" in key]
    assert len(scene.restored("copy")) == 12


def test_a_topic_that_no_manifest_of_the_store_names_yet_stays(scene: Scene) -> None:
    """A tiered topic gets there a minute after its first upload, and its local segments may be deleted by then."""
    with scene.open(archive=scene.memory) as store:
        store.create_topic("orders", **CONFIG, **TIERED)
        store.create_topic("other", **CONFIG, **TIERED)
        scene.fill(store)
        scene.fill(store, topic="other")
        store.tick()
        stores = store_manifests(scene.memory)
        newest = stores.newest()
        assert newest.document is not None
        without = {key: value for key, value in newest.document.topics.items() if key != "other"}
        for key in [key for key in scene.memory.objects if key.startswith("pylog/store/0")]:
            scene.memory.delete([key])
        assert stores.commit(newest.taken, encode(msgspec.structs.replace(newest.document, topics=without)))
        scene.days(400)
        scene.sweep()
        assert any(key.startswith("pylog/partitions/other-") for key in scene.memory.objects)
        assert len(list(store.log("other").records())) == 12
        assert store.log("other").local_start_offset > 0


def test_the_delay_of_a_tiered_topic_counts_if_it_is_longer(scene: Scene) -> None:
    with scene.open(archive=scene.memory) as store:
        store.create_topic("orders", remote_delete_delay_ms=100 * DAY, **CONFIG, **TIERED)
        scene.fill(store)
        store.tick()
        first = next(key for key in sorted(scene.memory.objects) if key.startswith("orders-"))
        store.log("orders").delete_records(8)
        scene.days(60)
        scene.sweep()
        assert first in scene.memory.objects
        scene.days(60)
        scene.sweep()
        assert first not in scene.memory.objects
        store.tick()
        assert len(list(store.log("orders").records())) == 4
        assert store.verify().ok


def test_old_versions_go_oldest_first_and_the_newest_stays_however_old(scene: Scene) -> None:
    with scene.open() as store:
        store.create_topic("orders", **CONFIG)
        for _ in range(6):
            scene.fill(store, 4)
            store.archive(URL, include_active=True)
            scene.days(1)
        scene.days(300)
        scene.memory.requests.clear()
        scene.sweep()
        gone = [key for request, key in scene.memory.requests if request == "delete" and "/partitions/orders" in key]
        assert gone == sorted(gone)
        assert len(gone) == 5
        left = [key for key in scene.memory.objects if "/partitions/orders" in key and key.endswith(".zst")]
        assert len(left) == 1
        assert len([key for key in scene.memory.objects if key.endswith(".parquet") and "/orders-" in key]) == 1
        scene.memory.delete([key for key in scene.memory.objects if key.endswith("head.json")])
        scene.fill(store, 4)
        store.archive(include_active=True)
    assert len(scene.restored("copy")) == 28


def test_the_objects_of_a_damaged_manifest_stay(scene: Scene) -> None:
    with scene.open() as store:
        store.create_topic("orders", **CONFIG)
        scene.fill(store)
        store.archive(URL, include_active=True)
        archived = ArchivedPartition("orders", store.topic("orders").id or "", 0)
    taken = manifests_of(scene.memory, archived).newest().taken
    scene.memory.put_new(version_key(archived.manifests, taken + 1, ".json.zst"), b"damaged")
    scene.days(400)
    before = set(scene.memory.objects)
    report = scene.sweep()
    assert [each.key for each in report.objects if "orders-" in each.key and not each.key.endswith(".parquet")] == []
    assert "orders-0 were left alone" in report.left[0]
    assert {key for key in before if key.startswith("orders-")} <= set(scene.memory.objects)


def test_a_damaged_manifest_of_the_store_keeps_deleted_topics(scene: Scene) -> None:
    with scene.open() as store:
        store.create_topic("old", **CONFIG)
        scene.fill(store, topic="old")
        store.archive(URL, include_active=True)
        store.delete_topic("old")
        store.create_topic("orders", **CONFIG)
        store.archive()
    taken = store_manifests(scene.memory).newest().taken
    scene.memory.put_new(version_key("pylog/store/", taken + 1, ".json.zst"), b"damaged")
    scene.days(400)
    report = scene.sweep()
    assert [key for key in scene.memory.objects if key.startswith("old-")]
    assert any("pylog/store/" in each for each in report.left)


def test_what_is_refused(scene: Scene) -> None:
    with pytest.raises(NotALogDirectoryError, match="has no archive of a store"):
        scene.sweep()
    with pytest.raises(InvalidArgumentError, match="grace_ms=0 is not"):
        scene.sweep(grace_ms=0)
    assert not scene.memory.objects


def test_a_clock_that_is_ahead_deletes_nothing_early(scene: Scene) -> None:
    with scene.open() as store:
        store.create_topic("orders", **CONFIG)
        store.archive(URL)
        orphans = scene.orphan(store)
    assert sweep(URL, clock=ManualClock(NOW + 400 * DAY)).objects == ()
    assert set(orphans) <= set(scene.memory.objects)


def test_the_command_shows_a_plan_and_deletes_with_execute(tmp_path: Path) -> None:
    archive = tmp_path / "archive"
    with pylog.open(tmp_path / "shop") as store:
        store.create_topic("orders")
        store.archive(str(archive))
        archived = ArchivedPartition("orders", store.topic("orders").id or "", 0)
    key = segment_key(archived, 0, new_segment_id(), ".log")
    DirectoryObjects(str(archive)).put_new(key, b"left")
    os.utime(archive / key, (0, 0))
    plan = call("sweep", archive)
    assert (plan.code, key in plan.text, ORPHAN in plan.text) == (0, True, True)
    assert "--execute would delete 1 object, 4 B" in plan.text
    assert (archive / key).exists()
    done = call("sweep", archive, "--grace", "P1D", "--history", "P0D", "--execute", "--json")
    assert done.json["objects"] == [{"object": key, "bytes": 4, "reason": ORPHAN}]
    assert (done.json["executed"], done.json["left"], (archive / key).exists()) == (True, [], False)
    assert "deleted 0 objects" in call("sweep", archive, "--execute").text
    refused = call("sweep", archive, "--grace", "PT1M")
    assert (refused.code, "grace_ms=60000 is not" in refused.complaints) == (2, True)
    assert "has no archive" in call("sweep", tmp_path / "none").complaints


# ---- crashes and other processes -----------------------------------------------------------------------------------------------


def old_scene(scene: Scene) -> None:
    """An archive with everything that a sweep deletes."""
    with scene.open() as store:
        for topic in ("orders", "old"):
            store.create_topic(topic, **CONFIG)
            scene.fill(store, 6, topic)
        store.archive(URL, include_active=True)
        scene.orphan(store)
        scene.memory.put_new(f"{SWEEPS}0123", b"")
        scene.days(1)
        store.log("orders").delete_records(4)
        store.delete_topic("old")
        store.archive()
        scene.fill(store, 6)
        scene.days(1)
        store.archive(include_active=True)
    scene.days(60)


def whole(scene: Scene, name: str) -> None:
    assert verify_archive(scene.memory, deep=True).ok
    assert len(scene.restored(name)) == 8


@pytest.mark.slow
@pytest.mark.parametrize("kind", [BEFORE, AFTER])
def test_a_sweep_that_dies_in_any_request_is_finished_by_the_next(scene: Scene, kind: str) -> None:
    old_scene(scene)
    objects, times = dict(scene.memory.objects), dict(scene.memory.times)
    expected = {each.key for each in scene.sweep(dry_run=True).objects}
    scene.sweep()
    final = {key for key in scene.memory.objects if not key.startswith("pylog/partitions/") and not key.endswith("head.json")}
    at, finished = 0, False
    while not finished:
        scene.memory.objects, scene.memory.times = dict(objects), dict(times)
        numbers = iter(range(10**6))
        scene.memory.fault = lambda request, key, at=at, numbers=numbers: kind if next(numbers) == at else None  # type: ignore[misc]
        try:
            scene.sweep()
            finished = next(numbers) <= at
        except ObjectStoreError:
            pass
        scene.memory.fault = lambda request, key: None
        whole(scene, f"copy-{at}")
        scene.days(8)  # the marker of a sweep that died
        report = scene.sweep()
        kept = {key for key in scene.memory.objects if not key.startswith("pylog/partitions/") and not key.endswith("head.json")}
        assert kept == final
        assert {each.key for each in report.objects} - expected == {
            each.key for each in report.objects if each.reason in (MARKER, VERSION)
        } - expected
        at += 1
    assert at > 20


def interleaved(scene: Scene, run: Callable[[], object], beside: Callable[[], object], check: Callable[[int], None]) -> int:
    """Does something before each request of a run, one request at a time; returns how many there were."""
    objects, times = dict(scene.memory.objects), dict(scene.memory.times)
    at = 0
    while True:
        scene.memory.objects, scene.memory.times = dict(objects), dict(times)
        numbers, reached = iter(range(10**6)), []

        def fault(request: str, key: str, at: int = at) -> None:
            if next(numbers) == at:  # noqa: B023 - called in this round only
                reached.append(key)  # noqa: B023
                scene.memory.fault = lambda request, key: None
                beside()

        scene.memory.fault = fault
        run()
        scene.memory.fault = lambda request, key: None
        if not reached:
            return at
        check(at)
        at += 1


@pytest.mark.slow
def test_two_sweeps_at_once_delete_the_same(scene: Scene) -> None:
    old_scene(scene)
    whole(scene, "before")
    assert interleaved(scene, scene.sweep, scene.sweep, lambda at: whole(scene, f"copy-{at}")) > 20


@pytest.mark.slow
def test_a_sweep_beside_an_archiver_never_takes_what_it_names(scene: Scene) -> None:
    """At each request of the archiver a sweep runs that finds its uploads old: the archiver was suspended for a month there."""
    old_scene(scene)
    clock, copies = scene.clock.now_ms(), iter(range(10**6))

    def archive() -> None:
        name = f"writer-{next(copies)}"
        pylog.restore(URL, scene.path / name)
        with scene.open(name) as store:
            scene.fill(store, 6)
            with contextlib.suppress(ObjectStoreError):  # its uploads were deleted
                store.archive(include_active=True)
            store.archive(include_active=True)

    def suspended() -> None:
        scene.days(60)
        scene.sweep()

    def check(at: int) -> None:
        assert verify_archive(scene.memory, deep=True).ok
        assert len(scene.restored(f"checked-{at}")) == 14
        scene.clock.advance(clock - scene.clock.now_ms())

    assert interleaved(scene, archive, suspended, check) > 40


@pytest.mark.slow
def test_a_sweep_beside_tiering_never_takes_what_a_tick_is_about_to_name(scene: Scene) -> None:
    at, reached = 0, True
    while reached:
        scene.memory.objects.clear()
        reached = False
        numbers = iter(range(10**6))

        def fault(request: str, key: str, at: int = at) -> None:
            nonlocal reached
            if next(numbers) == at:  # noqa: B023
                reached = True
                scene.memory.fault = lambda request, key: None
                scene.days(60)
                if any(key.startswith("pylog/store/0") for key in scene.memory.objects):
                    scene.sweep()

        with scene.open(f"shop-{at}", archive=scene.memory) as store:
            store.create_topic("orders", **CONFIG, **TIERED)
            scene.appended = 0
            scene.fill(store, 6)
            store.tick()
            scene.fill(store, 6)
            scene.clock.advance(61_000)
            scene.memory.fault = fault
            store.tick()
            scene.memory.fault = lambda request, key: None
            store.tick()
            assert [record.offset for record in store.log("orders").records()] == list(range(12))
            assert store.log("orders").local_start_offset > 6
            assert verify_archive(scene.memory, deep=True).ok
        at += 1
    assert at > 20


@pytest.mark.slow
def test_a_restore_of_the_past_beside_a_sweep_has_all_or_fails(scene: Scene) -> None:
    with scene.open() as store:
        store.create_topic("orders", **CONFIG)
        scene.fill(store)
        store.archive(URL, include_active=True)
        then = scene.clock.now_ms()
        scene.days(1)
        store.log("orders").delete_records(8)
        store.archive()
    scene.days(28)
    copies = iter(range(10**6))
    found: list[list[bytes | None]] = []

    def run() -> None:
        found.append(scene.restored(f"past-{next(copies)}", as_of=then))

    def beside() -> None:
        scene.sweep()

    assert interleaved(scene, run, beside, lambda at: None) > 10
    assert {len(each) for each in found} == {12}
    scene.days(30)
    scene.memory.fault = lambda request, key: beside_once() if key.endswith(".log") else None

    def beside_once() -> None:
        scene.memory.fault = lambda request, key: None
        scene.sweep()

    with pytest.raises(pylog.ObjectNotFoundError):
        pylog.restore(URL, scene.path / "late", as_of=then)
    with pytest.raises(pylog.IllegalStateError, match="unfinished restore"):
        scene.open("late")


def test_a_writer_that_paused_until_its_version_was_swept_writes_nothing_anybody_reads(scene: Scene) -> None:
    with scene.open() as store:
        store.create_topic("orders", **CONFIG)
        for _ in range(5):
            scene.fill(store, 4)
            store.archive(URL, include_active=True)
        archived = ArchivedPartition("orders", store.topic("orders").id or "", 0)
    versions = manifests_of(scene.memory, archived)
    old, newest = versions.at(2), versions.newest()
    scene.days(60)
    scene.sweep()
    assert len([key for key in scene.memory.objects if key.startswith(archived.manifests + "0")]) == 1
    for version in range(1, newest.taken):
        assert not versions.commit(version, encode(old))
        versions.hint(version)  # as another paused writer would
        assert Versions.newest(versions) == newest
    assert versions.commit(newest.taken + 1, encode(old))


def test_a_commit_counts_although_the_version_before_it_was_swept_meanwhile(scene: Scene) -> None:
    """The newest version must never be deleted for that."""
    with scene.open() as store:
        store.create_topic("orders", **CONFIG)
        scene.fill(store, 4)
        store.archive(URL, include_active=True)
        archived = ArchivedPartition("orders", store.topic("orders").id or "", 0)
        scene.days(1)

        def fault(request: str, key: str) -> None:
            if request == "head" and key.startswith(archived.manifests):
                scene.memory.fault = lambda request, key: None
                scene.days(60)
                scene.sweep()

        scene.fill(store, 4)
        scene.memory.fault = fault
        store.archive(include_active=True)
        assert scene.clock.now_ms() > NOW + 60 * DAY
    assert len(scene.restored("copy")) == 8
