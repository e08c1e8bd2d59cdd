"""Finds the end of a log while it is loaded, and what is damaged or missing there.

After a clean shutdown, the index and the batch headers after its last entry tell. Otherwise a walk over the batches does, with
their checksums. Bytes that may be an unfinished write are a torn tail; every other damage is corruption.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from pylog import limits
from pylog.index.builder import SegmentIndexBuilder
from pylog.log.durable_point import DurablePoint
from pylog.log.recovery.findings import Finding, is_torn
from pylog.log.recovery.loaded import Loaded, Source
from pylog.log.recovery.sound_tail import sound_tail
from pylog.record.batch import Table
from pylog.record.format import LAST_OFFSET, LEADER_EPOCH, POSITION, PRODUCER_ID, SIZE
from pylog.segment.batch_walk import Damage, WalkedRange, is_preallocated, start_offset_at, walk
from pylog.segment.header_digest import HeaderDigest, digest_of
from pylog.segment.names import INDEX
from pylog.segment.segment import LogSegment
from pylog.text import counted


def load_tail(source: Source, loaded: Loaded) -> None:
    """Finds the end of the log."""
    active = loaded.segments[-1]
    loaded.clean = not source.writable or (source.clean if loaded.slot is None else _settled(loaded.slot, active))
    if not loaded.clean:
        _scan_sealed(source, loaded)
    if (source.clean and loaded.clean) or (not source.writable and (loaded.slot is None or loaded.same_boot)):
        _trust_active(source, loaded)
    else:  # without index files all headers are needed, and the checksums cost little more
        _scan_active(source, loaded, verify=True)
        _check_digest(loaded)
    _note_missing_bytes(loaded)


def _check_digest(loaded: Loaded) -> None:
    """Compares batch headers with the digest in the header, which covers fields outside their checksums (reliability 6.3)."""
    active, slot, published = loaded.segments[-1], loaded.slot, loaded.segments[-1].published
    if published is None or slot is None or loaded.corrupt is not None:
        return
    end, digest = published
    if end <= loaded.end and _digest(loaded, end) != digest:
        found = Finding("corrupt", active.path, 0, end, active.base_offset, slot.published_offset, altered_message(active, end))
        loaded.findings.append(found)
        loaded.corrupt = found


def altered_message(active: LogSegment, end: int) -> str:
    """Returns the words for headers of an active segment that differ from the digest of its log."""
    return f"{active.path}: a batch header below position {end} has a changed offset, length or leader epoch"


def published_digest(loaded: Loaded) -> tuple[int, int] | None:
    """Returns the end of the active segment in the log's header and the digest of all headers up to there.

    None if they are not known for sure: a power loss may have changed bytes after the durable end, for example.
    """
    active, slot = loaded.segments[-1], loaded.slot
    if slot is None or slot.epoch % 2 or slot.flags or slot.active_base != active.base_offset:
        return None
    end = slot.published_position
    sure = loaded.same_boot or slot.durable_position == end
    return (end, slot.header_digest) if sure and end <= active.size else None


def _digest(loaded: Loaded, end: int) -> int:
    """Returns the digest of the active segment's headers below a position."""
    known = loaded.digest
    return known.value if known is not None and known.position == end else digest_of(loaded.segments[-1], end).value


def _note_missing_bytes(loaded: Loaded) -> None:
    """Reports a file that is shorter than its synced end: acknowledged records are lost. Neither pylog nor a broker does that."""
    active = loaded.segments[-1]
    missing = loaded.known_position - active.size
    if missing > 0:
        message = f"{active.path}: the file ends {counted(missing, 'byte')} before the end that was synced"
        found = Finding("corrupt", active.path, active.size, missing, loaded.next_offset, None, message)
        loaded.findings.append(found)
        loaded.corrupt = loaded.corrupt or found


def _settled(slot: DurablePoint | None, active: LogSegment) -> bool:
    """Returns whether the header proves that no operation was unfinished."""
    same = slot is not None and slot.active_base == active.base_offset
    return slot is not None and same and slot.idle and slot.published_position == active.size


@dataclass
class _Walked:
    """The result of a walk: the end of the last good batch, the offset after it, the last epoch, and the damage."""

    end: int
    next_offset: int
    leader_epoch: int = -1
    damage: list[Damage] = field(default_factory=list)


