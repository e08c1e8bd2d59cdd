"""`repair`: executes a plan (`tools.plan`) under the directory's locks, after a backup of every file that changes.

The order of steps makes a crash harmless (docs/DURABILITY.md):

* The backup is durable before anything changes.
* Checkpoints are lowered first.
* Derived files are removed before the files that they are derived from.
* A new file is synced before it gets its name.
* A new last segment exists before the others are removed, because its name gives the log's end.

After a crash, another repair finds the remaining damage and completes the work.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from pylog import trace
from pylog.clock import Clock, SystemClock
from pylog.directory.checkpoints import CLEANER, RECOVERY_POINT, Checkpoint
from pylog.directory.leader_epoch_cache import (
    EpochEntry,
    assign_epoch,
    read_epochs,
    truncate_epochs_end,
    truncate_epochs_start,
    write_epochs,
)
from pylog.directory.locks import StoreLocks
from pylog.errors import InvalidArgumentError, PylogError, StorageFailedError
from pylog.fs import File, FileSystem, OsFileSystem, base_name, copy_range, join, write_atomically
from pylog.log.producer_state import ProducerStateManager
from pylog.log.recovery.producer_snapshots import load_snapshot, write_snapshot
from pylog.record.format import BASE_OFFSET, LEADER_EPOCH
from pylog.segment import names
from pylog.segment.batch_walk import walk
from pylog.segment.segment import LogSegment
from pylog.text import counted
from pylog.tools.backup import Backup
from pylog.tools.partitions import PartitionDirectory, sizes_of, targets
from pylog.tools.pieces import KeptBytes, SegmentPlan
from pylog.tools.plan import OUTCOMES, POLICIES, PartitionPlan, plan_partition, segments_of

_INDEXES = (names.INDEX, names.TIME_INDEX, names.TRANSACTION_INDEX, names.SEAL)


class Refused(NamedTuple):
    """A partition that is not repaired, and why."""

    target: PartitionDirectory
    why: str


@dataclass(frozen=True)
class Repair:
    """The result of a repair, or its plan.

    Attributes:
        policy: the policy.
        plans: one plan per partition with damage.
        refused: partitions with damage that this policy cannot repair.
        backup: the directory with copies of all changed files; None after a dry run, or if there was nothing to repair.
    """

    policy: str
    plans: tuple[PartitionPlan, ...]
    refused: tuple[Refused, ...]
    backup: str | None = None


def repair(
    path: str,
    policy: str,
    *,
    execute: bool = False,
    whole: bool = False,
    lost_markers: str | None = None,
    backup: str | None = None,
    fs: FileSystem | None = None,
    clock: Clock | None = None,
) -> Repair:
    """Repairs a log directory, or one partition's directory.

    Args:
        path: the directory.
        policy: "skip" removes damaged bytes and keeps everything that can be read. "truncate" ends the log at the first damage.
            "quarantine" removes whole damaged segments.
        execute: repair. By default only a plan is made; nothing is written or locked.
        whole: with "quarantine", remove all records of the partition, which then continues at its end offset. `path` must be
            one partition.
        lost_markers: how transactions end whose marker is lost and cannot be read: "commit" or "abort". A marker that can be
            read is written again. Without it, a partition with transactions that lose their markers is not repaired.
        backup: a new directory for the copies, outside of the log directory; by default next to it.
        fs, clock: the file system and the clock; by default the system's.

    Returns:
        The repair, or the plan. Afterwards `verify` finds no damage in repaired partitions.

    Raises:
        InvalidArgumentError: an argument is invalid; nothing was done.
        NotALogDirectoryError: the directory does not exist.
        StoreLockedError: a broker or another pylog process has the directory open for writing; nothing was done.
        StorageFailedError: the disk is full, or a call failed. The steps so far are safe; repair again.

    Cost: reads damaged partitions three times, and copies damaged segments twice.

    >>> import pylog, tempfile
    >>> root = tempfile.mkdtemp()
    >>> with pylog.open(root) as store:
    ...     _ = store.create_topic("orders")
    >>> repair(root, "skip").plans
    ()
    """
    files, time = fs or OsFileSystem(), clock or SystemClock()
    found = targets(files, path)
    if policy not in POLICIES:
        raise InvalidArgumentError(f"policy={policy!r} is not one of {', '.join(POLICIES)}")
    if whole and (policy != "quarantine" or len(found) != 1):
        raise InvalidArgumentError(f"whole=True requires policy='quarantine' and one partition; {path} has {len(found)}")
    if lost_markers not in (None, *OUTCOMES):
        raise InvalidArgumentError(f"lost_markers={lost_markers!r} is not one of {', '.join(OUTCOMES)}")
    given = policy, time, whole, lost_markers
    if not execute or not found:
        return _planned(files, found, *given)
    root = found[0].root
    copies = Backup(files, root, backup, time)
    locks = StoreLocks(files, root, time, exclusive=True, timeout_ms=0)
    try:
        planned = _planned(files, found, *given, alone=True)
        if not planned.plans:
            return planned
        _back_up(files, planned, copies)
        for plan in planned.plans:
            _Execution(files, plan).run()
            facts = {"policy": policy, "start": plan.from_offset, "end": plan.new_end_offset, "backup": copies.path}
            trace.line(trace.REPAIRED, plan.target.key, **facts, changes=list(plan.sentences()))
    finally:
        locks.close()
    return Repair(policy, planned.plans, planned.refused, copies.path)


def _planned(
    fs: FileSystem,
    found: list[PartitionDirectory],
    policy: str,
    clock: Clock,
    whole: bool,
    lost_markers: str | None,
    *,
    alone: bool = False,
) -> Repair:
    plans, refused = [], []
    for target in found:
        try:
            plan = plan_partition(fs, target, policy, clock, whole=whole, lost_markers=lost_markers, alone=alone)
            if alone and plan is not None and lost_markers is None:
                _check_ends(plan)
            plans += [] if plan is None else [plan]
        except PylogError as error:
            if len(found) == 1:
                raise
            refused.append(Refused(target, str(error)))
    return Repair(policy, tuple(plans), tuple(refused))


def _check_ends(plan: PartitionPlan) -> None:
    """Raises if transactions lose their markers: an outcome must not be guessed, as the next opening would."""
    if plan.lost_ends:
        raise InvalidArgumentError(
            f"{plan.target.directory}: {plan.lost_ends[0]}; say how such transactions end if their marker cannot be read: "
            "--lost-markers commit, or --lost-markers abort"
        )


def _back_up(fs: FileSystem, planned: Repair, copies: Backup) -> None:
    lines = []
    for name in (RECOVERY_POINT, CLEANER):
        copies.keep(join(planned.plans[0].target.root, name))
    for plan in planned.plans:
        for name in sorted(_touched(fs, plan)):
            copies.keep(join(plan.target.directory, name))
        lines += [f"{plan.target.directory}: {planned.policy}", *(f"  {sentence}" for sentence in plan.sentences())]
    copies.settle("\n".join(lines) + "\n")
    partitions = trace.names_of(plan.target.key for plan in planned.plans)
    trace.line(trace.BACKED_UP, path=copies.path, partitions=partitions, reason=f"repair --policy {planned.policy}")


def _touched(fs: FileSystem, plan: PartitionPlan) -> set[str]:
    """Returns the names of the files that the repair replaces or removes."""
    bases = {segment.base_offset for segment in plan.segments} | set(plan.unindexed)
    changed = {segment.base_offset for segment in plan.segments}
    found = {names.LEADER_EPOCH_CHECKPOINT, *([names.DURABLE_POINT] if plan.forget_header else [])}
    for name in sizes_of(fs, plan.target):
        parsed = names.parse(name)
        if parsed is None or parsed.state:
            continue
        of_segment = parsed.offset in bases and parsed.suffix in _INDEXES
        log = parsed.offset in changed and parsed.suffix == names.LOG
        old_state = parsed.suffix == names.SNAPSHOT and parsed.offset > plan.from_offset
        again = parsed.suffix == names.TRANSACTION_INDEX and parsed.offset >= plan.from_offset
        if of_segment or log or old_state or again or _is_bad_snapshot(plan, name):
            found.add(name)
    return found


def _is_bad_snapshot(plan: PartitionPlan, name: str) -> bool:
    return name.endswith(names.SNAPSHOT) and any(each.finding.path == join(plan.target.directory, name) for each in plan.affected)


class _Execution:
    """Executes the plan of one partition."""

    def __init__(self, fs: FileSystem, plan: PartitionPlan) -> None:
        self._fs = fs
        self._plan = plan
        self._directory = plan.target.directory
        self._config = plan.target.config

    def run(self) -> None:
        plan = self._plan
        self._lower_checkpoints()
        if plan.created is not None:  # first: until then the files to remove give the end of the log
            self._create(plan.created)
        touched = _touched(self._fs, plan)
        logs = {segment.path for segment in plan.segments}
        derived = {name for name in touched if join(self._directory, name) not in logs}
        replaced = {names.LEADER_EPOCH_CHECKPOINT} | self._transactions_that_stay(derived)
        self._remove(*(derived - replaced))  # before the files that they are derived from change
        for segment in sorted(plan.segments, reverse=True):  # newest first: a crash leaves no hole, and the first damage
            if segment.pieces is None:
                self._remove(base_name(segment.path))
            else:
                self._write_log(segment)
        self._rebuild()
        self._fs.sync_directory(self._directory)

    def _transactions_that_stay(self, derived: set[str]) -> set[str]:
        """Returns the transaction indexes of unchanged segments. Without them, aborted records would count as committed."""
        changed = {names.file_name(segment.base_offset, names.TRANSACTION_INDEX) for segment in self._plan.segments}
        return {name for name in derived - changed if name.endswith(names.TRANSACTION_INDEX)}

    # ---- removal -------------------------------------------------------------------------------------------------------------

    def _lower_checkpoints(self) -> None:
        """Lowers checkpoints to the new end. A checkpoint past the end would be reported as a loss."""
        plan = self._plan
        for name in (RECOVERY_POINT, CLEANER):
            checkpoint = Checkpoint(self._fs, plan.target.root, name)
            if checkpoint.offsets().get(plan.target.key, 0) > plan.new_end_offset:
                checkpoint.update({plan.target.key: plan.new_end_offset})

    def _remove(self, *removed: str) -> None:
        existing = [name for name in removed if self._fs.exists(join(self._directory, name))]
        for name in existing:
            self._fs.remove(join(self._directory, name))
        if existing:
            self._fs.sync_directory(self._directory)

    # ---- new files -----------------------------------------------------------------------------------------------------------

    def _write_log(self, segment: SegmentPlan) -> None:
        """Replaces a `.log` file. The new file keeps the modification time, which searches by time use."""
        name = names.file_name(segment.base_offset, names.LOG)
        mtime_ms = next(entry.mtime_ms for entry in self._fs.list(self._directory, sizes=names.LOG) if entry.name == name)
        temporary = segment.path + names.TEMPORARY
        if self._fs.exists(temporary):
            self._fs.remove(temporary)
        old, new = self._fs.open(segment.path), self._fs.create(temporary)
        try:
            position = 0
            for piece in segment.pieces or ():
                if isinstance(piece, KeptBytes):
                    _copy(old, piece, new, position)
                else:
                    new.write(memoryview(piece.encoded()), position)
                position += piece.size
            new.set_mtime(mtime_ms)
            new.sync()
        finally:
            old.close()
            new.close()
        self._fs.rename(temporary, segment.path)
        self._fs.sync_directory(self._directory)

    def _create(self, base_offset: int) -> None:
        file = self._fs.create(join(self._directory, names.file_name(base_offset, names.LOG)))
        file.close()
        self._fs.sync_directory(self._directory)

    # ---- derived files -------------------------------------------------------------------------------------------------------

    def _rebuild(self) -> None:
        """Rebuilds indexes, aborted transactions, snapshots and leader epochs in one pass over the headers."""
        plan = self._plan
        segments = [segment for segment, _ in segments_of(self._fs, plan.target, self._config.index_interval_bytes)]
        state = self._state_before(segments)
        epochs: list[EpochEntry] = []
        indexed = {segment.base_offset for segment in plan.segments} | set(plan.unindexed)
        for segment in segments:
            if segment.base_offset > plan.from_offset:
                state.end_offset = max(state.end_offset, segment.base_offset)
                write_snapshot(self._fs, self._directory, state)
            if segment.base_offset in indexed:
                segment.write_indexes(segment.rebuild_indexes())
            aborted = b""
            for walked in walk(segment, 0, segment.size, None):
                aborted += b"".join(entry.encoded() for entry in state.replay(walked.buffer, walked.table))
                for base, epoch in walked.table[[BASE_OFFSET, LEADER_EPOCH]].T.tolist():
                    epochs = assign_epoch(epochs, epoch, base)
            if segment.base_offset >= plan.from_offset:
                self._settle_transactions(segment.base_offset, aborted)
        state.end_offset = max(state.end_offset, plan.new_end_offset)
        write_snapshot(self._fs, self._directory, state)
        first = segments[0].base_offset if segments else 0
        self._settle_epochs(epochs, plan.remote.start if plan.remote else first)  # a broker finds its remote segments by epochs

    def _settle_transactions(self, base_offset: int, aborted: bytes) -> None:
        name = names.file_name(base_offset, names.TRANSACTION_INDEX)
        if aborted:
            write_atomically(self._fs, self._directory, name, aborted)
        else:
            self._remove(name)

    def _settle_epochs(self, of_batches: list[EpochEntry], start_offset: int) -> None:
        """Writes the leader-epoch checkpoint: the old one, truncated to the log; the epochs of the batches if it was damaged."""
        path = join(self._directory, names.LEADER_EPOCH_CHECKPOINT)
        epochs = of_batches
        if not any(each.finding.path == path for each in self._plan.affected):
            known = read_epochs(self._fs, self._directory) or []
            kept = truncate_epochs_end(known, self._plan.new_end_offset)
            epochs = truncate_epochs_start(kept, start_offset)
        if epochs:
            write_epochs(self._fs, self._directory, epochs)
        else:
            self._remove(names.LEADER_EPOCH_CHECKPOINT)

    def _state_before(self, segments: list[LogSegment]) -> ProducerStateManager:
        """Returns the producer state before the first change. Expired producers do not return."""
        first = segments[0].base_offset if segments else 0
        start = self._plan.remote.start if self._plan.remote else first
        offsets = [found.offset for name in sizes_of(self._fs, self._plan.target) if (found := _snapshot(name))]
        state, _ = load_snapshot(self._fs, self._directory, offsets, start, self._plan.from_offset)
        return state


def _snapshot(name: str) -> names.NumberedName | None:
    found = names.parse(name)
    return found if found is not None and found.suffix == names.SNAPSHOT and not found.state else None


def _copy(source: File, piece: KeptBytes, target: File, position: int) -> None:
    done = copy_range(source, piece.start, piece.start + piece.size, target, position)
    if done < piece.start + piece.size:
        message = f"{source.path} ends at position {done}, before the {counted(piece.size, 'byte')} that the plan copies"
        raise StorageFailedError(f"{message}; nothing was replaced; repair again", path=source.path)
