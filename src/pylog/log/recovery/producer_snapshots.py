"""The `.snapshot` files of a log's producer state (storage-format 3.10)."""

from __future__ import annotations

import struct
from collections.abc import Collection, Iterable, Iterator
from typing import Any, Final, NamedTuple

import numpy as np

from pylog import limits
from pylog.errors import CorruptionError
from pylog.fs import FileKind, FileSystem, join, remove_derived, write_atomically
from pylog.log.producer_state import Producer, ProducerStateManager
from pylog.record.checksum import crc32c
from pylog.segment.names import SNAPSHOT, file_name
from pylog.text import counted

_VERSION: Final = 1
_HEAD = struct.Struct(">hIi")
_ENTRY = struct.Struct(">qhiqiqiq")
_FIELDS: Final = ["id", "epoch", "sequence", "last", "delta", "timestamp", "coordinator", "first"]
_ROW: Final = np.dtype({"names": _FIELDS, "formats": [">i8", ">i2", ">i4", ">i8", ">i4", ">i8", ">i4", ">i8"]})
assert _ROW.itemsize == _ENTRY.size


def encode_snapshot(state: ProducerStateManager) -> bytes:
    """Returns the content of a `.snapshot` file (storage-format 3.10).

    >>> encode_snapshot(ProducerStateManager()).hex()
    '000148674bc700000000'
    """
    body = b"".join(_ENTRY.pack(*producer[:-1]) for producer in state.producers)
    counted = struct.pack(">i", len(body) // _ENTRY.size) + body
    return struct.pack(">hI", _VERSION, crc32c(counted)) + counted


class Idleness(NamedTuple):
    """The expiry of producers: `expiration_ms` of idle time at `now_ms`, both in milliseconds."""

    now_ms: int
    expiration_ms: int


ONLY_OPEN: Final = Idleness(limits.INT64_MAX, 0)  # for readers, which need only producers with open transactions


def read_snapshot(fs: FileSystem, directory: str, offset: int, idle: Idleness | None = None) -> ProducerStateManager | None:
    """Reads a producer snapshot; None if there is none.

    Args:
        fs, directory, offset: identify the file.
        idle: skips expired producers; those without a timestamp count as idle from now on.

    Raises:
        CorruptionError: the snapshot cannot be used.

    Cost: 1 µs for each producer that has not expired.
    """
    path = join(directory, file_name(offset, SNAPSHOT))
    data, fault, *_ = SNAPSHOTS.fetch_derived(fs, path, offset)
    if fault is not None:
        raise CorruptionError(f"{path} cannot be used: {fault}; an older one is used", path=path)
    return None if data is None else SNAPSHOTS.parsed(data, path, offset, idle)


def _state_of(data: bytes, path: str, offset: int, idle: Idleness | None) -> ProducerStateManager:
    _check_snapshot(data, path)
    rows = np.frombuffer(data, _ROW, offset=_HEAD.size)
    if not rows.size:
        return ProducerStateManager((), offset)
    if not _are_possible(rows, offset):
        raise CorruptionError(
            f"{path} has values that are impossible in a log of {counted(offset, 'offset')}; an older one is used", path=path
        )
    if idle is not None:
        stamps = np.where(rows["timestamp"] < 0, idle.now_ms, np.minimum(rows["timestamp"], idle.now_ms))
        kept = (rows["first"] >= 0) | (idle.now_ms - stamps < idle.expiration_ms)
        rows = rows[kept].copy()
        rows["timestamp"] = stamps[kept]
    return ProducerStateManager((Producer(*fields) for fields in rows.tolist()), offset)


def most_bytes(offset: int) -> int:
    """Returns the most bytes of a snapshot: each producer in it has a record of its own below the snapshot's offset.

    >>> most_bytes(1), most_bytes(1 << 40) == limits.MAX_SNAPSHOT_BYTES
    (56, True)
    """
    return min(limits.MAX_SNAPSHOT_BYTES, _HEAD.size + offset * _ENTRY.size)


SNAPSHOTS: Final = FileKind("a producer snapshot", _state_of, most_bytes, "an older one is used")


def _are_possible(rows: Any, offset: int) -> bool:
    """Returns whether entries are possible in a log that ends at an offset."""
    ids, firsts = rows["id"], rows["first"][rows["first"] >= 0]
    within = (rows["last"] >= -1) & (rows["last"] < offset) & (rows["first"] >= -1) & (rows["first"] < offset)
    counts = (rows["sequence"] >= -1) & (rows["delta"] >= 0) & (rows["delta"] <= rows["last"] + 1)
    distinct = np.unique(ids).size == ids.size and np.unique(firsts).size == firsts.size
    return bool((within & counts & (ids >= 0)).all()) and distinct


def snapshot_entries(data: bytes, path: str) -> Iterator[Producer]:
    """Returns the entries of a snapshot, in file order.

    Raises:
        CorruptionError: an unknown version, a wrong CRC or count.
    """
    _check_snapshot(data, path)
    return (Producer(*fields) for fields in _ENTRY.iter_unpack(data[_HEAD.size :]))


ENTRIES: Final = FileKind("a producer snapshot", snapshot_entries, most_bytes, "an older one is used")


def _check_snapshot(data: bytes, path: str) -> None:
    if len(data) < _HEAD.size:
        raise CorruptionError(f"{path} is too short for a producer snapshot", path=path)
    version, crc, count = _HEAD.unpack_from(data)
    if version != _VERSION or crc != crc32c(data[6:]) or len(data) != _HEAD.size + count * _ENTRY.size:
        raise CorruptionError(f"{path} is not a valid producer snapshot; an older one is used", path=path)


def load_snapshot(
    fs: FileSystem, directory: str, offsets: Iterable[int], start_offset: int, end_offset: int, idle: Idleness | None = None
) -> tuple[ProducerStateManager, list[str]]:
    """Returns the newest usable snapshot in (start, end], else an empty state at the log start; and the faults of others."""
    complaints: list[str] = []
    for offset in sorted((offset for offset in offsets if start_offset < offset <= end_offset), reverse=True):
        try:
            found = read_snapshot(fs, directory, offset, idle)
        except CorruptionError as error:
            complaints.append(str(error))
            continue
        if found is not None:
            return found, complaints
    return ProducerStateManager(end_offset=start_offset), complaints


def write_snapshot(fs: FileSystem, directory: str, state: ProducerStateManager) -> None:
    """Writes a snapshot, named by the state's end offset; offset 0 has none (storage-format 3.10.4).

    A state with more producers than a reader accepts is not written: the batch headers after an older snapshot replace it.
    """
    if state.end_offset > 0 and state.count <= (limits.MAX_SNAPSHOT_BYTES - _HEAD.size) // _ENTRY.size:
        write_atomically(fs, directory, file_name(state.end_offset, SNAPSHOT), encode_snapshot(state))


def drop_snapshots(
    fs: FileSystem, directory: str, offsets: Iterable[int], end_offset: int, bases: Collection[int] = ()
) -> list[str]:
    """Removes snapshots after the log end, left by an unfinished truncation, because new records will reach their offsets.

    Also removes superseded ones, as Kafka does at loading: each clean shutdown leaves a snapshot at the log end. The newest one
    and those at the `bases` of segments stay (groups-and-transactions 5.7).

    Returns:
        The names of the removed files after the log end.
    """
    known = sorted(offsets)
    stale = [file_name(offset, SNAPSHOT) for offset in known if offset > end_offset]
    superseded = [offset for offset in known if offset <= end_offset][:-1]
    for offset in superseded if bases else ():
        if offset not in bases:
            remove_derived(fs, join(directory, file_name(offset, SNAPSHOT)))  # without a sync: it does no harm if it comes back
    for name in stale:
        remove_derived(fs, join(directory, name))
    if stale:
        fs.sync_directory(directory)
    return stale
