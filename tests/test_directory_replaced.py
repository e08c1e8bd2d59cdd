"""A directory that is removed, moved, or restored under an open store: no append is acknowledged, and no new file is touched."""

from __future__ import annotations

import logging
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import pylog
from pylog import Durability, Store
from pylog.errors import DirectoryReplacedError
from pylog.store import manager_of
from support.faults.neighbours import HookedFileSystem

pytestmark = pytest.mark.damaged("files are replaced under the store")


def filled(path: Path, tag: bytes, count: int = 20) -> None:
    with pylog.open(path, durability=Durability.OS) as store:
        if "t" not in store.topics():
            store.create_topic("t", segment_bytes=1000, retention_bytes=2000)
        store.log("t").append_many([b"%s %d " % (tag, number) + b"x" * 60 for number in range(count)])


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "store"
    filled(path, b"old")
    shutil.copytree(path, tmp_path / "backup")
    return path


def removed(path: Path) -> None:
    shutil.rmtree(path)


def renamed(path: Path) -> None:
    path.rename(path.parent / "elsewhere")


def made_again(path: Path) -> None:
    shutil.rmtree(path)
    filled(path, b"new")


def restored(path: Path) -> None:
    shutil.rmtree(path)
    shutil.copytree(path.parent / "backup", path)


def restored_by_rename(path: Path) -> None:
    path.rename(path.parent / "elsewhere")
    (path.parent / "backup").rename(path)


def of_hard_links(path: Path) -> None:
    """The names lead to the same files, in another directory."""
    path.rename(path.parent / "elsewhere")
    shutil.copytree(path.parent / "elsewhere", path, copy_function=os.link)


def partition_removed(path: Path) -> None:
    shutil.rmtree(path / "t-0")


def partition_restored(path: Path) -> None:
    shutil.rmtree(path / "t-0")
    shutil.copytree(path.parent / "backup/t-0", path / "t-0")


def replace(file: Path, source: Path) -> None:
    shutil.copy2(source, file.parent / ".copy")
    os.rename(file.parent / ".copy", file)


def files_restored(path: Path) -> None:
    """As rsync does it."""
    for source in sorted((path.parent / "backup").rglob("*")):
        if source.is_file():
            replace(path / source.relative_to(path.parent / "backup"), source)
    for file in sorted(path.rglob("*")):
        if file.is_file() and not (path.parent / "backup" / file.relative_to(path)).exists():
            file.unlink()


def active_segment_replaced(path: Path) -> None:
    active = max((path / "t-0").glob("*.log"))
    replace(active, active)


def header_replaced(path: Path) -> None:
    replace(path / "t-0/durable-point", path / "t-0/durable-point")


def header_removed(path: Path) -> None:
    (path / "t-0/durable-point").unlink()


ROUTES = [
    removed, renamed, made_again, restored, restored_by_rename, of_hard_links, partition_removed, partition_restored,
    files_restored, active_segment_replaced, header_replaced, header_removed,
]  # fmt: skip
CHANGES: dict[str, Callable[[Store], Any]] = {
    "append": lambda store: store.log("t").append(b"after", durability=Durability.SYNC),
    "append, os": lambda store: store.log("t").append(b"after", durability=Durability.OS),
    "append_batch": lambda store: store.log("t").append_batch([b"after"], atomic=True),
    "many": lambda store: store.log("t").append_many([b"after" * 20] * 100),
    "delete_records": lambda store: store.log("t").delete_records(before=30),
    "truncate": lambda store: store.log("t").truncate(end=30),
    "truncate in the active segment": lambda store: store.log("t").truncate(end=119),
    "retain": lambda store: store.retain("t"),
    "tick": lambda store: store.tick(),
    "flush": lambda store: store.flush(),
    "alter_topic": lambda store: store.alter_topic("t", retention_bytes=5000),
    "delete_topic": lambda store: store.delete_topic("t"),
}


def written(store: Store) -> None:
    store.log("t").append_many([b"since then %d " % number + b"y" * 60 for number in range(100)])


