"""raft-wal: the version was looked at after a comparison that had failed already, so a later format was called corrupt."""

from __future__ import annotations

import struct

import pytest

import pylog
from pylog.segment.names import SEAL
from pylog.testing import MemoryFileSystem
from support.reference.records import Batch, Record, crc32c, resealed

PARTITION = "/data/t-0"
FIRST, LAST = f"{0:020d}", f"{4:020d}"
VALUES = [b"%d" % number for number in range(6)]


def a_log() -> MemoryFileSystem:
    """Six records in three segments, closed."""
    fs = MemoryFileSystem()
    with pylog.open("/data", fs=fs, clock=fs.clock) as store:
        log = store.create_topic("t", segment_bytes=200) and store.log("t")
        for value in VALUES:
            log.append(value)
        assert [segment.base_offset for segment in log.segments] == [0, 2, 4]
    return fs


def files(fs: MemoryFileSystem) -> dict[str, bytes | None]:
    return {entry.name: fs.read(f"{PARTITION}/{entry.name}", 1 << 20) for entry in fs.list(PARTITION)}


def rewritten(fs: MemoryFileSystem, path: str, data: bytes) -> None:
    file = fs.open(path, write=True)
    file.truncate(0)
    file.write(memoryview(data), 0)
    file.sync()
    file.close()


@pytest.mark.parametrize("mode", ["r", "rw"])
def test_a_catalog_of_a_later_version_is_refused_and_left_as_it_is(mode: str) -> None:
    fs = a_log()
    later = (fs.read("/data/pylog.json", 1 << 20) or b"").replace(b'"version": 1', b'"version": 2')
    rewritten(fs, "/data/pylog.json", later)
    with (
        pytest.raises(pylog.UnsupportedFormatError, match="version 2"),
        pylog.open("/data", mode, fs=fs, clock=fs.clock) as store,
    ):
        store.create_topic("u") if mode == "rw" else store.topics()
    assert fs.read("/data/pylog.json", 1 << 20) == later


@pytest.mark.parametrize("mode", ["r", "rw"])
def test_a_seal_of_a_later_version_is_distinguished_from_a_damaged_one_and_left_as_it_is(mode: str) -> None:
    fs = a_log()
    path = f"{PARTITION}/{FIRST}{SEAL}"
    seal = bytearray(fs.read(path, 1 << 20) or b"")
    seal[4] += 1
    seal[-4:] = struct.pack("<I", crc32c(seal[:-4]))
    rewritten(fs, path, bytes(seal))
    with pylog.open("/data", mode, fs=fs, clock=fs.clock) as store:
        assert [record.value for record in store.log("t").records()] == VALUES
        told = [finding.message for finding in store.check().findings if finding.path == path]
        assert [message for message in told if "version 2" in message] == told != []
    assert fs.read(path, 1 << 20) == bytes(seal)


@pytest.mark.parametrize("mode", ["r", "rw"])
@pytest.mark.parametrize("codec", [5, 6, 7])
def test_a_codec_that_is_not_known_is_no_damage_and_costs_no_other_batch(codec: int, mode: str) -> None:
    fs = a_log()
    path = f"{PARTITION}/{LAST}.log"
    data = bytearray(fs.read(path, 1 << 20) or b"")
    end = 12 + struct.unpack_from(">i", data, 8)[0]
    data[22] |= codec
    later = resealed(bytes(data[:end])) + bytes(data[end:])
    rewritten(fs, path, later)
    with pylog.open("/data", mode, fs=fs, clock=fs.clock) as store:
        log = store.log("t")
        with pytest.raises(pylog.UnsupportedFormatError, match=f"codec {codec}"):
            list(log.records())
        assert [record.value for record in log.records(0, 4)] == VALUES[:4]
        assert [record.value for record in log.records(5)] == VALUES[5:]
    assert fs.read(path, 1 << 20) == later


@pytest.mark.parametrize("mode", ["r", "rw"])
@pytest.mark.parametrize("magic", [3, 4, 127])
def test_batches_of_a_later_magic_are_never_cut_off_while_others_follow_them(magic: int, mode: str) -> None:
    """Without a header to say more, as another program's directory is found."""
    fs = a_log()
    fs.remove(f"{PARTITION}/durable-point")
    path = f"{PARTITION}/{LAST}.log"
    later = bytearray(Batch([Record(0, 0, None, b"later")], 6, 0).encoded())
    later[16] = magic
    known = Batch([Record(0, 0, None, b"known")], 7, 0).encoded()
    data = (fs.read(path, 1 << 20) or b"") + bytes(later) + known
    rewritten(fs, path, data)
    with pylog.open("/data", mode, fs=fs, clock=fs.clock) as store:
        log = store.log("t")
        with pytest.raises(pylog.CorruptionError, match="magic") as raised:
            list(log.records())
        assert [record.value for record in log.records(0, 6)] == VALUES
        assert [record.value for record in log.records(raised.value.next_offset)] == [b"known"]
        if mode == "rw":
            with pytest.raises(pylog.CorruptionError):
                log.append(b"over it")
    assert fs.read(path, 1 << 20) == data


def test_a_header_of_a_later_version_is_not_taken_for_none_and_is_not_overwritten() -> None:
    fs = MemoryFileSystem()
    with pylog.open("/data", fs=fs, clock=fs.clock) as store:
        log = store.create_topic("t") and store.log("t")
        log.append(b"0")
    path = "/data/t-0/durable-point"
    header = bytearray(fs.read(path, 1024) or b"")
    for start in (0, 128):
        struct.pack_into("<H", header, start + 4, 2)
        struct.pack_into("<I", header, start + 124, crc32c(header[start : start + 124]))
    file = fs.open(path, write=True)
    file.write(memoryview(bytes(header)), 0)
    with pytest.raises(pylog.UnsupportedFormatError), pylog.open("/data", fs=fs, clock=fs.clock) as store:
        store.log("t").append(b"over it")
    assert fs.read(path, 1024) == bytes(header)