def follow_segment(
    segment: LogSegment, position: int, following: int | None, *, verify: bool, take: Callable[[WalkedRange], None] | None = None
) -> _Walked:
    """Walks a segment to its end, and passes each range to `take`."""
    found = _Walked(position, start_offset_at(segment, position))
    for walked in walk(segment, position, segment.size, following, verify=verify):
        table = walked.table
        if table.shape[1]:
            found.end = walked.shift + int(table[POSITION, -1] + table[SIZE, -1])
            found.next_offset = int(table[LAST_OFFSET, -1]) + 1
            found.leader_epoch = max(found.leader_epoch, int(table[LEADER_EPOCH, -1]))
        if take is not None:
            take(walked)
        if walked.damage is not None:
            found.damage.append(walked.damage)
    return found


def _scan_sealed(source: Source, loaded: Loaded) -> None:
    """Checks sealed segments that may not have been synced. pylog syncs a segment before it creates the next one."""
    if loaded.slot is not None:
        return
    for segment, following in zip(loaded.segments[:-1], loaded.segments[1:], strict=True):
        if following.base_offset > source.recovery_point:
            found = follow_segment(segment, 0, following.base_offset, verify=True)
            _judge(source, loaded, segment, found, durable_position=0, last=False)


def _trust_active(source: Source, loaded: Loaded) -> None:
    """Finds the end after a clean shutdown, or for a reader: from the index and the headers after its last entry."""
    active = loaded.segments[-1]
    unindexed = not source.fs.exists(active.path_of(INDEX))  # its writer has it in memory; a rebuilt index confirms nothing
    if unindexed or (source.writable and active.times_lag()):  # appends would turn an empty index into one with a gap
        _scan_active(source, loaded, verify=False)
        return
    position = active.locate(limits.INT64_MAX)
    builder = SegmentIndexBuilder.reopened(active.offset_index(), active.time_index(), source.config.index_interval_bytes)
    indexed = active.offset_index().last.offset if position else -1

    def take(table: Table, shift: int) -> None:
        first = int(np.searchsorted(table[LAST_OFFSET], indexed, side="right"))
        builder.add(table, table.shape[1], first=first, position=shift)

    tail = sound_tail(active, position, _recorded_end(loaded))
    if tail is not None:
        take(tail, 0)
        last = tail[:, -1].tolist()
        found = _Walked(last[POSITION] + last[SIZE], last[LAST_OFFSET] + 1, max(-1, last[LEADER_EPOCH]))
    else:
        found = follow_segment(
            active, position, _recorded_end(loaded), verify=False, take=lambda each: take(each.table, each.shift)
        )
    if found.damage and position and found.end == position:  # the index entry is inside the damage: walk all of it
        _scan_active(source, loaded, verify=False)
    else:
        _settle(source, loaded, found, builder)


def _scan_active(source: Source, loaded: Loaded, *, verify: bool) -> None:
    """Walks the whole active segment and rebuilds its indexes."""
    active = loaded.segments[-1]
    builder = SegmentIndexBuilder(active.base_offset, source.config.index_interval_bytes)

    digest = loaded.digest = HeaderDigest(source.config.index_interval_bytes)
    loaded.plain = True

    def take(walked: WalkedRange) -> None:  # all that is made of headers, in one pass
        table = walked.table
        builder.add(table, table.shape[1], position=walked.shift)
        digest.add(walked.buffer, table, 0, table.shape[1], walked.shift)
        loaded.plain = loaded.plain and not (table[PRODUCER_ID] >= 0).any()

    found = follow_segment(active, 0, _recorded_end(loaded), verify=verify, take=take)
    if found.damage:
        loaded.digest = None
    _settle(source, loaded, found, builder)


