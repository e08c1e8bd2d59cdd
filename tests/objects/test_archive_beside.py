"""An archive run beside other threads: they run between its pieces."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest

import pylog
import pylog.archive.uploader as uploader
from pylog.record.checksum import crc32c
from support.objects import EmptyLogs, every_url


@pytest.fixture
def pieces(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Counts how often an archive run gives way, among the checksums that it computes."""
    found: list[str] = []
    give_way, checksum = uploader._give_way, uploader.extend
    monkeypatch.setattr(uploader, "_give_way", lambda: (found.append("way"), give_way()))
    monkeypatch.setattr(uploader, "extend", lambda value, data: (found.append(f"{len(data)}"), checksum(value, data))[1])
    return found


def test_other_threads_run_between_the_pieces_of_a_segment(tmp_path: Path, pieces: list[str]) -> None:
    with pylog.open(tmp_path) as store:
        store.create_topic("t", segment_bytes=16 << 20)
        for _ in range(20):
            store.log("t").append(b"x" * 100_000)
        with every_url(EmptyLogs()):
            store.archive("s3://bucket/archive", include_active=True)
    sizes = [int(each) for each in pieces if each != "way"]
    assert sum(sizes) > 2_000_000
    assert max(sizes) == 256 << 10
    assert pieces.count("way") > len(sizes)  # after each piece, and after each part of the batches
    after = [following for piece, following in pairwise(pieces) if piece != "way"]
    assert after == ["way"] * len(after)


def test_the_checksum_of_many_pieces_is_that_of_the_whole() -> None:
    for size in (0, 1, 256 << 10, (256 << 10) + 1, 1_000_000):
        data = bytes(range(256)) * (size // 256 + 1)
        assert uploader.checksum_of(memoryview(data)[:size]) == crc32c(data[:size])
