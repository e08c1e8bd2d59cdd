"""Derived files never matter: whatever one holds and whatever it is, all records are read, appended and verified.

`tests/test_doors.py` looks at the source: one class reads such files, and no module reads them past it.
"""

from __future__ import annotations

import os
import shutil
import struct
from collections.abc import Callable
from pathlib import Path

import google_crc32c
import pytest

import pylog
from pylog.directory.checkpoints import OFFSETS, parse_offsets
from pylog.directory.leader_epoch_cache import parse_epochs
from pylog.fs import OsFileSystem
from pylog.log.durable_point import DURABLE_POINT, SLOT_SIZE, DurablePoint, parse_slot
from pylog.spark.roots import Root

SEALED = f"t-0/{0:020d}"
KINDS = {
    "offset index": SEALED + ".index",
    "time index": SEALED + ".timeindex",
    "transaction index": SEALED + ".txnindex",
    "seal": SEALED + ".seal",
    "active offset index": "t-0/{active:020d}.index",
    "active time index": "t-0/{active:020d}.timeindex",
    "snapshot": "t-0/{end:020d}.snapshot",
    "header": "t-0/durable-point",
    "leader epochs": "t-0/leader-epoch-checkpoint",
    "topic id": "t-0/partition.metadata",
    "recovery points": "recovery-point-offset-checkpoint",
    "log starts": "log-start-offset-checkpoint",
    "cleaned": "cleaner-offset-checkpoint",
    "marker": ".kafka_cleanshutdown",
}


def with_crc(body: bytes) -> bytes:
    return body + struct.pack("<I", google_crc32c.value(body))


def extreme(kind: str) -> bytes:
    """A file of a kind whose checksum is right, as far as it has one, and whose numbers are as large as their fields."""
    if kind == "header":
        values = (0, 2**64 - 1, 2**64 - 1, bytes(16), 2**63 - 1, 2**64 - 1, *[2**63 - 1] * 5, 2**32 - 1, 2**32 - 1, 2**63 - 1)
        body = struct.pack("<4sHHQQ16sqQqqqqqIIqIiI", b"PYLG", 1, *values, 2**32 - 1, 2**31 - 1, 2**32 - 1)
        return with_crc(body) * 2
    if kind == "snapshot":
        counted = struct.pack(">i", 1) + struct.pack(">qhiqiqiq", *[2**63 - 1, 2**15 - 1, 2**31 - 1] * 2, 2**31 - 1, 2**63 - 1)
        return struct.pack(">hI", 1, google_crc32c.value(counted)) + counted
    if kind == "seal":
        return with_crc(struct.pack("<4sHHqqqQIIIII", b"PYSL", 1, 0, 0, *[2**63 - 1] * 2, 2**64 - 1, *[2**32 - 1] * 5))
    if kind.endswith("index"):
        return b"\x7f" + b"\xff" * 407
    name = "" if kind == "leader epochs" else "t 0 "
    return f"0\n1\n{name}{2**31} {2**63}\n".encode() if not name else f"0\n1\n{name}{2**63}\n".encode()


CONTENTS: dict[str, Callable[[Path, str], object]] = {
    "missing": lambda path, kind: None,
    "empty": lambda path, kind: path.write_bytes(b""),
    "one byte": lambda path, kind: path.write_bytes(b"\x01"),
    "a hole of 10 GiB": lambda path, kind: (path.write_bytes(b""), os.truncate(path, 10 << 30)),
    "random": lambda path, kind: path.write_bytes(bytes(range(255, -1, -1)) * 9),
    "a directory": lambda path, kind: (path.mkdir(), (path / "in it").write_text("x")),
    "a pipe": lambda path, kind: os.mkfifo(path),
    "a dangling link": lambda path, kind: path.symlink_to("nowhere"),
    "extreme numbers": lambda path, kind: path.write_bytes(extreme(kind)),
}

VALUES = [b"value %d" % number for number in range(30)]


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("sound") / "s"
    with pylog.open(path) as store:
        store.create_topic("t", segment_bytes=700, index_interval_bytes=100, cleanup_policy="compact,delete")
        for number, value in enumerate(VALUES):
            store.log("t").append(value, key=b"key %d" % number)
    return path


def values(store: pylog.Store) -> list[bytes | None]:
    return [record.value for record in store.log("t").records()]


