"""Time and memory follow the bytes that are there, not the numbers in them: for twice of it they are twice as large.

Calls of the file system are counted, and processor time only where nothing else can be: a machine that is busy fails no test.
"""

from __future__ import annotations

import struct
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

import pylog
from pylog import limits
from pylog.fs import DirectoryEntry, OsFileSystem
from pylog.record import finding
from pylog.record.checksum import crc32c
from pylog.segment.log_file import LogFile
from pylog.topics import catalog
from pylog.topics.catalog import Catalog, parsed_catalog, read_catalog, write_catalog
from support.campaign.lying_files import Lie, batches_of, lay, specimen
from support.cli import call


class CountingFileSystem(OsFileSystem):
    """Counts what is listed and read."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()

    def list(self, path: str, *, sizes: str = "") -> list[DirectoryEntry]:
        self.counts["list"] += 1
        return super().list(path, sizes=sizes)

    def read(self, path: str, limit: int) -> bytes | None:
        self.counts["read"] += 1
        return super().read(path, limit)


def catalog_of(path: Path, count: int) -> Path:
    """A store whose catalog names partitions that are not there."""
    with pylog.open(path) as store:
        store.create_topic("t")
        store.log("t").append(b"one")
    found = read_catalog(OsFileSystem(), str(path))
    topic = msgspec.structs.replace(found.topics["t"], partitions=count)
    write_catalog(OsFileSystem(), str(path), msgspec.structs.replace(found, topics={"t": topic}))
    return path


READS: dict[str, Callable[[pylog.Store], Any]] = {
    "topics": lambda store: store.topics(),
    "one log": lambda store: store.log("t").read(0),
    "metrics": lambda store: store.metrics(),
    "check": lambda store: store.check(),
    "verify": lambda store: store.verify(),
    "groups": lambda store: store.groups(),
}


@pytest.mark.parametrize("name", READS)
def test_partitions_that_are_missing_cost_no_listing_each(name: str, tmp_path: Path) -> None:
    """A listing takes as long as there are partitions: one for each of them takes the square of that."""
    path, fs = catalog_of(tmp_path, 400), CountingFileSystem()
    with pylog.open(path, "r", fs=fs) as store:
        fs.counts.clear()
        READS[name](store)
    assert fs.counts["list"] <= 20
    assert fs.counts["read"] <= 20 + 5 * 400


def test_the_deletion_of_a_topic_parses_the_catalog_as_often_for_many_partitions_as_for_few(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The catalog names each partition that is being deleted, so that one parse for each takes the square of their number."""
    parsed: Counter[str] = Counter()

    def counted(data: bytes | None, path: str) -> Catalog:
        parsed[topic] += 1
        return parsed_catalog(data, path)

    with pylog.open(tmp_path, durability=pylog.Durability.OS) as store:
        for topic, count in {"few": 2, "many": 40}.items():
            store.create_topic(topic, partition_count=count)
        monkeypatch.setattr(catalog, "parsed_catalog", counted)
        for topic in ("few", "many"):
            store.delete_topic(topic)
    assert parsed["many"] <= parsed["few"] + 2


def test_a_consumer_does_not_look_for_every_missing_partition_as_often_as_there_are_partitions(tmp_path: Path) -> None:
    path, fs = catalog_of(tmp_path, 100), CountingFileSystem()
    with pylog.open(path, "r", fs=fs) as store, store.consumer("t", auto_offset_reset="earliest") as consumer:
        fs.counts.clear()
        consumer.poll(0)
        assert fs.counts["read"] <= 100 * 25


def damaged(path: Path, count: int) -> Path:
    """A log in which each fifth batch has a byte changed."""
    with pylog.open(path, durability=pylog.Durability.OS) as store:
        store.create_topic("t", segment_bytes=1 << 24)
        for _ in range(count):
            store.log("t").append(b"v" * 100)
    log = path / "t-0" / f"{0:020}.log"
    data = bytearray(log.read_bytes())
    size = len(data) // count
    for number in range(0, count, 5):
        data[number * size + size - 20] ^= 1
    log.write_bytes(data)
    return path


