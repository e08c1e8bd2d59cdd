"""A compressed message of format 0 or 1 contains records of its own place only, by every way of reading."""

from __future__ import annotations

import gzip
import struct
import zlib
from pathlib import Path

import google_crc32c
import pytest

import pylog
from pylog.errors import CorruptionError

LIES = [
    (0, (2, 1, 0)),
    (0, (0, 1, 2)),
    (0, (0, 2**63 - 1, 1)),
    (0, (6, 100, 8)),
    (0, (6, 7, 9)),
    (1, (0, 5, 2)),
    (1, (0, 0, 2)),
    (1, (2, 1, 2)),
    (1, (0, 1, 8)),
]


def message(offset: int, magic: int, attributes: int = 0, key: bytes | None = b"k", value: bytes = b"v") -> bytes:
    body = struct.pack(">bB", magic, attributes) + (struct.pack(">q", 1_700_000_000_000) if magic else b"")
    for data in (key, value):
        body += struct.pack(">i", -1) if data is None else struct.pack(">i", len(data)) + data
    return struct.pack(">qi", offset, 4 + len(body)) + struct.pack(">I", zlib.crc32(body)) + body


def batch(base: int, payload: bytes = b"\x0e\0\0\0\1\x02v\0", attributes: int = 0, count: int = 1) -> bytes:
    rest = struct.pack(">hiqqqhii", attributes, count - 1, 0, 0, -1, -1, -1, count) + payload
    return struct.pack(">qiibI", base, 9 + len(rest), 0, 2, google_crc32c.value(rest)) + rest


def laid(path: Path, middle: bytes) -> Path:
    (path / "t-0").mkdir()
    (path / "t-0" / f"{0:020}.log").write_bytes(b"".join(map(batch, range(6))) + middle + b"".join(map(batch, range(9, 15))))
    return path


def wrapped(magic: int, inner: tuple[int, ...]) -> bytes:
    return message(8, magic, 1, None, gzip.compress(b"".join(message(offset, magic) for offset in inner)))


@pytest.mark.parametrize(("magic", "inner"), [(0, (6, 7, 8)), (1, (0, 1, 2)), (0, (7, 8)), (1, (0, 2))])
def test_a_wrapper_with_offsets_of_its_own_is_read(tmp_path: Path, magic: int, inner: tuple[int, ...]):
    with pylog.open(laid(tmp_path, wrapped(magic, inner)), "r") as store:
        offsets = [record.offset for record in store.log("t").records()]
    assert offsets == sorted(set(offsets))
    assert len(offsets) == 12 + len(inner)


@pytest.mark.parametrize(("magic", "inner"), LIES)
def test_a_wrapper_with_offsets_of_another_place_is_damage_and_reading_goes_on_after_it(
    tmp_path: Path, magic: int, inner: tuple[int, ...]
):
    with pylog.open(laid(tmp_path, wrapped(magic, inner)), "r") as store:
        log, seen = store.log("t"), []
        with pytest.raises(CorruptionError) as caught:
            seen += [record.offset for record in log.records()]
        assert caught.value.next_offset == 9
        assert [record.offset for record in log.records(9)] == list(range(9, 15))


@pytest.mark.parametrize(
    "lie",
    [
        batch(6, b"rubbish", 4, 3),
        batch(6, b"\x28\xb5\x2f\xfd\x00\x58" + (struct.pack("<I", 131072 << 3 | 2)[:3] + b"\0") * 1024 + b"\x01\0\0", 4, 3),
        batch(6, attributes=6, count=3),
    ],
    ids=["damaged", "bomb", "unknown codec"],
)
def test_each_error_of_records_that_cannot_be_read_says_as_a_number_where_reading_goes_on(tmp_path: Path, lie: bytes):
    seen: list[int] = []
    told: list[pylog.PylogError] = []
    with pylog.open(laid(tmp_path, lie), "r") as store:
        for at in (0, 9):
            try:
                for record in store.log("t").records(at):
                    seen.append(record.offset)  # noqa: PERF401 - the error ends the loop
            except pylog.PylogError as error:
                told.append(error)
    assert [error.next_offset for error in told] == [9]
    assert "reading can continue at offset 9" in str(told[0])
    assert [offset for offset in seen if not 6 <= offset < 9] == [*range(6), *range(9, 15)]
