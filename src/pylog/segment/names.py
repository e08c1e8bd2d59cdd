"""File names in a partition's directory, and the loader's plan for them (storage-format 3.3, 6.9.1 to 6.9.3).

This module is pure: it touches no file. Names that neither Kafka nor pylog uses are ignored.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from typing import Final, NamedTuple

LOG: Final = ".log"
INDEX: Final = ".index"
TIME_INDEX: Final = ".timeindex"
TRANSACTION_INDEX: Final = ".txnindex"
SNAPSHOT: Final = ".snapshot"
SEAL: Final = ".seal"
SEGMENT_SUFFIXES: Final = (LOG, INDEX, TIME_INDEX, TRANSACTION_INDEX)
_OF_A_SEGMENT: Final = (*SEGMENT_SUFFIXES, SNAPSHOT, SEAL)
_PLAIN: Final = frozenset(_OF_A_SEGMENT)
DELETED: Final = ".deleted"
CLEANED: Final = ".cleaned"
SWAP: Final = ".swap"
TORN: Final = ".torn"
TEMPORARY: Final = ".tmp"

LEADER_EPOCH_CHECKPOINT: Final = "leader-epoch-checkpoint"
PARTITION_METADATA: Final = "partition.metadata"
DURABLE_POINT: Final = "durable-point"
ARCHIVED: Final = "archived-segments"  # a copy of the manifest of the archive
_EPOCHS_UNFINISHED: Final = LEADER_EPOCH_CHECKPOINT + TEMPORARY

_END_OF_OFFSETS: Final = f"{1 << 62:020}"
_LOG_NAME_LENGTH: Final = 20 + len(LOG)
_NUMBERED = re.compile(r"([0-9]{1,19}|[0-9]{20})(\.[^.]+)((?:\.[^.]+)*)")


def file_name(base_offset: int, suffix: str) -> str:
    """Returns a segment file's name.

    >>> file_name(42, LOG)
    '00000000000000000042.log'
    """
    return f"{base_offset:020d}{suffix}"


def files_of(base_offset: int, names: Container[str]) -> list[str]:
    """Returns the names of a segment's files, `.log` first: deleted in this order, a crash leaves at most orphans.

    >>> files_of(42, ["00000000000000000042.index", "00000000000000000042.log", "00000000000000000042.torn.0"])
    ['00000000000000000042.log', '00000000000000000042.index']
    """
    return [name for suffix in _OF_A_SEGMENT if (name := file_name(base_offset, suffix)) in names]


class NumberedName(NamedTuple):
    """A file name that begins with an offset: `<offset><suffix><state>`, as in `…0042.log.deleted`."""

    offset: int
    suffix: str
    state: str


def parse(name: str) -> NumberedName | None:
    """Returns the parts of a numbered name, or None.

    >>> parse("00000000000000000042.log.swap")
    NumberedName(offset=42, suffix='.log', state='.swap')
    >>> parse("durable-point") is None
    True
    """
    if len(name) > 20 and name[20] == "." and name.count(".") == 1 and name.isascii() and name[:20].isdigit():  # the usual case
        offset = int(name[:20])
        return NumberedName(offset, name[20:], "") if offset < 1 << 62 and len(name) > 21 else None
    match = _NUMBERED.fullmatch(name)
    if match is None or int(match[1]) >= 1 << 62:
        return None
    return NumberedName(int(match[1]), match[2], match[3])


class LoadPlan(NamedTuple):
    """The changes to a partition's files before its segments are opened.

    Attributes:
        segments: base offset → current name of the `.log` file (ending in `.swap` if a swap must be completed).
        removals: names to remove. Unfinished files belong to a dead process, because they are written under the partition's lock;
            only an index may belong to a live reader that is rebuilding it, and that reader can continue without the file.
        renames: (old name, new name), once the removals are durable: until then a `.swap` file shows what to remove.
        cleaned: files of an unfinished compaction, or of one that another process is running.
        snapshots: offsets of the producer snapshots that stay.
    """

    segments: dict[int, str]
    removals: list[str]
    renames: list[tuple[str, str]]
    cleaned: list[str]
    snapshots: list[int]

    def current(self, name: str) -> str:
        """Returns the name of a file before the renames are done."""
        if not self.renames:
            return name
        return next((old for old, new in self.renames if new == name), name)

    def pending(self, base_offset: int) -> frozenset[str]:
        """Returns the suffixes of a segment's files that have a swap's name before the renames are done."""
        parsed = (parse(new) for _, new in self.renames)
        return frozenset(found.suffix for found in parsed if found is not None and found.offset == base_offset)

    def unindexed(self, names: Container[str]) -> list[int]:
        """Returns the base offsets of the sealed segments without an `.index` file among the directory's names."""
        sealed = list(self.segments.items())[:-1]
        if not self.renames:  # the usual case; the names exist already, which saves formatting them
            expected = [
                (base, log[:20] + INDEX if len(log) == _LOG_NAME_LENGTH else file_name(base, INDEX)) for base, log in sealed
            ]
        else:
            expected = [(base, self.current(file_name(base, INDEX))) for base, _ in sealed]
        return [base for base, name in expected if name not in names]


