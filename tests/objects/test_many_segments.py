"""Planning reads of an archive with many partitions and segments: by the catalogue, in few requests.

`./dev bench planning` plans a million segments.
"""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from pylog.archived_files import archived_store
from pylog.archived_outlines import ArchivedOutlines
from pylog.errors import CorruptionError, UnknownTopicOrPartitionError
from pylog.objects.segment_catalogue import Catalogue, PartitionVersion, catalogue_of, decode_catalogue, encode_catalogue
from pylog.record.types import TopicPartition
from pylog.spark.options import read_options
from pylog.spark.planner import plan
from support.bench.made_catalogue import RECORDS, SEGMENT_BYTES, make_catalogue
from support.objects import MemoryObjects

PARTITIONS, SEGMENTS = 300, 20


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("many") / "archive"
    make_catalogue(path, partitions=PARTITIONS, segments=SEGMENTS)
    return path


def in_memory(archive: Path) -> MemoryObjects:
    files = {str(each.relative_to(archive)): each.read_bytes() for each in archive.rglob("*") if each.is_file()}
    return MemoryObjects(objects=files)


def test_each_partition_has_its_own_segments_for_three_requests_in_all(archive: Path) -> None:
    objects = in_memory(archive)
    outlines = ArchivedOutlines(objects, archived_store(objects))
    objects.requests.clear()
    for number in range(PARTITIONS):
        found = outlines.extent(TopicPartition("events", number))
        assert found.version == 7
        assert (found.extent.start_offset, found.extent.end_offset) == (0, SEGMENTS * RECORDS)
        assert list(found.extent.bases) == [each * RECORDS for each in range(SEGMENTS)]
        assert list(found.extent.sizes) == [SEGMENT_BYTES + each for each in range(SEGMENTS)]
    assert [request for request, _ in objects.requests] == ["get"] * 3
    with pytest.raises(UnknownTopicOrPartitionError):
        outlines.extent(TopicPartition("events", PARTITIONS))


def test_the_tasks_cover_each_partition_once(archive: Path) -> None:
    parts = plan(
        read_options({"path": f"file://{archive}", "subscribe": "events", "maxBytesPerPartition": str(10 * SEGMENT_BYTES)})
    )
    assert PARTITIONS * 2 <= len(parts) <= PARTITIONS * 3
    covered = sorted((part.partition, part.start, part.end) for part in parts)
    ends = dict.fromkeys(range(PARTITIONS), 0)
    for partition, start, end in covered:
        assert start == ends[partition]
        ends[partition] = end
    assert set(ends.values()) == {SEGMENTS * RECORDS}


def test_a_catalogue_without_rows_or_partitions() -> None:
    empty = catalogue_of([])
    assert decode_catalogue(encode_catalogue(empty), "there") == empty


@pytest.mark.parametrize(
    ("column", "values"), [("partition", [1, 0]), ("partition", [0, None]), ("base_offset", [None, 5]), ("size", [None, None])]
)
def test_a_catalogue_without_order_or_with_empty_cells_is_refused(archive: Path, column: str, values: list[int | None]) -> None:
    objects = in_memory(archive)
    key = next(each for each in objects.objects if each.endswith(".parquet"))
    table = decode_catalogue(objects.objects[key], key).table.slice(0, 2)
    at = table.schema.get_field_index(column)
    changed = table.set_column(at, table.schema.field(at), pa.array(values, table.schema.field(at).type))
    data = encode_catalogue(Catalogue((PartitionVersion(0, 7, 0),), changed))
    with pytest.raises(CorruptionError, match="no order of partitions, or has empty cells"):
        decode_catalogue(data, "there")
