"""`dump`: decodes a file of Kafka or pylog into documents: one per batch, record or entry.

It shows the batches that pylog reads, and the damage between them, but no records of damaged batches. `like_kafka` prints files
as Kafka's own tool does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

import numpy as np
from msgspec.structs import asdict

from pylog import limits
from pylog.directory.checkpoints import CLEANER, HIGH_WATERMARK, LOG_START, OFFSETS, RECOVERY_POINT
from pylog.directory.leader_epoch_cache import read_epochs
from pylog.directory.partition_metadata import read_topic_id
from pylog.directory.topic_names import parse_partition_directory
from pylog.errors import InvalidArgumentError, PylogError
from pylog.fs import FileSystem, base_name, guarded, parent_of
from pylog.index import kinds
from pylog.index.offset_index import OffsetIndex
from pylog.index.time_index import TimeIndex
from pylog.index.transaction_index import ENTRY_SIZE
from pylog.log.durable_point import CUTS, CUTS_AT, SLOT_SIZE, SLOTS
from pylog.log.recovery.producer_snapshots import ENTRIES
from pylog.record.compression import codec_name
from pylog.record.control import parse_control
from pylog.record.format import CODEC_MASK, CONTROL_BIT, DELETE_HORIZON_BIT, TRANSACTIONAL_BIT
from pylog.segment import names
from pylog.segment.batch_walk import Damage, WalkedRange, is_preallocated, walk
from pylog.segment.seal import SEALS
from pylog.segment.segment import LogSegment
from pylog.tools.like_kafka import DECODERS
from pylog.tools.messages import GROUPS, TRANSACTIONS, Layout, decode
from pylog.tools.names import NamedFile, named_file, read_file, segment_at
from pylog.tools.records import Row, rows_by_batch, timestamp_type
from pylog.transactions.records import parse_value

Document = dict[str, Any]

_CHECKPOINTS: Final = (RECOVERY_POINT, LOG_START, CLEANER, HIGH_WATERMARK)
_INTERNAL: Final = {"__consumer_offsets": GROUPS, "__transaction_state": TRANSACTIONS}
_STAMPS: Final = {-1: None, 0: "CreateTime", 1: "LogAppendTime"}
_FIELDS: Final = ("leader_epoch", "producer_id", "producer_epoch", "base_sequence", "crc")


def documents(fs: FileSystem, path: str, *, records: bool = False, decoder: str | None = None) -> Iterator[Document]:
    """Yields the content of a file as documents. Bytes stay bytes.

    Args:
        fs, path: the file: `.log`, `.index`, `.timeindex`, `.txnindex`, `.snapshot`, `.seal`, a checkpoint, `durable-point`,
            `partition.metadata`.
        records: yield the records of a `.log` file too.
        decoder: decoder for records: "offsets" or "transactions"; by default chosen by the name of the file's directory.

    Raises:
        InvalidArgumentError: the file is of another kind, or the decoder does not exist.
        CorruptionError, UnsupportedFormatError: the file is damaged. Damage in a `.log` file is a document instead.
        StorageFailedError: the file cannot be read.

    Cost: memory for some megabytes of the file.

    >>> import pylog, tempfile
    >>> from pylog.fs import OsFileSystem
    >>> root = tempfile.mkdtemp()
    >>> with pylog.open(root) as store:
    ...     _ = store.create_topic("orders")
    ...     _ = store.log("orders").append(b"paid", key=b"42", timestamp=0)
    >>> [found["kind"] for found in documents(OsFileSystem(), f"{root}/orders-0/{0:020d}.log", records=True)]
    ['batch', 'record']
    """
    if decoder is not None and decoder not in DECODERS:
        raise InvalidArgumentError(f"decoder={decoder!r} is not one of {', '.join(DECODERS)}")
    file = named_file(path)
    if file.suffix == names.LOG:
        return guarded(_log(fs, file, records, _layouts_of(file) if decoder is None else DECODERS[decoder]), path)
    reader = _BY_NAME.get(file.name) or _BY_SUFFIX.get(file.suffix)
    if reader is None:
        known = ", ".join((names.LOG, *_BY_SUFFIX, *_BY_NAME))
        raise InvalidArgumentError(f"{path} is not of a known kind; the kinds are {known}", path=path)
    return guarded(_entries_of(reader, file, read_file(fs, path), fs), path)


def _entries_of(reader: _Decoder, file: NamedFile, data: bytes, fs: FileSystem) -> Iterator[Document]:
    """Yields the documents of a file. A generator, so that its reader runs inside of the door."""
    yield from reader(file, data, fs)


def _layouts_of(file: NamedFile) -> Mapping[int, Layout] | None:
    partition = parse_partition_directory(base_name(parent_of(file.path)))
    return None if partition is None else _INTERNAL.get(partition.topic)


# ---- logs --------------------------------------------------------------------------------------------------------------------


def _log(fs: FileSystem, file: NamedFile, records: bool, layouts: Mapping[int, Layout] | None) -> Iterator[Document]:
    segment, following = segment_at(fs, file)
    for walked in walk(segment, 0, segment.size, following, verify=True):
        batches = map(_batch, walked.table.T.tolist(), [walked.shift] * walked.table.shape[1])
        if records:
            yield from _with_records(walked, batches, layouts)
        else:
            yield from batches
        if walked.damage is not None:
            yield _after_batches(segment, walked.damage)


def _batch(column: list[int], shift: int) -> Document:
    position, size, base, last, count, first_stamp, stamp, attributes, magic, *fields = column
    found: Document = {
        "kind": "batch",
        "position": shift + position,
        "size": size,
        "base_offset": base if magic >= 2 else None,
        "last_offset": last,
        "count": count if magic >= 2 else None,
        "magic": magic,
        "codec": codec_name(attributes & CODEC_MASK),
        "timestamp_type": _STAMPS[timestamp_type(magic, attributes)],
        "max_timestamp": stamp,
        "transactional": bool(attributes & TRANSACTIONAL_BIT),
        "control": bool(attributes & CONTROL_BIT),
        "delete_horizon": first_stamp if attributes & DELETE_HORIZON_BIT and magic >= 2 else None,
    }
    return found | dict(zip(_FIELDS, fields, strict=False))


def _with_records(walked: WalkedRange, batches: Iterator[Document], layouts: Mapping[int, Layout] | None) -> Iterator[Document]:
    for batch, rows in zip(batches, rows_by_batch(walked.buffer, walked.table), strict=True):
        yield batch
        for row in rows:
            yield _record(row, layouts, control=batch["control"])


def _record(row: Row, layouts: Mapping[int, Layout] | None, *, control: bool) -> Document:
    found: Document = {"kind": "record", "offset": row.offset, "timestamp": row.timestamp}
    if control:
        marker = parse_control(row.key, row.value)
        return found | {"control": marker.name, "coordinator_epoch": marker.coordinator_epoch}
    key, value = (row.key, row.value) if layouts is None else decode(layouts, row.offset, row.key, row.value)
    if layouts is TRANSACTIONS and isinstance(value, dict):
        value |= _state_and_owner(row.value or b"")
    headers = [{"key": name, "value": content} for name, content in row.headers]
    return found | {"key": key, "value": value, "headers": headers}


def _state_and_owner(value: bytes) -> Document:
    """Returns Kafka's name of a transaction's state, and pylog's own field, which names the owner of an open one."""
    try:
        known = parse_value("", value)
    except PylogError:
        return {}
    owner = known.owner
    fields = (
        {} if owner is None else {"owner": {"byte": owner.byte, "level": owner.level, "end_offsets": list(owner.end_offsets)}}
    )
    return {"state": known.state.kafka_name, **fields}


