"""What is verified in chunks that are read ahead is what is verified chunk by chunk, whatever the file and wherever it ends."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import pylog
from pylog import limits
from pylog.fs import OsFileSystem
from pylog.record import kernels
from pylog.record.format import POSITION
from pylog.segment import log_file
from pylog.segment.log_file import LogFile, Region
from pylog.testing import FaultyFileSystem

CHUNK = 512
SIZES = (1, 300, 20, 1, 700, 90, 90, 3000, 5, 400, 1, 1, 250)  # of values: in one chunk, over two, and larger than all buffers


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "FIRST_CHUNK_BYTES", CHUNK // 8)
    monkeypatch.setattr(limits, "SCAN_CHUNK_BYTES", CHUNK)
    monkeypatch.setattr(limits, "VERIFY_CHUNK_BYTES", CHUNK)
    monkeypatch.setattr(log_file, "_LARGE", 1)


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    root = tmp_path_factory.mktemp("written")
    with pylog.open(root) as store:
        store.create_topic("t")
        for size in SIZES * 3:
            store.log("t").append(b"v" * size, timestamp=1)
    return (root / "t-0" / f"{0:020}.log").read_bytes()


@pytest.fixture
def path(tmp_path: Path, written: bytes) -> Path:
    (tmp_path / "x.log").write_bytes(written)
    return tmp_path / "x.log"


def batches(regions: Iterator[Region]) -> tuple[list[list[int]], int, int]:
    """The columns of all batches, with their places in the file; where the walk ended, and how."""
    columns, end, status = [], -1, -1
    for region in regions:
        table = region.table.copy()
        table[POSITION] += region.shift
        columns += table.T.tolist()
        end, status = region.end, region.status
    return columns, end, status


def both(path: Path, position: int, end: int) -> tuple[object, object]:
    """What is found with reading ahead, and without."""
    file = LogFile(OsFileSystem(), str(path), mapped=False)
    found = batches(file.regions(position, end, verify=True)), batches(file._read_regions(position, end, verify=True))
    file.close()
    return found


@pytest.mark.slow
def test_wherever_a_file_ends_the_same_batches_are_found(path: Path, written: bytes) -> None:
    for end in (*range(0, 2000, 13), *range(2000, len(written), 131), len(written)):
        ahead, plain = both(path, 0, end)
        assert ahead == plain, end
    (columns, stopped, status), _ = both(path, 0, len(written))
    assert (len(columns), stopped, status) == (3 * len(SIZES), len(written), kernels.OK)


def test_a_file_that_is_shorter_than_it_was_said_ends_where_it_ends(path: Path, written: bytes) -> None:
    for size in range(1, len(written), 97):
        path.write_bytes(written[:size])
        ahead, plain = both(path, 0, len(written))
        assert ahead == plain, size


@pytest.mark.slow
def test_damage_stops_the_walk_at_the_same_place(path: Path, written: bytes) -> None:
    for at in range(0, len(written), 61):
        path.write_bytes(written[:at] + bytes([written[at] ^ 0x80]) + written[at + 1 :])
        ahead, plain = both(path, 0, len(written))
        assert ahead == plain, at


def test_more_batches_than_a_table_has_room_for_are_all_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pylog.open(tmp_path) as store:
        store.create_topic("t")
        for number in range(60):
            store.log("t").append(b"%d" % number)
    scan = log_file.scan_batches
    monkeypatch.setattr(log_file, "scan_batches", lambda *given, **more: scan(*given, **({"capacity": 3} | more)))
    path = tmp_path / "t-0" / f"{0:020}.log"
    (columns, end, status), _ = both(path, 0, path.stat().st_size)
    assert (len(columns), end, status) == (60, path.stat().st_size, kernels.OK)


def test_a_bad_sector_that_is_met_ahead_is_an_error_with_its_place(path: Path, written: bytes) -> None:
    fs = FaultyFileSystem(OsFileSystem())
    file = LogFile(fs, str(path), mapped=False)
    fs.fail("read EIO", 3, of="x.log")
    with pytest.raises(pylog.StorageFailedError, match=r"x\.log") as error:
        batches(file.regions(0, len(written), verify=True))
    assert error.value.path == str(path)
    file.close()


def test_no_thread_outlives_a_walk_that_is_left_early(path: Path, written: bytes) -> None:
    before = set(threading.enumerate())
    file = LogFile(OsFileSystem(), str(path), mapped=False)
    regions = file.regions(0, len(written), verify=True)
    first = next(regions)
    assert np.array_equal(first.buffer[: first.end], np.frombuffer(written, np.uint8)[: first.end])
    assert set(threading.enumerate()) > before
    regions.close()  # type: ignore[attr-defined]
    assert set(threading.enumerate()) == before
    file.close()


# ---- tables alone, and memory used again -------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("large", [1, 300, 5000])
def test_tables_alone_are_those_of_the_regions_wherever_a_file_ends(
    path: Path, written: bytes, monkeypatch: pytest.MonkeyPatch, large: int
) -> None:
    monkeypatch.setattr(log_file, "_LARGE_BATCH", large)
    file = LogFile(OsFileSystem(), str(path), mapped=False)
    for end in range(1, len(written) + 1, 13):
        assert batches(file.tables(0, end)) == batches(file.regions(0, end))


def test_two_walks_of_one_thread_do_not_share_memory(path: Path, written: bytes) -> None:
    file = LogFile(OsFileSystem(), str(path), mapped=False)
    walks = [file.regions(0, len(written)) for _ in range(2)]
    first = next(walks[0])
    before = first.buffer.tobytes()
    assert sum(len(region.table.T) for region in walks[1]) == 3 * len(SIZES)
    assert first.buffer.tobytes() == before