def content(path: Path) -> dict[str, bytes]:
    """The files there, except locks, and the parts of a log's files that its own writer may still write."""
    return {str(file.relative_to(path)): file.read_bytes() for file in sorted(path.rglob("*")) if file.is_file()}


@pytest.mark.sampled(10)
@pytest.mark.parametrize("how", CHANGES)
@pytest.mark.parametrize("route", ROUTES, ids=lambda route: route.__name__)
def test_every_change_of_a_replaced_directory_is_refused_and_touches_nothing_that_is_there_now(
    path: Path, route: Callable[[Path], None], how: str
) -> None:
    store = pylog.open(path, durability=Durability.OS)
    written(store)
    route(path)
    time.sleep(0.07 if route is of_hard_links else 0.002)  # the names are checked once a millisecond, the directories every 64
    before = content(path) if path.exists() else None
    for _ in range(3):
        with pytest.raises(DirectoryReplacedError, match="close the store and open it again"):
            CHANGES[how](store)
    with pytest.raises(DirectoryReplacedError):
        store.log("t").append(b"after all")
    store.close()
    if route not in (active_segment_replaced, header_replaced, header_removed, of_hard_links):
        assert (content(path) if path.exists() else None) == before
    elif how not in ("append", "append, os", "append_batch", "many"):
        assert set(content(path)) == set(before or {})


@pytest.mark.parametrize("exclusive", [False, True])
@pytest.mark.parametrize("route", [restored, partition_restored, files_restored], ids=lambda route: route.__name__)
def test_the_next_store_of_a_replaced_directory_has_the_records_that_are_there_now(
    path: Path, route: Callable[[Path], None], exclusive: bool
) -> None:
    store = pylog.open(path, exclusive=exclusive, durability=Durability.OS)
    written(store)
    route(path)
    time.sleep(0.002)
    with pytest.raises(DirectoryReplacedError):
        store.log("t").append(b"after")
    store.close()
    with pylog.open(path) as again:
        assert [record.value[:3] for record in again.log("t").records()] == [b"old"] * 20
        assert again.log("t").append(b"next") == 20
        assert again.verify().ok


def test_reading_goes_on_in_the_new_directory_once_the_replacement_was_noticed(path: Path) -> None:
    with pylog.open(path) as store:
        log = store.log("t")
        written(store)
        partition_restored(path)
        time.sleep(0.002)
        with pytest.raises(DirectoryReplacedError):
            log.append(b"after")
        assert log.end_offset == 20
        assert [record.value[:3] for record in log.records()] == [b"old"] * 20


def test_a_sealed_segment_that_was_replaced_is_not_deleted_by_its_name(path: Path) -> None:
    with pylog.open(path) as store:
        written(store)
        first = min((path / "t-0").glob("*.log"))
        replace(first, first)
        with pytest.raises(DirectoryReplacedError):
            store.tick()
        assert first.exists()


