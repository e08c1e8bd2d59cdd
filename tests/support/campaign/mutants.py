"""Engines without one of their syncs, directory syncs or renames: somebody must notice (reliability 8.1, suite 7).

The calls are found twice: in the engine's source, and in recordings of what it does. One that is in the source and in no
recording is a call around which no crash was ever tried. `broken_without` explores an engine that leaves calls out, in the
workloads, and in the recoveries, in which they are made.
"""

from __future__ import annotations

import ast
import functools
import random
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from itertools import takewhile, zip_longest
from pathlib import Path
from typing import Any, NamedTuple

import pylog
from pylog.segment.names import LOG
from pylog.testing import Crash, Moment, Recording
from pylog.testing.memory import RENAME, Operation
from pylog.testing.recording import GUARDING, CallSite
from support.campaign.checker import SoundLogs
from support.campaign.explorer import Explorer, Opened, Violation, Workload, collect_and_keep, recorded, recovered
from support.campaign.workloads import quiet, workloads

SOURCES = Path(pylog.__file__).parent
# Not the engine: tests/spark/test_commit.py leaves out the calls of `staging`, tests/tools make those of a repair fail.
OUTSIDE = ("testing", "spark", "staging", "tools")
PASSES_ON = (("fs", "door"), ("fs", "held"))  # they have the calls of a file system, and add none
SHORT = 2  # operations of the workloads that are looked through for calls
SAMPLES = 12  # recordings of each sort that are explored for a call

_AGAIN = "no workload tries a deletion again on a full disk: tests/test_store.py does, and sees the order of the calls"

_COPIES = "only the backup before a repair copies whole files: tests/tools make its calls fail"
_RESTORE = "no workload restores an archive: tests/objects/test_restore_crash.py loses power at each moment of one"
_EMPTY = "the name of an empty last segment, which opening makes again unless the log was empty up to its end"
_OBJECTS = "where the system has no links: an archive in a directory there is tried by no workload"
_FULL_DISK = "no workload has a full disk: tests/campaign/test_full_disk_crashes.py has, with a crash at each step"
_TRANSACTIONS = "no workload truncates below aborted transactions: tests/log/test_transactions.py does, at each loss of power"

_CACHE = "a block of the cache has a checksum, and is fetched again without it: tests/objects/test_block_cache.py damages each"

_OF_ARCHIVES = {
    "rename 1 in pylog.objects.block_cache.BlockCache.write": _CACHE,
    "sync_directory 1 in pylog.archive.restored_files.remove_other_files": _RESTORE,
    "sync_directory 1 in pylog.archive.restored_files.remove_other_partitions": _RESTORE,
    "rename 1 in pylog.fs.object_files._linked": _OBJECTS,
    "rename 1 in pylog.restoring._Restore._restore_segment": _RESTORE,
    "sync 1 in pylog.restoring._Restore._restore_segment": _RESTORE,
    "sync_directory 1 in pylog.restoring._Restore._begin": _RESTORE,
    "sync_directory 1 in pylog.restoring._Restore._restore": _EMPTY,
    "sync_directory 1 in pylog.restoring._Restore._restore_segment": "the directory is synced once more after its last segment",
    "sync_directory 1 in pylog.restoring._Restore.run": _RESTORE,
    "sync_directory 2 in pylog.restoring._Restore._restore": "the files of the root are written next, in that directory",
}

# Calls that nobody misses, by their place and their number there: what does the same for a crash.
NOT_NEEDED_AFTER_A_CRASH = {
    "rename 1 in pylog.log.recovery.loader._finish_truncation": "it spares readers that outlive a process: see test_trimming",
    "rename 1 in pylog.fs.derived.set_aside": "a directory that has a derived file's name again is set aside again",
    "sync_directory 1 in pylog.topics.changes.TopicChanges._decide": _AGAIN,
    "sync_directory 1 in pylog.topics.making.sync_name": "no workload dies as it creates the root: tests/test_half_made.py does",
    "sync_directory 1 in pylog.log.maintenance.trimming._remove_indexes": "leader epochs are replaced next, in that directory",
    "sync 1 in pylog.fs.extents.copy_file": _COPIES,
    "sync 1 in pylog.log.maintenance.trimming._cut_transactions": _TRANSACTIONS,
    "sync_directory 1 in pylog.directory.leader_epoch_cache.LeaderEpochCache._write": _FULL_DISK,
    **_OF_ARCHIVES,
}

