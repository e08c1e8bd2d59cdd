"""All segments of a topic in one table, derived from the manifests: a planner reads one object and lists nothing. Pure.

The table is a Parquet file. Its schema's metadata has the version of each partition's manifest, so that a reader knows how new
it is, and the log starts.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable
from typing import Final, NamedTuple

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from pylog.directory.documents import Count, Offset
from pylog.errors import CorruptionError
from pylog.objects.layout import TABLE, catalogue_prefix
from pylog.objects.manifest import Manifest
from pylog.objects.objects import ObjectStore
from pylog.objects.versions import Versions

_VERSIONS: Final = b"pylog.partitions"
SCHEMA: Final = pa.schema(
    [
        ("partition", pa.int32()),
        ("base_offset", pa.int64()),
        ("end_offset", pa.int64()),
        ("segment_id", pa.binary(16)),
        ("size", pa.int64()),
        ("max_timestamp", pa.int64()),
        ("has_aborted", pa.bool_()),
        ("log_crc32c", pa.uint32()),
        ("indexes_crc32c", pa.uint32()),
        ("indexes_size", pa.int64()),
    ]
)


class PartitionVersion(msgspec.Struct, frozen=True, array_like=True):
    """A partition in a catalogue: its number, the version of its manifest, its log start."""

    partition: Count
    version: Offset
    start_offset: Offset


_DECODER: Final = msgspec.json.Decoder(tuple[PartitionVersion, ...])


class Catalogue(NamedTuple):
    """The segments of a topic.

    Attributes:
        partitions: those that the archive has, with the versions of the manifests that the table is made of.
        table: one row a segment, in the order of partitions and offsets; columns as in `SCHEMA`.
    """

    partitions: tuple[PartitionVersion, ...]
    table: pa.Table


def catalogue_of(manifests: Iterable[Manifest]) -> Catalogue:
    """Returns the catalogue of a topic from the manifests of its partitions."""
    every = sorted(manifests, key=lambda manifest: manifest.partition)
    versions = tuple(PartitionVersion(each.partition, each.version, each.start_offset) for each in every)
    tables = [_table(manifest) for manifest in every]
    return Catalogue(versions, pa.concat_tables([SCHEMA.empty_table(), *tables]).combine_chunks())


def _table(manifest: Manifest) -> pa.Table:
    """Returns the rows of one partition: columns take a tenth of the memory of rows as objects."""
    columns: dict[str, list[object]] = {
        name: [getattr(segment, name) for segment in manifest.segments]
        for name in SCHEMA.names
        if name not in {"partition", "segment_id"}
    }
    columns["partition"] = [manifest.partition] * len(manifest.segments)
    columns["segment_id"] = [base64.urlsafe_b64decode(segment.segment_id + "==") for segment in manifest.segments]
    return pa.Table.from_pydict(columns, SCHEMA)


def encode_catalogue(catalogue: Catalogue) -> bytes:
    """Returns the bytes of a catalogue's object."""
    sink = pa.BufferOutputStream()
    table = catalogue.table.replace_schema_metadata({_VERSIONS: msgspec.json.encode(catalogue.partitions)})
    pq.write_table(table, sink, compression="zstd", write_page_checksum=True)
    return bytes(sink.getvalue())


def decode_catalogue(data: bytes | memoryview, where: str) -> Catalogue:
    """Returns a catalogue from its bytes.

    Raises:
        CorruptionError: the bytes are damaged. The manifests have all that the catalogue has.
    """
    try:
        table = pq.read_table(pa.BufferReader(pa.py_buffer(data)), page_checksum_verification=True)
        versions = _DECODER.decode((table.schema.metadata or {})[_VERSIONS])
        table = table.select(SCHEMA.names).cast(SCHEMA).combine_chunks()
    except (pa.ArrowException, OSError, KeyError, ValueError, msgspec.MsgspecError) as error:
        raise CorruptionError(f"{where} is not a catalogue ({error}); the manifests count", path=where) from error
    if any(column.null_count for column in table.columns) or np.any(np.diff(table.column("partition").to_numpy()) < 0):
        raise CorruptionError(f"{where} has no order of partitions, or has empty cells; the manifests count", path=where)
    return Catalogue(versions, table)


def catalogues_of(objects: ObjectStore, topic: str, topic_id: str) -> Versions[Catalogue]:
    """Returns the catalogues of a topic."""
    return Versions(objects, catalogue_prefix(topic, topic_id), TABLE, decode_catalogue)