def _after_batches(segment: LogSegment, damage: Damage) -> Document:
    """Returns the document for bytes that are not batches: preallocated zeros at the end of the file, or damage."""
    position, size = damage.position, damage.end - damage.position
    if is_preallocated(segment, damage):
        return {"kind": "preallocated", "position": position, "size": size}
    return {
        "kind": "damage",
        "position": position,
        "size": size,
        "offset": damage.offset,
        "next_offset": damage.next_offset,
        "why": f"the batch {damage.why}",
    }


# ---- indexes and snapshots ---------------------------------------------------------------------------------------------------


def _entries(numbered: Iterator[Document], data: bytes, size: int, count: int) -> Iterator[Document]:
    """Yields the entries of an index, and a document for the bytes after them."""
    yield from numbered
    left = len(data) - count * size
    if left and any(data[count * size :]):
        yield {"kind": "damage", "position": count * size, "size": left, "why": "these bytes are not entries"}
    elif left:
        yield {"kind": "preallocated", "position": count * size, "size": left}


def _index(file: NamedFile, data: bytes, _: FileSystem) -> Iterator[Document]:
    index, _damaged = kinds.OFFSETS.parsed(data, file.path, file.base_offset, limits.MAX_SEGMENT_BYTES)
    pairs = np.frombuffer(index.encoded(), ">i4").reshape(-1, 2).tolist()
    found = ({"kind": "entry", "offset": index.base_offset + offset, "position": position} for offset, position in pairs)
    return _entries(found, data, OffsetIndex.ENTRY_SIZE, len(index))