PASSES: dict[str, Callable[[Path], Any]] = {
    "opening": lambda path: pylog.open(path).close(),
    "verify": lambda path: call("verify", path),
    "repair": lambda path: call("repair", "skip", path),
    "dump": lambda path: call("dump", path / "t-0" / f"{0:020}.log", "--json"),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", PASSES)
def test_many_small_damages_take_time_in_proportion_to_the_file(name: str, tmp_path: Path) -> None:
    """Four times the file, with four times the damages, takes far less than sixteen times as long."""
    taken = []
    for count in (100, 1000, 4000):  # the first one compiles and imports
        path = damaged(tmp_path / str(count), count)
        before = time.process_time()
        PASSES[name](path)
        taken.append(time.process_time() - before)
    assert taken[2] <= 9 * taken[1] + 0.5


def header(offset: int, size: int, body: bytes | None = None) -> bytes:
    """The header of a batch of some bytes, which has a right checksum only for the body that is given."""
    rest = struct.pack(">hiqqqhii", 0, 0, 0, 0, -1, -1, -1, 1)
    checksum = 1 if body is None else crc32c(rest + body)
    return struct.pack(">qiibI", offset, size - 12, 0, 2, checksum) + rest


def claims_between_messages(count: int) -> bytes:
    """Headers of batches up to the file's end, each followed by bytes that look like a message of an old format."""
    message = struct.pack(">qiIbb", 9, 14, 1, 0, 0) + bytes(8)
    each = 61 + len(message)
    return b"damage" + b"".join(header(9, each * (count - number)) + message for number in range(count))


def claims_between_batches(count: int) -> bytes:
    """Headers of batches up to the file's end, each followed by a sound batch."""
    each = 61 + 68
    return b"".join(
        header(9 + number, each * (count - number)) + header(9 + number, 68, b"sound..") + b"sound.." for number in range(count)
    )


def batches_in_batches(count: int) -> bytes:
    """Batches with right checksums that all end at the same position. Zeros follow, and then something else."""
    inner = b""
    for _ in range(count // 8):
        inner = header(9, 61 + len(inner), inner) + inner
    return b"damage" + inner + bytes(count * 100) + b"!" * 100


@pytest.mark.sampled(3)
@pytest.mark.damaged("a batch again and again")
@pytest.mark.parametrize("bytes_of", [claims_between_messages, claims_between_batches, batches_in_batches])
def test_headers_that_each_claim_the_rest_of_a_file_cost_a_walk_no_more_than_some_times_the_file(
    bytes_of: Callable[[int], bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One walk of a file has one bound of the bytes that are hashed or read after all its damages."""
    done: Counter[str] = Counter()
    find, read = finding.find_batch, LogFile.read

    def counted(buffer: Any, position: int, end: int, first_offset: int, budget: int, result: Any) -> int:
        status: int = find(buffer, position, end, first_offset, budget, result)
        done["hashed"] += budget - int(result[1])
        return status

    def counted_read(self: LogFile, position: int, size: int) -> Any:
        part = read(self, position, size)
        done["read"] += len(part)
        return part

    monkeypatch.setattr(finding, "find_batch", counted)
    monkeypatch.setattr(LogFile, "read", counted_read)
    monkeypatch.setattr(limits, "RESYNC_HASHED_BYTES", 0)
    lay(tmp_path, specimen(), Lie({}, []))
    path = tmp_path / "x-0" / f"{0:020}.log"
    path.write_bytes(batches_of(path.read_bytes())[0] + bytes_of(800))
    with pylog.open(tmp_path, "r") as store:
        store.log("x").end_offset  # noqa: B018
        store.verify()
    size = path.stat().st_size
    assert done["hashed"] <= 8 * (limits.RESYNC_HASHED_PER_BYTE + 1) * size
    assert done["read"] <= 50 * size


@pytest.mark.slow
@pytest.mark.damaged("a batch again and again")
def test_a_batch_that_is_there_many_times_takes_time_in_proportion_to_the_file(tmp_path: Path) -> None:
    """The search for what follows the first one finds bytes in each that look like a message of an old format."""
    taken = []
    for count in (100, 2000, 8000):  # the first one compiles and imports
        root = tmp_path / str(count)
        lay(root, specimen(), Lie({}, []))
        path = root / "x-0" / f"{0:020}.log"
        path.write_bytes(batches_of(path.read_bytes())[0] * count)
        before = time.process_time()
        with pylog.open(root, "r") as store:
            assert store.log("x").end_offset == 3
            store.check()
        call("verify", root / "x-0")
        taken.append(time.process_time() - before)
    assert taken[2] <= 7 * taken[1] + 0.5
