"""What compaction does, in plain Python: digests, what supersedes what, what is left of a batch, and of a log."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from support.reference.records import Batch, Record

MASK = 2**64 - 1
HORIZON_BIT, CONTROL_BIT, TRANSACTIONAL_BIT, LOG_APPEND_TIME_BIT = 64, 32, 16, 8

# ---- digests -------------------------------------------------------------------------------------------------------------------


def siphash(data: bytes, key: tuple[int, int], rounds: int = 1, final: int = 3) -> tuple[int, int]:
    """SipHash with 128 bits of output, as its authors define it."""

    def rotated(x: int, bits: int) -> int:
        return (x << bits | x >> (64 - bits)) & MASK

    def mix(v: list[int], times: int) -> None:
        for _ in range(times):
            v[0] = (v[0] + v[1]) & MASK
            v[1] = rotated(v[1], 13) ^ v[0]
            v[0] = rotated(v[0], 32)
            v[2] = (v[2] + v[3]) & MASK
            v[3] = rotated(v[3], 16) ^ v[2]
            v[0] = (v[0] + v[3]) & MASK
            v[3] = rotated(v[3], 21) ^ v[0]
            v[2] = (v[2] + v[1]) & MASK
            v[1] = rotated(v[1], 17) ^ v[2]
            v[2] = rotated(v[2], 32)

    v = [
        key[0] ^ 0x736F6D6570736575,
        key[1] ^ 0x646F72616E646F6D ^ 0xEE,
        key[0] ^ 0x6C7967656E657261,
        key[1] ^ 0x7465646279746573,
    ]
    padded = data + bytes(-(len(data) + 1) % 8) + bytes([len(data) % 256])
    for at in range(0, len(padded), 8):
        word = int.from_bytes(padded[at : at + 8], "little")
        v[3] ^= word
        mix(v, rounds)
        v[0] ^= word
    v[2] ^= 0xEE
    mix(v, final)
    first = v[0] ^ v[1] ^ v[2] ^ v[3]
    v[1] ^= 0xDD
    mix(v, final)
    return first, v[0] ^ v[1] ^ v[2] ^ v[3]


# ---- kernels -------------------------------------------------------------------------------------------------------------------


@dataclass
class Index:
    """The last record of each key, and the numbers of those that are superseded."""

    first: int
    capacity: int
    last: dict[bytes, int] = field(default_factory=dict)  # key → number
    dead: set[int] = field(default_factory=set)
    latest: int = -1
    number: int = 0

    def enter(self, batch: Batch) -> bool:
        """Takes a batch's records from the first offset on; False when another key would be one too many."""
        for number, record in enumerate(batch.records, self.number):
            offset = batch.base_offset + record.offset_delta
            if offset < self.first:
                continue
            if record.key is None:
                self.dead.add(number)
            else:
                if record.key not in self.last and len(self.last) == self.capacity:
                    return False
                self.dead |= {self.last[record.key]} if record.key in self.last else set()
                self.last[record.key] = number
            self.latest = offset
        self.number += len(batch.records)
        return True

    def look_up(self, batch: Batch, number: int) -> None:
        """Marks the records before the first offset whose keys are known, or that have none."""
        for at, record in enumerate(batch.records, number):
            if batch.base_offset + record.offset_delta < self.first and (record.key is None or record.key in self.last):
                self.dead.add(at)


@dataclass
class Fate:
    """What is asked for of a batch (storage-format 7.6.4)."""

    discard: bool = False
    retain: bool = False
    tombstones_go: bool = False
    no_horizon: bool = False
    control: bool = False
    stamp: bool = False


def left_of(batch: Batch, fate: Fate, dead: Iterable[int], number: int, latest: int, horizon: int) -> Batch | None:
    """The batch without what goes; the same object when it loses nothing (storage-format 7.6.5 to 7.6.8)."""
    last_delta = max((record.offset_delta for record in batch.records), default=0)
    last_delta = last_delta if batch.last_offset_delta is None else batch.last_offset_delta

    def stays(at: int, record: Record) -> bool:
        if fate.control or batch.base_offset + record.offset_delta > latest:
            return True
        return at not in set(dead) and not (fate.tombstones_go and record.value is None)

    kept = [] if fate.discard else [record for at, record in enumerate(batch.records, number) if stays(at, record)]
    if not kept:
        stripped = batch.attributes & ~(HORIZON_BIT | 7)
        largest = largest_timestamp(batch)
        empty = replace(batch, records=[], payload=None, attributes=stripped, base_timestamp=-1, max_timestamp=largest)
        return replace(empty, last_offset_delta=last_delta, count=0) if fate.retain else None
    tombstone = not fate.control and any(record.value is None for record in kept)
    stamp = fate.stamp or (tombstone and fate.no_horizon)
    if len(kept) == len(batch.records) and not stamp:
        return batch
    appended = bool(batch.attributes & LOG_APPEND_TIME_BIT)
    stamps = [batch.base_timestamp + record.timestamp_delta for record in kept]
    largest = largest_timestamp(batch) if appended else max(-1, *stamps)
    left = replace(batch, records=kept, last_offset_delta=last_delta, max_timestamp=largest)
    if not stamp:
        return left
    moved = [record._replace(timestamp_delta=batch.base_timestamp + record.timestamp_delta - horizon) for record in kept]
    return replace(left, records=moved, attributes=batch.attributes | HORIZON_BIT, base_timestamp=horizon)


def largest_timestamp(batch: Batch) -> int:
    if batch.max_timestamp is not None:
        return batch.max_timestamp
    return max((batch.base_timestamp + record.timestamp_delta for record in batch.records), default=batch.base_timestamp)


# ---- a log ---------------------------------------------------------------------------------------------------------------------

Entry = tuple[int, bytes | None, bytes | None]  # offset, key, value


class Model:
    """A compacted log, as far as its readers see it: ten lines of what the last record of each key is."""

    def __init__(self, records: Sequence[Entry], aborted: set[int], retention_ms: int) -> None:
        self.records = list(records)
        self._aborted = aborted
        self._retention_ms = retention_ms
        self._horizons: dict[int, int] = {}  # offset of a tombstone → until when it stays

    def clean(self, end: int, now_ms: int) -> None:
        """Compacts everything below an offset."""
        wanted = [record for record in self.records if record[0] not in self._aborted]
        last = {key: offset for offset, key, _ in wanted if offset < end}
        kept = [entry for entry in wanted if entry[0] < end and entry[1] is not None and last[entry[1]] == entry[0]]
        kept = [entry for entry in kept if entry[2] is not None or self._horizons.get(entry[0], now_ms + 1) > now_ms]
        for offset, _, value in kept:
            if value is None:
                self._horizons.setdefault(offset, now_ms + self._retention_ms)
        self.records = kept + [entry for entry in self.records if entry[0] >= end]