def plan_load(
    names: Iterable[str], end_of_swap: Callable[[str], int], replaced: Callable[[str], Sequence[int]] = lambda _: ()
) -> LoadPlan:
    """Decides Kafka's first three loading passes, and the completion of pylog's own unfinished swaps.

    Args:
        names: the directory's files.
        end_of_swap: the next offset of each complete `.log.swap` file, by name.
        replaced: the base offsets that the segment of each `.seal.swap` file has replaced, by name.

    Returns:
        The plan. Among files without a numbered name it covers only unfinished leader-epoch files.

    >>> plan = plan_load(["00000000000000000000.log", "00000000000000000005.log.deleted"], lambda name: 0)
    >>> plan.segments, plan.removals
    ({0: '00000000000000000000.log'}, ['00000000000000000005.log.deleted'])
    """
    names = sorted(names)
    plain = plain_plan(names)
    if plain is not None:
        return plain
    parsed = {name: found for name in names if (found := parse(name)) is not None}
    cleaned = [name for name, found in parsed.items() if found.state == CLEANED]
    removals, swaps = _unfinished(names, parsed, cleaned)
    removals += _superseded(parsed, [name for name in swaps if parsed[name].suffix == LOG], end_of_swap)
    deleted = set(removals)
    for seal in [name for name in swaps if parsed[name].suffix == SEAL]:
        bases = set(replaced(seal)) - {parsed[seal].offset}
        removals += [name for base in bases for name in files_of(base, parsed.keys() - deleted)]
    deleted = set(removals)
    renames = [(name, name.removesuffix(SWAP)) for name in swaps]
    segments = {
        found.offset: name for name, found in parsed.items() if found.suffix == LOG and not found.state and name not in deleted
    }
    segments.update({parsed[name].offset: name for name in swaps if parsed[name].suffix == LOG})
    seals = [name for name, found in parsed.items() if found[1:] == (SEAL, "") and name not in deleted]
    removals += [name for name in seals if parsed[name].offset not in segments]  # a broker removes segments without their seals
    snapshots = [
        found.offset for name, found in parsed.items() if found.suffix == SNAPSHOT and not found.state and name not in deleted
    ]
    return LoadPlan(dict(sorted(segments.items())), removals, renames, cleaned, sorted(snapshots))


def _unfinished(names: Iterable[str], parsed: Mapping[str, NumberedName], cleaned: Iterable[str]) -> tuple[list[str], list[str]]:
    """Returns the names to remove because their change was not finished, and those of swaps that must be completed.

    Args:
        names: the directory's files.
        parsed: the numbered names among them.
        cleaned: the files of unfinished compactions.
    """
    removals = [
        name for name, found in parsed.items() if found.state == DELETED or (found.state == TEMPORARY and found.suffix in _PLAIN)
    ]
    removals += [name for name in names if name == _EPOCHS_UNFINISHED]
    swaps = [name for name, found in parsed.items() if found.state == SWAP]
    first = min((parsed[name].offset for name in cleaned), default=None)
    if first is not None:  # the swap was not complete when the process died: a smaller `.cleaned` was not renamed yet
        removals += [name for name in swaps if parsed[name].offset >= first]
        swaps = [name for name in swaps if parsed[name].offset < first]
    return removals, swaps


def plain_plan(names: Iterable[str]) -> LoadPlan | None:
    """Returns the plan for a directory without unfinished work, None for any other. Five times as fast, and the usual case.

    Args:
        names: the directory's files, sorted.
    """
    segments, snapshots, known = {}, [], ""
    for name in names:
        number, suffix = name[:20], name[20:]
        if suffix in _PLAIN and (number == known or (number.isdigit() and number.isascii() and number < _END_OF_OFFSETS)):
            known = number  # the files of a segment are adjacent
            if suffix == LOG:
                segments[int(number)] = name
            elif suffix == SNAPSHOT:
                snapshots.append(int(number))
            elif suffix == SEAL and int(number) not in segments:
                return None
        elif name[:1].isdigit() or name == _EPOCHS_UNFINISHED:
            return None
    return LoadPlan(segments, [], [], [], snapshots)


def _superseded(parsed: dict[str, NumberedName], swaps: list[str], end_of_swap: Callable[[str], int]) -> list[str]:
    """Returns files whose offsets a completed compaction has replaced (6.9.2): logs, indexes, snapshots and sidecars."""
    if not swaps:
        return []
    first = min(parsed[name].offset for name in swaps)
    end = max(end_of_swap(name) for name in swaps)
    return [name for name, found in parsed.items() if not found.state and first <= found.offset < end]
