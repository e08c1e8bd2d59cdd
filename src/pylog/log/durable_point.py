"""The `durable-point` file: what of a partition is known to be on the disk, and what is published (reliability 3.1, 12).

Two slots of 128 bytes are written in turn, so that a torn write leaves the other one. The one with the higher counter counts.
The file is synced when it is made, and when something in it that is harmful when old changes; otherwise never on its own
account: a slot that lags understates.

It is pylog's own, and derived: a directory without one is loaded as Kafka's.
"""

from __future__ import annotations

import hashlib
import struct
from typing import Any, Final, NamedTuple

from pylog import fs as files
from pylog.fs import File, FileSystem, join
from pylog.record.checksum import crc32c
from pylog.segment.names import DURABLE_POINT

SLOT_SIZE: Final = 128
_MAGIC: Final = b"PYLG"
_VERSION: Final = 1
_SLOT = struct.Struct("<4sHHQQ16sqQqqqqqIIqIiI")  # all but the CRC
assert _SLOT.size == SLOT_SIZE - 4

FAILED: Final = 1  # a sync failed: what lies above the durable end proves nothing


class Slot(NamedTuple):
    """One slot. Positions in bytes, of whole batches, in the segment that the base before them names.

    Attributes:
        flags: FAILED, or 0.
        counter: grows with every write.
        epoch: odd while segments are made, go or are replaced.
        boot_mark: hash of the kernel's boot id and of this file's device and inode: a copy is another boot.
        active_base, active_inode: the active segment.
        published_position, published_offset: the end that readers may see.
        durable_base, durable_position, durable_offset: everything below is synced.
        unsynced_bytes: how far apart two unsynced batches of this segment can be.
        header_digest: of the active segment; 0 while nothing computes it.
        log_start_offset: the smallest offset that may be read.
        truncation_count: how often the log was truncated.
        leader_epoch: stamped on new batches.
        pid: the writer's.
    """

    flags: int = 0
    counter: int = 0
    epoch: int = 0
    boot_mark: bytes = bytes(16)
    active_base: int = 0
    active_inode: int = 0
    published_position: int = 0
    published_offset: int = 0
    durable_base: int = 0
    durable_position: int = 0
    durable_offset: int = 0
    unsynced_bytes: int = 0
    header_digest: int = 0
    log_start_offset: int = 0
    truncation_count: int = 0
    leader_epoch: int = 0
    pid: int = 0

    def encoded(self) -> bytes:
        """The slot's 128 bytes."""
        body = _SLOT.pack(_MAGIC, _VERSION, *self)
        return body + struct.pack("<I", crc32c(body))

    @property
    def idle(self) -> bool:
        """Whether everything published is durable and no change of segments was under way."""
        same = self.durable_base == self.active_base and self.durable_position == self.published_position
        return same and self.epoch % 2 == 0 and not self.flags & FAILED


def parse_slot(data: bytes) -> Slot | None:
    """A slot from its bytes, None when they are not a whole valid one.

    >>> parse_slot(Slot(counter=7).encoded()).counter
    7
    """
    if len(data) != SLOT_SIZE or crc32c(data[:-4]) != int.from_bytes(data[-4:], "little"):
        return None
    magic, version, *fields = _SLOT.unpack(data[:-4])
    return Slot(*fields) if magic == _MAGIC and version == _VERSION else None


def newest_slot(data: bytes) -> tuple[Slot | None, int]:
    """The valid slot with the higher counter, and the index of the other place: where the next one goes."""
    slots = [parse_slot(data[start : start + SLOT_SIZE]) for start in (0, SLOT_SIZE)]
    counters = [-1 if slot is None else slot.counter for slot in slots]
    newest = 0 if counters[0] > counters[1] else 1
    return slots[newest], 1 - newest


def read_slot(fs: FileSystem, directory: str) -> tuple[Slot | None, bytes]:
    """A partition's newest slot (None: no file, or no valid one) and the boot mark that a slot of now would have."""
    path = join(directory, DURABLE_POINT)
    if not fs.exists(path):
        return None, b""
    file = fs.open(path)
    try:
        buffer = bytearray(2 * SLOT_SIZE)
        got = file.read_into(memoryview(buffer), 0)
        return newest_slot(bytes(buffer[:got]))[0], boot_mark(file)
    finally:
        file.close()


def boot_mark(file: File) -> bytes:
    """16 bytes that are the same only for this file under this boot; zeros where the system does not tell its boots apart."""
    boot = files.boot_id()
    return hashlib.blake2b(boot + b"%d %d" % file.identity(), digest_size=16).digest() if boot else bytes(16)


class DurablePoint:
    """The open file of a partition that is written.

    Args:
        fs, directory: the partition.
        slot: what is true now; it is written at once to both places and synced, with the file's name.
    """

    def __init__(self, fs: FileSystem, directory: str, slot: Slot) -> None:
        path = join(directory, DURABLE_POINT)
        new = not fs.exists(path)
        self._file = fs.create(path) if new else fs.open(path, write=True)
        self.slot = slot._replace(boot_mark=boot_mark(self._file), pid=files.process_id())
        self._place = 0
        self.write_both()
        if new:
            fs.sync_directory(directory)

    def write(self, **changes: Any) -> None:
        """Writes the next slot over the older one, without a sync. Cost: about 1 µs."""
        self.slot = self.slot._replace(counter=self.slot.counter + 1, **changes)
        self._file.write(memoryview(self.slot.encoded()), self._place * SLOT_SIZE)
        self._place = 1 - self._place

    def write_both(self, **changes: Any) -> None:
        """Writes both slots and syncs: for what must not come back when one slot tears."""
        self.write(**changes)
        self.write()
        self._file.sync()

    def close(self) -> None:
        self._file.close()