def test_the_line_of_a_replaced_directory_names_what_was_acknowledged_since_the_last_check(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with pylog.open(path, durability=Durability.OS) as store, caplog.at_level(logging.ERROR, logger="pylog"):
        written(store)
        partition_restored(path)
        time.sleep(0.002)
        with pytest.raises(DirectoryReplacedError):
            store.log("t").append(b"after")
    facts = next(record.pylog for record in caplog.records if record.pylog["event"] == "directory replaced")  # type: ignore[attr-defined]
    assert (facts["topic"], facts["partition"]) == ("t", 0)
    assert facts["acknowledged_end"] == 120
    assert 20 <= facts["checked_end"] <= 120


def test_commits_of_a_replaced_directory_are_refused(path: Path) -> None:
    with pylog.open(path) as store:
        store.offsets.commit("g", {("t", 0): 3})
        restored(path)
        with pytest.raises(DirectoryReplacedError):
            store.offsets.commit("g", {("t", 0): 4})


def test_a_producers_future_reports_a_replaced_directory(path: Path) -> None:
    with pylog.open(path) as store:
        producer = store.producer()
        producer.send("t", b"sent").get()
        restored(path)
        with pytest.raises(DirectoryReplacedError):
            producer.send("t", b"after").get()


def test_a_flush_in_the_background_notices_a_replaced_directory(path: Path) -> None:
    with pylog.open(path) as store:
        store.log("t").append(b"y", durability=Durability.INTERVAL(1))
        partition_restored(path)
        time.sleep(0.002)
        with pytest.raises(DirectoryReplacedError):
            manager_of(store).log("t").flush_in_background()


def test_compaction_swaps_nothing_into_a_replaced_directory(path: Path) -> None:
    with pylog.open(path) as store:
        store.create_topic("c", cleanup_policy="compact", segment_bytes=1000)
        store.log("c").append_many([(b"k%d" % (number % 3), b"x" * 100) for number in range(50)])
        shutil.copytree(path / "c-0", path.parent / "c-0")
        shutil.rmtree(path / "c-0")
        shutil.copytree(path.parent / "c-0", path / "c-0")
        before = content(path / "c-0")
        with pytest.raises(DirectoryReplacedError):
            store.compact("c")
        assert content(path / "c-0") == before


def test_a_compaction_whose_directory_is_replaced_in_the_middle_says_so(path: Path) -> None:
    fs = HookedFileSystem()
    with pylog.open(path, fs=fs) as store:
        store.create_topic("c", cleanup_policy="compact", segment_bytes=1000)
        store.log("c").append_many([(b"k%d" % (number % 3), b"x" * 100) for number in range(50)])

        def replaced() -> None:
            (path / "c-0").rename(path.parent / "c-0")
            shutil.copytree(path.parent / "c-0", path / "c-0")

        fs.before("sync", ".log.cleaned", replaced)
        with pytest.raises(DirectoryReplacedError):
            store.compact("c")
        assert not list((path / "c-0").glob("*.index.cleaned"))


def test_no_topic_is_created_in_a_replaced_directory(path: Path) -> None:
    with pylog.open(path) as store:
        restored(path)
        with pytest.raises(DirectoryReplacedError):
            store.create_topic("other")
        with pytest.raises(DirectoryReplacedError):
            store.add_partitions("t", 2)
        assert not (path / "other-0").exists()


def test_a_store_that_wrote_nothing_closes_without_an_error_when_its_directory_was_removed(path: Path) -> None:
    with pylog.open(path) as store:
        assert store.log("t").end_offset == 20
        removed(path)
    assert not path.exists()


def test_files_that_are_restored_in_place_are_taken_as_they_are(path: Path) -> None:
    with pylog.open(path) as store:
        log = store.log("t")
        assert log.append(b"y") == 20
        for source in sorted((path.parent / "backup/t-0").iterdir()):
            (path / "t-0" / source.name).write_bytes(source.read_bytes())
        assert log.append(b"z") in (20, 21)
        assert log.read(log.end_offset - 1).value == b"z"


@pytest.mark.slow
@pytest.mark.pair("second process", "truncation", "delete_records")
def test_another_process_that_truncates_compacts_or_deletes_is_not_taken_for_a_restore(path: Path) -> None:
    with pylog.open(path) as store:
        log = store.log("t")
        written(store)
        told = f"""if True:
            import pylog
            with pylog.open({str(path)!r}) as store:
                store.log("t").truncate(50)
                store.log("t").append(b"theirs")
                store.log("t").delete_records(before=30)
                store.tick()
        """
        subprocess.run([sys.executable, "-c", told], check=True)
        assert log.append(b"ours") == 51
        subprocess.run([sys.executable, "-c", f"import pylog; pylog.open({str(path)!r}).delete_topic('t')"], check=True)
        with pytest.raises(pylog.UnknownTopicOrPartitionError):
            log.append(b"gone")
        with pytest.raises(pylog.UnknownTopicOrPartitionError):
            store.log("t")
