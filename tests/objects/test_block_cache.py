"""The cache on the disk for what is read by URL: bounded, shared, and no byte of it is returned that was not written so."""

from __future__ import annotations

import logging
import os
import threading
from pathlib import Path
from typing import Any

import pytest

import pylog
from pylog import archived_files, limits
from pylog.errors import InvalidArgumentError
from pylog.fs import OsFileSystem
from pylog.objects import open_objects, remote_file
from pylog.objects.block_cache import BlockCache, CachedLog
from pylog.objects.cache import SmallObjects
from pylog.objects.directory_objects import DirectoryObjects
from pylog.objects.remote_file import Windows
from pylog.testing import FaultyFileSystem

BLOCK, MOST = 4096, 1 << 20
VALUES = [b"%d" % number + b"x" * 500 for number in range(400)]


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "CACHED_BLOCK_BYTES", BLOCK)
    monkeypatch.setattr(limits, "MIN_CACHE_BYTES", BLOCK)


@pytest.fixture
def url(tmp_path: Path) -> str:
    """An archive with some segments of several blocks."""
    with pylog.open(tmp_path / "shop") as store:
        store.create_topic("orders", segment_bytes=50_000, retention_ms=-1)
        for at in range(0, 400, 20):
            store.log("orders").append_many(VALUES[at : at + 20])
        store.archive(str(tmp_path / "archive"), include_active=True)
    return f"file://{tmp_path}/archive"


