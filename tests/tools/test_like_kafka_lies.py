"""`dump --like-kafka` of batches whose numbers lie under right checksums ends in lines, or in an error of pylog."""

from __future__ import annotations

import contextlib
import struct
from pathlib import Path

import google_crc32c
import pytest

from pylog.errors import PylogError
from pylog.fs import OsFileSystem
from pylog.tools.like_kafka import DumpOptions, KafkaDump


def batch(base: int, count: int, delta: int = 2) -> bytes:
    rest = struct.pack(">hiqqqhii", 0, delta, 0, 0, -1, -1, -1, count) + b"\x0e\0\0\0\1\x02v\0"
    return struct.pack(">qiibI", base, 9 + len(rest), 0, 2, google_crc32c.value(rest)) + rest


LIES = {
    "beyond the end": (batch(2**63 - 1, 3), -(2**63) + 1),
    "below the start": (batch(-(2**63), 3, -1), 2**63 - 1),
    "a negative count": (batch(1, -2), 3),
    "a lowest count": (batch(1, -(2**31)), 3),
    "a negative delta": (batch(1, 1, -1), 0),
}


@pytest.mark.parametrize("lie", LIES)
@pytest.mark.parametrize("options", [{}, {"deep_iteration": True}, {"print_data_log": True}], ids=["batches", "records", "data"])
def test_a_batch_with_impossible_numbers_is_shown_or_not(tmp_path: Path, lie: str, options: dict[str, bool]):
    data, last = LIES[lie]
    path = tmp_path / f"{0:020}.log"
    path.write_bytes(batch(0, 1, 0) + data)
    shown: list[str] = []
    with contextlib.suppress(PylogError):
        shown.extend(KafkaDump(OsFileSystem(), DumpOptions(**options)).text(str(path)))  # keeps what came before an error
    assert f"lastOffset: {last} " in "".join(shown)