def _time_index(file: NamedFile, data: bytes, _: FileSystem) -> Iterator[Document]:
    index, _damaged = kinds.TIMES.parsed(data, file.path, file.base_offset)
    pairs = np.frombuffer(index.encoded(), np.dtype([("timestamp", ">i8"), ("offset", ">i4")])).tolist()
    found = ({"kind": "entry", "timestamp": stamp, "offset": index.base_offset + offset} for stamp, offset in pairs)
    return _entries(found, data, TimeIndex.ENTRY_SIZE, len(index))


def _transaction_index(file: NamedFile, data: bytes, _: FileSystem) -> Iterator[Document]:
    index, _damaged = kinds.TRANSACTIONS.parsed(data, file.path, file.base_offset)
    found = ({"kind": "aborted", **entry._asdict()} for entry in index.entries)
    return _entries(found, data, ENTRY_SIZE, len(index))


def _snapshot(file: NamedFile, data: bytes, _: FileSystem) -> Iterator[Document]:
    for producer in ENTRIES.parsed(data, file.path):
        fields = producer._asdict()
        del fields["earlier"]  # not stored in snapshots
        yield {"kind": "producer", **fields}


# ---- small files -------------------------------------------------------------------------------------------------------------


def _checkpoint(file: NamedFile, data: bytes, _: FileSystem) -> Iterator[Document]:
    for partition, offset in OFFSETS.parsed(data, file.path).items():
        yield {"kind": "checkpoint", "topic": partition.topic, "partition": partition.partition, "offset": offset}


def _epochs(file: NamedFile, _data: bytes, fs: FileSystem) -> Iterator[Document]:
    for epoch, start in read_epochs(fs, parent_of(file.path)) or ():
        yield {"kind": "epoch", "epoch": epoch, "start_offset": start}


def _metadata(file: NamedFile, _data: bytes, fs: FileSystem) -> Iterator[Document]:
    yield {"kind": "partition", "topic_id": read_topic_id(fs, parent_of(file.path))}


def _seal(file: NamedFile, data: bytes, _: FileSystem) -> Iterator[Document]:
    fields = SEALS.parsed(data, file.path)._asdict()
    positions, digests = fields.pop("positions"), fields.pop("digests")
    yield {"kind": "seal", **fields, "replaces": list(fields["replaces"])}
    for position, digest in zip(positions.tolist(), digests.tolist(), strict=True):
        yield {"kind": "mark", "position": position, "digest": digest}


def _header(file: NamedFile, data: bytes, _: FileSystem) -> Iterator[Document]:
    for start in (0, SLOT_SIZE):
        slot = SLOTS.parsed(data[start : start + SLOT_SIZE], file.path)
        yield {"kind": "slot", "position": start, "valid": False} if slot is None else _slot(start, asdict(slot))
    if len(data) > CUTS_AT:
        truncations = CUTS.parsed(data[CUTS_AT : CUTS_AT + SLOT_SIZE], file.path)
        yield {"kind": "truncations", "cuts": [] if truncations is None else [list(cut) for cut in truncations.cuts]}


def _slot(start: int, fields: Document) -> Document:
    shown = {name: value.hex() if isinstance(value, bytes) else value for name, value in fields.items()}
    return {"kind": "slot", "position": start, "valid": True, **shown}


_Decoder = Callable[[NamedFile, bytes, FileSystem], Iterator[Document]]
_BY_SUFFIX: Final[dict[str, _Decoder]] = {
    names.INDEX: _index,
    names.TIME_INDEX: _time_index,
    names.TRANSACTION_INDEX: _transaction_index,
    names.SNAPSHOT: _snapshot,
    names.SEAL: _seal,
}
_BY_NAME: Final[dict[str, _Decoder]] = {
    **dict.fromkeys(_CHECKPOINTS, _checkpoint),
    names.LEADER_EPOCH_CHECKPOINT: _epochs,
    names.PARTITION_METADATA: _metadata,
    names.DURABLE_POINT: _header,
}


def is_known(name: str) -> bool:
    """Returns True if a file with this name can be decoded.

    >>> is_known("00000000000000000000.log"), is_known("notes.txt")
    (True, False)
    """
    return name in _BY_NAME or named_file(name).suffix in (names.LOG, *_BY_SUFFIX)