IN_NO_WORKLOAD = {
    "rename 1 in pylog.fs.derived.set_aside": "no workload has directories in the way: tests/log/test_derived_files.py has",
    "sync 1 in pylog.fs.extents.copy_file": _COPIES,
    "sync 1 in pylog.log.maintenance.trimming._cut_transactions": _TRANSACTIONS,
    "sync_directory 1 in pylog.directory.leader_epoch_cache.LeaderEpochCache._write": _FULL_DISK,
    "sync_directory 1 in pylog.topics.changes.TopicChanges._decide": _AGAIN,
    **_OF_ARCHIVES,
}


class Call(NamedTuple):
    """A call in the engine's source."""

    kind: str
    module: str
    function: str
    line: int

    @property
    def name(self) -> str:
        """Its place, which stays when lines move: the number counts the calls of that kind in the function."""
        same = sorted(other for other in in_source() if other[:3] == self[:3])
        return f"{self.kind} {same.index(self) + 1} in {self.module}.{self.function}"


class Place(NamedTuple):
    """Where a call is made.

    Attributes:
        workload: in it,
        crash: or in the recovery from this crash of it.
        early: not in its last operation, which is the one that is crashed.
        guarded: what the call makes durable there that was not, by kinds of operations and files.
    """

    workload: Workload
    crash: Crash | None
    early: bool = False
    guarded: frozenset[str] = frozenset()


@functools.cache
def in_source() -> frozenset[Call]:
    """Every call in the engine's source of something that guards."""
    found: set[Call] = set()
    for path in sorted(SOURCES.rglob("*.py")):
        parts = path.relative_to(SOURCES.parent).with_suffix("").parts
        if parts[1] not in OUTSIDE and parts[1:] not in PASSES_ON:
            module = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
            found |= set(_calls(ast.parse(path.read_text()), module, ()))
    return frozenset(found)


def _calls(node: ast.AST, module: str, names: tuple[str, ...]) -> Iterator[Call]:
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
        names = (*names, node.name)
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in GUARDING:
        yield Call(node.func.attr, module, ".".join(names), node.lineno)
    for child in ast.iter_child_nodes(node):
        yield from _calls(child, module, names)


@functools.cache
def atlas() -> dict[CallSite, list[Place]]:
    """Where each call is made, and for whom: in workloads, and in recoveries from crashes of single operations.

    A state of the disk that several operations can leave is recovered once, and so is what they leave of a log.
    """
    found: defaultdict[CallSite, list[Place]] = defaultdict(list)
    states: set[bytes] = set()
    logs: SoundLogs = {}
    for workload in workloads(SHORT):
        recording, start = recorded(workload)
        _note(found, recording, start, Place(workload, None))
        if len(workload) == 1:
            for crash in _crashes(recording, states):
                again = recovered(recording, crash, seen=logs)
                _note(found, again, 0 if crash.power else crash.after, Place(workload, crash))
    collect_and_keep()  # it stays, and is large
    return dict(found)


def _note(found: defaultdict[CallSite, list[Place]], recording: Recording, start: int, place: Place) -> None:
    """Notes the calls of a recording that have something to guard: a sync of what is on the disk already is none.

    In a recovery those from `start` on; in a workload all, as it begins with a store that is closed.
    """
    moment = Moment.of(recording, 0 if place.crash is None else start)
    made: dict[tuple[CallSite, Place], None] = {}
    for number in range(moment.after, len(recording)):
        site = recording.sites[number]
        concerned = [number] if site.kind == RENAME else moment.covered_by(number)
        if concerned and Call(*site[:4]) in in_source():
            guarded = frozenset(map(_sort_of, (recording.operations[one] for one in concerned)))
            made[site, place._replace(early=number < start, guarded=guarded)] = None
        moment.advance()
    for site, noted in made:
        found[site].append(noted)


def _sort_of(operation: Operation) -> str:
    return f"{operation.kind} {operation.path.rpartition('/')[2].lstrip('0123456789')}"