@pytest.mark.slow
@pytest.mark.damaged("derived files are not what they should be, on purpose")
@pytest.mark.pair("crash", "close")
@pytest.mark.parametrize("content", CONTENTS)
@pytest.mark.parametrize("kind", KINDS)
def test_all_records_are_read_and_appended_whatever_a_derived_file_holds(
    tmp_path: Path, sound: Path, kind: str, content: str
) -> None:
    where = tmp_path / "s"
    shutil.copytree(sound, where)
    active = max(int(file.stem) for file in where.glob("t-0/*.log"))
    path = where / KINDS[kind].format(active=active, end=len(VALUES))
    path.unlink(missing_ok=True)
    CONTENTS[content](path, kind)
    with pylog.open(where, "r") as store:
        log = store.log("t")
        assert values(store) == VALUES
        assert [log.read(number).value for number in range(0, 30, 7)] == VALUES[::7]
        assert (log.start_offset, log.end_offset, log.stable_offset) == (0, 30, 30)
        assert log.offset_for_timestamp(0).offset == 0  # type: ignore[union-attr]
        assert log.split_offsets(0, 30, 500)[-1] <= 30
        assert {file.verdict for file in store.verify().files} == {"good"}
        store.check()
    root = Root(str(where))
    (partition,) = [pylog.TopicPartition("t", 0)]
    assert root.outline(partition).end_offset == 30
    root.close()
    with pylog.open(where) as store:
        log = store.log("t")
        assert values(store) == VALUES
        assert log.append(b"one more", key=b"one more") == 30
        store.compact("t")
        store.tick()
        assert values(store) == [*VALUES, b"one more"]
        if (kind, content) == ("log starts", "a hole of 10 GiB"):
            with pytest.raises(pylog.UnsupportedFormatError):  # its lines can be a broker's
                log.delete_records(5)
            path.unlink()
        assert log.delete_records(5) == 5
        log.truncate(29)
        for number in range(29, 40):
            assert log.append(b"again", key=b"again %d" % number) == number
    with pylog.open(where) as store:
        assert values(store) == [*VALUES[5:29], *[b"again"] * 11]
        for found in (*store.verify().findings, *store.check().findings):
            assert (found.kind, found.path) == ("derived", str(path))  # of a sealed segment some are not created again


@pytest.mark.damaged("a derived file is not what it should be, on purpose")
@pytest.mark.parametrize("kind", ["seal", "leader epochs", "snapshot", "log starts"])
def test_a_derived_file_that_cannot_be_used_is_a_finding_of_verify_and_of_doctor(tmp_path: Path, sound: Path, kind: str) -> None:
    where = tmp_path / "s"
    shutil.copytree(sound, where)
    path = where / KINDS[kind].format(end=len(VALUES))
    path.unlink(missing_ok=True)
    path.write_bytes(b"")
    os.truncate(path, 10 << 30)
    with pylog.open(where, "r") as store:
        assert [(finding.kind, finding.path) for finding in store.verify().findings] == [("derived", str(path))]


# ---- ranges --------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [2**63, -1, 10**30, "0x1", "1_0", "٣", "", "9" * 5000])
def test_a_number_that_kafka_would_not_read_is_none_of_a_checkpoint(number: object) -> None:
    with pytest.raises(pylog.CorruptionError):
        parse_offsets(f"0\n1\nt 0 {number}\n".encode(), "x")
    with pytest.raises(pylog.CorruptionError):
        parse_epochs(f"0\n1\n0 {number}\n".encode(), "x")
    assert parse_offsets(f"0\n1\nt 0 {2**63 - 1}\n".encode(), "x")


def test_an_epoch_is_an_int32() -> None:
    assert parse_epochs(f"0\n1\n{2**31 - 1} 0\n".encode(), "x")[0].epoch == 2**31 - 1
    for epoch in (2**31, 10**30, -1):
        with pytest.raises(pylog.CorruptionError):
            parse_epochs(f"0\n1\n{epoch} 0\n".encode(), "x")


@pytest.mark.parametrize(
    "lie",
    [
        {"counter": 2**64 - 1},
        {"epoch": 2**64 - 2},
        {"truncation_count": 2**32 - 1},
        {"published_position": 2**31},
        {"published_position": -1},
        {"durable_position": 2**40},
        {"active_base": -1},
        {"active_base": 5, "published_offset": 4},
        {"published_offset": 2**40},
        {"log_start_offset": 4, "published_offset": 3},
        {"log_start_offset": -1},
        {"leader_epoch": -2},
    ],
)
def test_a_slot_with_a_right_checksum_and_impossible_numbers_counts_as_none(lie: dict[str, int]) -> None:
    assert parse_slot(DurablePoint(**lie).encoded()) is None
    assert len(DurablePoint().encoded()) == SLOT_SIZE
    assert parse_slot(DurablePoint(published_offset=2**31, leader_epoch=2**31 - 1).encoded()) is not None


def test_a_process_without_descriptors_takes_no_derived_file_for_missing(tmp_path: Path) -> None:
    class Full(OsFileSystem):
        def read(self, path: str, limit: int) -> bytes | None:
            raise pylog.StorageFailedError("too many open files", path=path, errno=24)

    with pytest.raises(pylog.StorageFailedError):
        OFFSETS.fetch_derived(Full(), str(tmp_path / DURABLE_POINT))
