"""A long file is on its way to the disk before anyone syncs it; what is durable, a sync decides all the same."""

from __future__ import annotations

import mmap
from pathlib import Path

import pytest

from pylog import limits
from pylog.fs import OsFileSystem, write_out

STEP = 8 * mmap.PAGESIZE
ODD = STEP // 3 + 7  # bytes of one write


@pytest.fixture(autouse=True)
def small_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "WRITE_OUT_BYTES", STEP)


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    """The ranges that the system is asked to write out."""
    ranges: list[tuple[int, int]] = []

    def note(_: int, start: int, size: int, flags: int) -> int:
        assert flags == 2
        ranges.append((start, start + size))
        return -1  # that it failed is the next sync's to say

    monkeypatch.setattr(write_out, "_function", lambda: note)
    return ranges


def write(path: Path, writes: int) -> bytes:
    file = OsFileSystem().create(str(path))
    for number in range(writes):
        file.write(memoryview(bytes([number]) * ODD), number * ODD)
    file.sync()
    file.close()
    return b"".join(bytes([number]) * ODD for number in range(writes))


def test_what_is_appended_is_written_out_a_step_at_a_time_in_whole_pages_and_once(
    tmp_path: Path, asked: list[tuple[int, int]]
) -> None:
    data = write(tmp_path / "long", 40)
    assert [start for start, _ in asked] == [0, *(end for _, end in asked[:-1])]
    assert all(end % mmap.PAGESIZE == 0 and STEP - mmap.PAGESIZE <= end - start < STEP + ODD for start, end in asked)
    assert len(data) - STEP - ODD < asked[-1][1] <= len(data)


def test_a_short_file_is_left_alone(tmp_path: Path, asked: list[tuple[int, int]]) -> None:
    write(tmp_path / "short", 2)
    assert asked == []


@pytest.mark.parametrize("there", [True, False])
def test_the_bytes_are_the_same_whether_or_not_the_system_can_be_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, there: bool
) -> None:
    if not there:
        monkeypatch.setattr(write_out, "_function", lambda: None)
    data = write(tmp_path / "long", 40)
    assert (tmp_path / "long").read_bytes() == data
