"""An outline says what the open log says, for less: the segments' sizes and the headers at the end."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pytest

import pylog
from pylog import Durability
from pylog.fs.system import OsFile
from pylog.log.reading.outline import PartitionExtent, outline_of
from pylog.log.reading.planning import cut
from pylog.log.recovery.sound_tail import sound_tail
from pylog.store import manager_of
from support.engines import engine_of, segments_of
from support.faults.sparse_log import BATCH_BYTES, TOPIC, make_store

VALUES = pa.table({"value": pa.array([b"%0100d" % number for number in range(50)], pa.binary())})


def filled(directory: Path, pieces: int = 12) -> Path:
    with pylog.open(directory, durability=Durability.OS) as store:
        store.create_topic("events", segment_bytes=16_384, index_interval_bytes=1)
        for _ in range(pieces):
            store.log("events").append_arrow(VALUES)
    return directory


@contextmanager
def both(directory: Path) -> Iterator[tuple[PartitionExtent, PartitionExtent]]:
    """Without the log, and of the open log. Outlines read indexes as long as their store is open."""
    with pylog.open(directory, mode="r") as store:
        yield manager_of(store).outline("events"), outline_of(engine_of(store.log("events")).snapshot())


def test_an_outline_says_what_the_open_log_says(tmp_path: Path):
    with both(filled(tmp_path / "shop")) as (seen, known):
        assert len(seen.bases) > 3
        assert (seen.start_offset, seen.end_offset) == (known.start_offset, known.end_offset) == (0, 600)
        assert list(seen.bases) == list(known.bases)
        assert list(seen.sizes) == list(known.sizes)
        for start, end, size in [(0, 600, 3_000), (120, 599, 20_000), (77, 78, 1), (599, 600, 1)]:
            assert cut(seen, start, end, size) == cut(known, start, end, size)


def test_an_empty_partition_has_an_outline_too(tmp_path: Path):
    with both(filled(tmp_path / "shop", pieces=0)) as (seen, known):
        assert (seen.start_offset, seen.end_offset) == (known.start_offset, known.end_offset) == (0, 0)
        assert cut(seen, 0, 0, 1).size == 0


def test_an_outline_of_a_store_that_is_written_sees_all_published_records(tmp_path: Path):
    with pylog.open(filled(tmp_path / "shop")) as store:
        store.log("events").append(b"more")
        assert manager_of(store).outline("events").end_offset == 601


def test_the_records_of_a_large_last_batch_are_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    make_store(tmp_path / "shop", partitions=1, segments=2, batches=3)
    read, into, some = [], OsFile.read_into, OsFile.read

    def counted_into(self: OsFile, view: memoryview, position: int) -> int:
        read.append(into(self, view, position))
        return read[-1]

    def counted(self: OsFile, size: int, position: int) -> bytes:
        read.append(len(data := some(self, size, position)))
        return data

    monkeypatch.setattr(OsFile, "read_into", counted_into)
    monkeypatch.setattr(OsFile, "read", counted)
    with pylog.open(tmp_path / "shop", mode="r") as store:
        assert manager_of(store).outline(TOPIC).end_offset == 6000
    assert 0 < sum(read) < BATCH_BYTES // 20


@pytest.mark.parametrize("byte", [0, 8, 12, 16, 26])
def test_an_end_that_is_not_as_it_should_be_is_left_to_the_walk(tmp_path: Path, byte: int):
    directory = tmp_path / "shop"
    make_store(directory, partitions=1, segments=1, batches=3)
    path = directory / f"{TOPIC}-0" / f"{0:020}.log"
    with path.open("r+b") as file:
        file.seek(2 * BATCH_BYTES + byte)
        file.write(b"\x7f")
    with both(directory) as (seen, known):
        assert seen.end_offset == known.end_offset
        with pylog.open(directory, mode="r") as store:
            segment = segments_of(store.log(TOPIC))[0]
            assert sound_tail(segment, BATCH_BYTES, None) is None