def _settle(source: Source, loaded: Loaded, found: _Walked, builder: SegmentIndexBuilder) -> None:
    """Applies the result of a walk of the active segment. Synced bytes are never a torn tail."""
    active = loaded.segments[-1]
    loaded.builder = active.builder = builder
    loaded.leader_epoch = found.leader_epoch
    end = max(found.next_offset, active.base_offset, loaded.start_offset, _recorded_end_at(loaded, found.end))
    loaded.end, loaded.next_offset = found.end, end
    _judge(source, loaded, active, found, durable_position=loaded.known_position, last=True)
    if loaded.torn is not None and found.end > loaded.end:  # batches after the gap are cut off too
        loaded.builder = active.builder = active.indexed_to(loaded.end)
    recorded = _recorded_end(loaded)
    if loaded.corrupt is not None and recorded is not None and recorded > loaded.next_offset:
        loaded.end, loaded.next_offset = active.size, recorded  # damage at the end is read, and raises: it hides no records


def _recorded_end(loaded: Loaded) -> int | None:
    """Returns the offset after the active segment's last batch, if the header has it, as a limit for earlier batches."""
    return _recorded_end_at(loaded, loaded.segments[-1].size) or None


def _recorded_end_at(loaded: Loaded, position: int) -> int:
    """Returns the header's log end for a position, if it has one: a truncation inside a batch leaves a gap before it."""
    slot, active = loaded.slot, loaded.segments[-1]
    if slot is None or slot.active_base != active.base_offset:
        return 0
    if loaded.same_boot and position == slot.published_position:
        return slot.published_offset
    return slot.durable_offset if position == slot.durable_position else 0


def _judge(source: Source, loaded: Loaded, segment: LogSegment, found: _Walked, *, durable_position: int, last: bool) -> None:
    """Turns the damage of a walk into findings: at most one torn tail, everything else is corruption."""
    if source.foreign or not found.damage:
        return
    first = found.damage[0]
    recorded = _recorded_end_at(loaded, first.position)  # after a gap left by a truncation: the log end must not go back
    offset = max(first.offset, loaded.start_offset, recorded)
    synced = offset < source.recovery_point  # a broker has synced these offsets
    torn = is_torn(
        first,
        durable_position=segment.size if synced else durable_position,
        last_segment=last,
        unsynced_bytes=_unsynced_bytes(loaded),
    )
    if torn:
        loaded.end, loaded.next_offset = first.position, offset
        _note_torn(loaded, segment, first)
        return
    *_, last_damage = found.damage
    unsynced = loaded.slot is not None and first is not last_damage and last_damage.position >= durable_position
    if unsynced and is_preallocated(segment, last_damage):
        loaded.preallocated = segment.size - found.damage.pop().position
    findings = [_finding("corrupt", segment, damage) for damage in found.damage]
    loaded.findings += findings
    loaded.corrupt = loaded.corrupt or findings[0]


def _note_torn(loaded: Loaded, segment: LogSegment, first: Damage) -> None:
    """Judges the bytes after the end. If pylog is not the writer, or a batch was published there, zeros are a lost batch."""
    is_published = loaded.slot is not None and loaded.slot.published_position <= first.position
    if is_published and segment.file().is_blank(first.position, segment.size):
        loaded.preallocated = segment.size - first.position
        segment.size = first.position
    else:
        loaded.torn = first._replace(end=segment.size)
        loaded.findings.append(_finding("torn", segment, loaded.torn))


def _unsynced_bytes(loaded: Loaded) -> int:
    """Returns the largest distance of unsynced batches. Only a power loss leaves a gap before them, not a dying process."""
    return 0 if loaded.slot is None or loaded.same_boot else loaded.slot.unsynced_bytes


def _finding(kind: str, segment: LogSegment, damage: Damage) -> Finding:
    size = damage.end - damage.position
    whole = counted(size, "byte")
    problem = {
        "torn": f"the write of offset {damage.offset} was incomplete: {whole} from position {damage.position} on",
        "corrupt": f"the batch at position {damage.position} (offset {damage.offset}) {damage.why}; {whole} cannot be served",
    }[kind]
    return Finding(kind, segment.path, damage.position, size, damage.offset, damage.next_offset, f"{segment.path}: {problem}")


def durable_offset_of(source: Source, loaded: Loaded) -> int:
    """Returns the synced end: from the durable point, else all of it after a clean shutdown, else Kafka's recovery point.

    Another process may have written since the store was opened with a clean-shutdown marker.
    """
    known = loaded.next_offset if source.clean else source.recovery_point
    if loaded.slot is not None:
        known = loaded.slot.durable_offset
    return min(max(known, loaded.start_offset), loaded.next_offset)