@pytest.fixture
def ranges(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The keys of which ranges are requested."""
    found: list[str] = []
    call = DirectoryObjects.get_range

    def counting(self: DirectoryObjects, key: str, start: int, end: int) -> bytes:
        found.append(key)
        return call(self, key, start, end)

    monkeypatch.setattr(DirectoryObjects, "get_range", counting)
    return found


@pytest.fixture
def forgetful(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Returns a function that forgets what this process has in memory."""

    def forget() -> None:
        monkeypatch.setattr(archived_files, "SMALL_OBJECTS", SmallObjects(limits.REMOTE_CACHE_BYTES))
        monkeypatch.setattr(remote_file, "WINDOWS", Windows(32))

    return forget


def read(url: str, directory: Path, most: int = MOST) -> list[bytes | None]:
    access = {"cache_dir": directory, "cache_bytes": most}
    with pylog.open(url, "r", access=access) as store:
        log = store.log("orders")
        assert log.read(250).value == VALUES[250]
        return [record.value for record in log.records()]


def test_the_next_process_requests_nothing_that_is_in_the_cache(
    url: str, tmp_path: Path, ranges: list[str], forgetful: Any
) -> None:
    assert read(url, tmp_path / "cache") == VALUES
    assert ranges
    ranges.clear()
    forgetful()
    assert read(url, tmp_path / "cache") == VALUES
    assert ranges == []


@pytest.mark.parametrize("damage", ["flip", "cut", "empty", "longer", "other", "directory"])
def test_a_damaged_file_is_never_served_and_is_replaced(
    url: str, tmp_path: Path, ranges: list[str], forgetful: Any, damage: str
) -> None:
    cache = tmp_path / "cache"
    read(url, cache)
    files = sorted(cache.iterdir())
    good = {path: path.read_bytes() for path in files}
    for number, path in enumerate(files):
        data = bytearray(good[path])
        if damage == "flip":
            data[number * 37 % len(data)] ^= 1 << number % 8
        changed = {"cut": data[:-1], "empty": b"", "longer": data + b"x", "other": good[files[number - 1]]}.get(damage, data)
        if damage == "directory":
            path.unlink()
            path.mkdir()
        else:
            path.write_bytes(changed)
    ranges.clear()
    forgetful()
    assert read(url, cache) == VALUES
    assert ranges
    if damage != "directory":
        assert {path: path.read_bytes() for path in cache.iterdir()} == good


def test_the_oldest_blocks_go_and_other_files_stay(url: str, tmp_path: Path, forgetful: Any) -> None:
    cache = tmp_path / "cache"
    cache.mkdir()
    (cache / "notes.txt").write_bytes(b"not pylog's" * 10_000)
    left = cache / f"{'A' * 22}-00000000.{'0' * 16}.tmp"
    left.write_bytes(b"of a process that died")
    os.utime(left, (1, 1))
    most = 16 * BLOCK
    for _ in range(3):
        assert read(url, cache, most) == VALUES
        forgetful()
        kept = [path.stat().st_size for path in cache.iterdir() if path.name != "notes.txt"]
        assert BLOCK < sum(kept) <= most
    assert (cache / "notes.txt").exists()
    assert not left.exists()


def test_several_readers_share_a_cache_that_is_too_small(url: str, tmp_path: Path) -> None:
    wrong: list[object] = []

    def again() -> None:
        for _ in range(3):
            found = read(url, tmp_path / "cache", 12 * BLOCK)
            if found != VALUES:
                wrong.append(found)

    threads = [threading.Thread(target=again) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
    assert not list((tmp_path / "cache").glob("*.tmp"))


def test_a_cache_that_cannot_be_written_costs_requests_and_one_line(
    url: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "cache").write_bytes(b"a file")
    with caplog.at_level(logging.INFO, "pylog"):
        assert read(url, tmp_path / "cache") == VALUES
    lines = [record.message for record in caplog.records if "blocks are read from the object store" in record.message]
    assert len(lines) == 1


@pytest.mark.parametrize("kind", ["short write ENOSPC", "rename EIO"])
def test_a_file_that_cannot_be_completed_is_removed(tmp_path: Path, kind: str) -> None:
    fs = FaultyFileSystem(OsFileSystem())
    cache = BlockCache(fs, str(tmp_path / "cache"), MOST)
    fs.fail(kind)
    cache.write("name", b"data")
    assert (list((tmp_path / "cache").iterdir()), cache.read("name", 4)) == ([], None)


def test_a_cache_that_may_only_be_read_serves_its_blocks(tmp_path: Path) -> None:
    fs = FaultyFileSystem(OsFileSystem())
    cache = BlockCache(fs, str(tmp_path / "cache"), MOST)
    cache.write("name", b"data")
    fs.fail("open EMFILE", 2, forever=True)  # the second one notes the time of the read
    assert cache.read("name", 4) == b"data"


def test_missing_blocks_between_others_are_fetched_with_one_request(tmp_path: Path) -> None:
    data = bytes(range(256)) * 100
    requests: list[tuple[int, int]] = []

    class Source:
        url, grain = "s3://logs/x", 1

        def read(self, position: int, end: int) -> bytes:
            requests.append((position, end))
            return data[position:end]

    log = CachedLog(Source(), BlockCache(OsFileSystem(), str(tmp_path / "cache"), MOST), "A" * 22, len(data))
    for position, end in ((BLOCK * 2 + 5, BLOCK * 2 + 9), (0, len(data)), (7, len(data) - 1), (len(data) - 1, len(data)), (3, 3)):
        assert bytes(log.read(position, end)) == data[position:end]
    assert requests == [(BLOCK * 2, BLOCK * 3), (0, len(data))]


def test_a_tiered_topic_reads_through_the_cache(tmp_path: Path, ranges: list[str], forgetful: Any) -> None:
    for number in range(2):
        archive = open_objects(str(tmp_path / "cloud"), cache_dir=tmp_path / "cache")
        with pylog.open(tmp_path / "shop", archive=archive) as store:
            if not number:
                store.create_topic(
                    "t", remote_storage_enable=True, local_retention_bytes=0, retention_ms=-1, segment_bytes=20_000
                )
                store.log("t").append_many(VALUES[:100])
                store.log("t").append_many(VALUES[100:])
                store.tick()
            ranges.clear()
            assert [record.value for record in store.log("t").records()] == VALUES
            assert bool(ranges) == (number == 0)
        forgetful()


@pytest.mark.parametrize(
    ("options", "message"),
    [({"cache_dir": 5}, "cache_dir=5"), ({"cache_dir": ""}, "cache_dir=''"), ({"cache_bytes": 1}, "cache_bytes=1 is not")],
)
def test_impossible_options_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidArgumentError, match=message):
        open_objects("/nowhere", **options)