def _crashes(recording: Recording, lost: set[bytes]) -> Iterator[Crash]:
    """Some crashes of a recording at each of its moments, none that leaves what another one left.

    Args:
        recording: what is crashed.
        lost: the states that losses of power left in other recordings; is added to. What a process leaves is not durable yet, so
            the same files are not the same state.
    """
    left: set[bytes] = set()
    moment = Moment(recording)
    while True:
        for crash in _crashes_at(moment):
            state, seen = moment.state(crash)[0], lost if crash.power else left
            if state not in seen:
                seen.add(state)
                yield crash
        if moment.after == len(recording):
            return
        moment.advance()


def _crashes_at(moment: Moment) -> Iterator[Crash]:
    """Nothing volatile kept, everything kept, a torn last write; and the death of the process."""
    everything = tuple(moment.volatile)
    yield Crash(moment.after, ())
    yield Crash(moment.after, everything)
    yield Crash(moment.after, everything, None, power=False)
    for number in everything[-1:]:
        yield from (Crash(moment.after, everything, cut) for cut in moment.cuts(number)[-8:-4])


def reached() -> set[Call]:
    """The calls that some workload, or some recovery, makes."""
    return {Call(*site[:4]) for site in atlas()}


@functools.cache
def _known() -> tuple[Opened, SoundLogs]:
    """What was found in states: the engine that opens them is the whole one, whichever call of the one before it was left out."""
    return {}, {}


def broken_without(call: Call, samples: int = SAMPLES, rng: random.Random | None = None) -> Violation | None:
    """The first promise that an engine breaks without a call; None if it breaks none.

    Args:
        call: which.
        samples: how many recordings of each sort are explored.
        rng: draws which; without it they are the same in every run.
    """

    def without(site: CallSite) -> bool:
        return site[:4] == call

    places = list(dict.fromkeys(place for site, places in atlas().items() if without(site) for place in places))
    if rng is not None:
        rng.shuffle(places)
    opened, logs = _known()
    for place in _samples(places, samples):
        explorer = Explorer(subsets=64, cuts=4, without=without, enough=1, opened=opened, logs=logs)
        if place.crash is None:
            explorer.explore(place.workload)
        else:
            explorer.explore_recovery(place.workload, place.crash)
        if explorer.violations:
            return explorer.violations[0]
    return None


def _samples(places: list[Place], count: int) -> Iterator[Place]:
    """Some places of each sort, in turn: single operations, recoveries of dead processes, of losses of power, longer workloads
    whose last operation makes the call, and those in which an earlier one does.
    """
    sorts: list[list[Place]] = [[], [], [], [], []]
    for place in places:
        longer = len(place.workload) > 1
        sorts[3 + place.early if longer else 0 if place.crash is None else 1 + place.crash.power].append(place)
    chosen = zip_longest(*(_diverse(sort, count) for sort in sorts))
    return (place for row in chosen for place in row if place is not None)


def _diverse(places: list[Place], count: int) -> Iterator[Place]:
    """Some places that differ as far as possible in what the call guards, and in the operation that is crashed.

    Of places that are as different those come first that guard records, since all else can be made again, and little besides.
    """
    used: Counter[object] = Counter()
    rest = sorted(places, key=lambda one: (not any(sort.endswith(LOG) for sort in one.guarded), len(one.guarded)))
    while rest and count:
        place = min(rest, key=lambda one: used[one.guarded] + used[one.workload[-1]])
        used.update((place.guarded, place.workload[-1]))
        rest.remove(place)
        count -= 1
        yield place


# ---- for long runs -------------------------------------------------------------------------------------------------------------


def run(seed: int, seconds: float) -> dict[str, Any]:
    """Leaves calls out one by one, in an order of the seed's and where it chooses, until all were left out or the time is over.

    Args:
        seed: of what is drawn.
        seconds: how long, once it is known where calls are made; the call that is tried then is finished.

    Returns:
        How many were left out, and as violations those that nobody noticed, as texts.
    """
    atlas()  # the first time it takes as long as some mutants
    end = time.monotonic() + seconds
    rng = random.Random(seed)
    calls = sorted(call for call in in_source() if call.name not in NOT_NEEDED_AFTER_A_CRASH)
    rng.shuffle(calls)
    survivors, done = [], 0
    for call in takewhile(lambda _: time.monotonic() < end, calls):
        done += 1
        with quiet():
            noticed = broken_without(call, SAMPLES, rng) or broken_without(call)
        if noticed is None:
            survivors.append(f"nobody misses {call.name}")
    return {"seed": seed, "mutants": done, "violations": survivors}
