"""A compacted segment never outgrows a segment's bytes or offsets, whatever its codec makes of the batches that lost records."""

from __future__ import annotations

import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import zstandard

import pylog
from pylog.errors import StorageFailedError
from pylog.log.maintenance import segment_swap
from pylog.record.checksum import crc32c
from pylog.store import Store
from pylog.testing import MemoryFileSystem

NOISE = bytes(range(256)) * 16


def varint(number: int) -> bytes:
    number = number << 1 if number >= 0 else (-number << 1) - 1
    out = bytearray()
    while number > 127:
        out.append(number & 127 | 128)
        number >>= 7
    return bytes(out) + bytes([number])


def record(delta: int, key: bytes, value: bytes) -> bytes:
    body = b"\0" + varint(0) + varint(delta) + varint(len(key)) + key + varint(len(value)) + value + varint(0)
    return varint(len(body)) + body


def batch(base: int, rows: list[tuple[bytes, bytes]]) -> bytes:
    """A batch that was packed better than pylog packs: level 22 against the default."""
    packed = zstandard.ZstdCompressor(level=22).compress(b"".join(record(delta, *row) for delta, row in enumerate(rows)))
    tail = struct.pack(">hiqqqhii", 4, len(rows) - 1, 10**12, 10**12, -1, -1, -1, len(rows)) + packed
    return struct.pack(">qiibI", base, 9 + len(tail), 0, 2, crc32c(tail)) + tail


def write(path: Path, segments: int, batches: int, rows: int = 8) -> dict[bytes, int]:
    """A log of several segments, whose batches each lose a record. Returns the offset of each key's last record."""
    with pylog.open(path, durability=pylog.Durability.OS) as store:
        store.create_topic("t", cleanup_policy="compact", segment_bytes=1 << 24)
    for file in path.glob("t-0/*"):
        if file.name != "partition.metadata":
            file.unlink()
    offset, last = 0, {}
    for _ in range(segments):
        with (path / f"t-0/{offset:020}.log").open("wb") as file:
            for _ in range(batches):
                keys = [b"k%d" % (offset + row) for row in range(rows)] + [b"superseded"]
                file.write(batch(offset, [(key, NOISE + key) for key in keys]))
                last |= {key: offset + row for row, key in enumerate(keys)}
                offset += len(keys)
    (path / f"t-0/{offset:020}.log").write_bytes(batch(offset, [(b"superseded", b"last")]))
    return last | {b"superseded": offset}


def check(store: Store, last: dict[bytes, int], largest: int) -> None:
    """All of a log's readers find each key's last record, and nothing is damaged."""
    log = store.log("t")
    end = max(last.values())
    found = {record.key: record.offset for record in log.records() if record.key != b"superseded" or record.offset == end}
    assert found == last
    for key, offset in list(last.items())[::7]:
        assert log.read(offset).key == key
        assert log.read(offset).offset == offset
    assert all(segment.size <= largest for segment in log.segments[:-1])
    report = store.verify(records=True)
    assert {file.verdict for file in report.files} == {"good"}
    findings = (*report.findings, *store.check().findings)
    assert [each for each in findings if each.kind != "derived"] == []  # a broker's directory lacks what is derived at first


@pytest.mark.slow
@pytest.mark.pair("compaction", "roll")
@pytest.mark.parametrize(("segments", "batches"), [(1, 12), (4, 3), (3, 5), (12, 1)])
@pytest.mark.parametrize("room", [1, 2, 5])
def test_a_group_that_outgrows_a_segment_becomes_several(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, segments: int, batches: int, room: int
) -> None:
    last = write(tmp_path, segments, batches)
    largest = room * 1100
    monkeypatch.setattr(segment_swap, "LARGEST_BYTES", largest)
    with pylog.open(tmp_path, durability=pylog.Durability.OS) as store:
        done = store.compact("t")[0]
        assert done.records - done.kept == segments * batches - 1
        assert (len(store.log("t").segments) > 2) == (done.written > largest)
        check(store, last, largest)
        store.log("t").append(b"v", key=b"superseded")
        store.compact("t")
        assert store.log("t").read(0).key == b"k0"
    with pylog.open(tmp_path, mode="r") as store:
        assert {file.verdict for file in store.verify().files} == {"good"}


@pytest.mark.slow
@pytest.mark.pair("compaction", "crash")
@pytest.mark.parametrize("segments", [1, 3])
@pytest.mark.parametrize("power", [False, True])
def test_a_crash_at_any_step_of_a_swap_into_several_segments_loses_no_record(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, segments: int, *, power: bool
) -> None:
    last = write(tmp_path, segments, 6 // segments)
    files = {file.relative_to(tmp_path).as_posix(): file.read_bytes() for file in tmp_path.rglob("*") if file.is_file()}
    monkeypatch.setattr(segment_swap, "LARGEST_BYTES", 2200)
    steps = 0
    while steps < 200:
        fs = Stopping()
        for name, data in files.items():
            _put(fs, name, data)
        fs.left = steps
        store = pylog.open("/s", fs=fs, durability=pylog.Durability.OS)
        try:
            store.compact("t")
        except (Stopped, StorageFailedError, pylog.PylogError):
            fs.left = None
            after = fs.crash() if power else fs.process()
            after.left = None
            with pylog.open("/s", fs=after, durability=pylog.Durability.OS) as again:
                again.log("t").flush()
                check(again, last, 1 << 30)
            steps += 1
        else:
            assert steps > 10
            assert len(store.log("t").segments) == 3
            check(store, last, 2200)
            return
    pytest.fail("the compaction does not end")


class Stopped(Exception):  # noqa: N818 - no error
    """The process was killed."""


class Stopping(MemoryFileSystem):
    """A file system of a process that dies at a rename, removal or sync."""

    left: int | None = None

    def _step(self, call: Callable[..., Any], *given: Any) -> Any:
        if self.left is not None:
            if not self.left:
                self.kill()
                raise Stopped
            self.left -= 1
        return call(*given)

    def rename(self, source: str, target: str) -> None:
        self._step(super().rename, source, target)

    def remove(self, path: str) -> None:
        self._step(super().remove, path)

    def sync_directory(self, path: str) -> None:
        self._step(super().sync_directory, path)


def _put(fs: MemoryFileSystem, name: str, data: bytes) -> None:
    path = "/s"
    if not fs.exists(path):
        fs.make_directory(path)
    *directories, _ = name.split("/")
    for directory in directories:
        path = f"{path}/{directory}"
        if not fs.exists(path):
            fs.make_directory(path)
    file = fs.create(f"/s/{name}")
    file.write(memoryview(data), 0)
    file.sync()
    file.close()
    for each in (path, "/s", "/"):
        fs.sync_directory(each)
