"""Where an archive may be, processes that archive for the first time together, and what happens beside a run."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import pylog
from pylog.archive.verifying import verify_archive
from pylog.errors import InvalidArgumentError, ObjectStoreError, UnknownTopicOrPartitionError
from pylog.objects import open_objects
from pylog.objects.objects import Data, check_creates_once
from pylog.testing import MemoryFileSystem
from pylog.topics.signs import ARCHIVE_SETTINGS
from support.objects import BEFORE, MemoryObjects, every_url

ARCHIVES = """
import sys, pylog
sys.stdin.readline()
with pylog.open(sys.argv[1]) as store:
    for _ in range(3):
        store.archive(sys.argv[2], include_active=True)
"""


@pytest.mark.parametrize("inside", ["", "/", "/sub", "/orders-0", "/../shop/x"])
def test_an_archive_inside_the_store_is_refused(tmp_path: Path, inside: str) -> None:
    """Its directories may pass for partitions, and it is lost with the store."""
    shop = tmp_path / "shop"
    with pylog.open(shop) as store:
        store.create_topic("orders")
        store.log("orders").append(b"paid")
        before = sorted(shop.rglob("*"))
        for url in (f"{shop}{inside}", f"file://{shop}{inside}"):
            with pytest.raises(InvalidArgumentError, match="is inside the store"):
                store.archive(url)
        assert sorted(shop.rglob("*")) == before
        (tmp_path / "link").symlink_to(shop)
        with pytest.raises(InvalidArgumentError, match="is inside the store"):
            store.archive(str(tmp_path / "link" / "x"))
        store.archive(str(tmp_path / "shop-archive"))
    with pytest.raises(InvalidArgumentError, match="is inside the store"):
        pylog.open(tmp_path / "other", archive=str(tmp_path / "other" / "x"))


def test_a_restored_archive_without_topics_is_a_directory_that_opens(tmp_path: Path) -> None:
    with pylog.open(tmp_path / "store") as store:
        store.archive(str(tmp_path / "archive"))
    pylog.restore(str(tmp_path / "archive"), tmp_path / "restored")
    with pylog.open(tmp_path / "restored") as store:
        store.create_topic("orders")
        assert store.log("orders").append(b"paid") == 0


ODD_NAMES = ("a b", "a#b", "a?b", "100%", "%2e%2e", "new\nline", "caf\u00e9", "\udcff")


@pytest.mark.parametrize("name", ODD_NAMES, ids=ascii)
def test_an_archive_in_a_directory_of_any_name_is_found_again(tmp_path: Path, name: str) -> None:
    """The settings of a store keep the URL: without escapes, archived records could not be read after the next opening."""
    shop, archive = tmp_path / "shop", tmp_path / name
    with pylog.open(shop, archive=str(archive)) as store:
        store.create_topic("orders", remote_storage_enable=True, segment_bytes=300, local_retention_bytes=400, retention_ms=-1)
        for number in range(20):
            store.log("orders").append(b"%d" % number * 50)
        store.tick()
        assert store.log("orders").local_start_offset > 10
    with pylog.open(shop) as store:
        assert [record.offset for record in store.log("orders").records()] == list(range(20))
    pylog.open(shop, archive=archive.as_uri()).close()
    assert pylog.read_table(archive.as_uri(), "orders").num_rows > 10
    with pytest.raises(pylog.IllegalStateError, match="the archive of"):
        pylog.open(shop, archive=str(tmp_path / "other"))


def test_an_archive_whose_url_was_kept_without_escapes_is_the_same_one(tmp_path: Path) -> None:
    shop, archive = tmp_path / "shop", tmp_path / "a b"
    pylog.open(shop, archive=str(archive)).close()
    settings = shop / ARCHIVE_SETTINGS
    settings.write_text(settings.read_text().replace("a%20b", "a b"))
    pylog.open(shop).close()
    pylog.open(shop, archive=str(archive)).close()


class _Beside(MemoryObjects):
    """A store in which another process makes the same check before each request of a check."""

    inside = False

    def put_new(self, key: str, data: Data) -> None:
        if not self.inside:
            self.inside = True
            check_creates_once(self)
            self.inside = False
        super().put_new(key, data)


def test_two_processes_that_check_one_store_at_the_same_time_do_not_disturb_each_other() -> None:
    objects = _Beside()
    check_creates_once(objects)
    assert not objects.objects


@pytest.mark.slow
def test_processes_that_archive_for_the_first_time_give_the_store_one_id(tmp_path: Path) -> None:
    shop, archive = tmp_path / "shop", str(tmp_path / "archive")
    with pylog.open(shop) as store:
        store.create_topic("orders", partition_count=2, segment_bytes=300)
        for number in range(20):
            store.log("orders", number % 2).append(b"%d" % number + b"x" * 80)
    command = [sys.executable, "-c", ARCHIVES, str(shop), archive]
    pipes = {"stdin": subprocess.PIPE, "stderr": subprocess.PIPE}
    processes = [subprocess.Popen(command, **pipes) for _ in range(3)]  # type: ignore[call-overload]
    for process in processes:
        process.stdin.write(b"\n")
        process.stdin.flush()
    ended = [(process.communicate()[1].decode(), process.returncode) for process in processes]
    assert [code for _, code in ended] == [0, 0, 0], ended
    found = verify_archive(open_objects(archive), deep=True, orphans=True)
    assert (found.ok, found.orphans) == (True, ())
    pylog.restore(archive, tmp_path / "copy")
    with pylog.open(tmp_path / "copy", "r") as copy:
        assert sum(len(list(copy.log("orders", number).records())) for number in range(2)) == 20


def test_segments_that_were_uploaded_before_the_disk_was_full_are_archived() -> None:
    """They would fill the rest of the disk at each attempt, and no attempt would come further."""
    fs, memory = MemoryFileSystem(), MemoryObjects()
    with every_url(memory), pylog.open("/shop", fs=fs) as store:
        store.create_topic("orders", segment_bytes=300, retention_ms=-1)
        for number in range(20):
            store.log("orders").append(b"%d" % number + b"x" * 80)
        logs = iter(range(1, 100))

        def is_full(request: str, key: str) -> str | None:
            return BEFORE if request == "put_new" and key.endswith(".log") and next(logs) > 4 else None

        memory.fault = is_full
        with pytest.raises(ObjectStoreError):
            store.archive("s3://any", include_active=True)
        memory.fault = lambda request, key: None
        pylog.restore("s3://any", "/copy", fs=fs)
        with pylog.open("/copy", "r", fs=fs) as copy:
            assert len(list(copy.log("orders").records())) == 4  # each in a segment of its own
        store.archive("s3://any", include_active=True)
        assert sum(key.endswith(".log") for key in memory.objects) == 20
    found = verify_archive(memory, deep=True, orphans=True)
    assert (found.ok, found.orphans) == (True, ())


@pytest.mark.parametrize("at", range(1, 40, 4))
def test_a_topic_that_is_deleted_during_a_run_does_not_stop_the_others(at: int) -> None:
    fs, memory = MemoryFileSystem(), MemoryObjects()
    with every_url(memory), pylog.open("/shop", fs=fs) as store:
        for topic in ("first", "orders", "zulu"):
            store.create_topic(topic, segment_bytes=300, retention_ms=-1)
            for number in range(6):
                store.log(topic).append(b"%d" % number + b"x" * 80)
        numbers = iter(range(1, 10_000))

        def deletes(request: str, key: str) -> str | None:
            if next(numbers) == at:
                store.delete_topic("orders")
            return None

        memory.fault = deletes
        report = store.archive("s3://any", include_active=True)
        assert "orders" not in store.topics()
        assert {"first", "zulu"} <= {each.partition.topic for each in report.partitions}
        pylog.restore("s3://any", "/copy", fs=fs)
        with pylog.open("/copy", "r", fs=fs) as copy:
            assert sorted(copy.topics()) == ["first", "zulu"]
            assert [len(list(copy.log(topic).records())) for topic in ("first", "zulu")] == [6, 6]


def test_a_topic_that_was_named_and_is_deleted_during_a_run_is_an_error() -> None:
    fs, memory = MemoryFileSystem(), MemoryObjects()
    with every_url(memory), pylog.open("/shop", fs=fs) as store:
        store.create_topic("orders")
        store.log("orders").append(b"paid")

        def deletes(request: str, key: str) -> str | None:
            if key.endswith(".log") and "orders" in store.topics():
                store.delete_topic("orders")
            return None

        memory.fault = deletes
        with pytest.raises(UnknownTopicOrPartitionError, match="orders"):
            store.archive("s3://any", topics=["orders"], include_active=True)


@pytest.mark.parametrize("length", [216, 217, 218, 240, 249])
def test_a_topic_with_a_long_name_is_archived_in_a_directory(tmp_path: Path, length: int) -> None:
    """The name and the id of a topic are one name of a directory, and a file system takes 255 bytes."""
    archive, name = f"file://{tmp_path}/archive", "t" * length
    tiered: dict[str, Any] = {"remote_storage_enable": True, "local_retention_bytes": 0, "segment_bytes": 300, "retention_ms": -1}
    with pylog.open(tmp_path / "shop", archive=archive) as store:
        store.create_topic(name, **tiered)
        for _ in range(9):
            store.log(name).append(b"x" * 90)
        store.tick()
        assert store.log(name).local_start_offset > 0
        assert len(list(store.log(name).records())) == 9
        store.archive(include_active=True)
    found = verify_archive(open_objects(archive), deep=True, orphans=True)
    assert (found.ok, found.orphans) == (True, ())
    pylog.restore(archive, tmp_path / "copy")
    for path in (archive, tmp_path / "copy"):
        with pylog.open(path, "r") as store:
            assert len(list(store.log(name).records())) == 9
