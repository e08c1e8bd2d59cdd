"""ZODB's `_scan_foreward`: a recovery branch called a function that does not exist, because nothing had ever come that way."""

from __future__ import annotations

import errno
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import CodeType, FrameType, FunctionType, ModuleType
from typing import Any

import pytest
from msgspec.structs import replace

import pylog
from pylog import ProducerBatch
from pylog.clock import ManualClock
from pylog.directory.leader_epoch_cache import LeaderEpochCache
from pylog.fs import DirectoryEntry
from pylog.log.durable_point import DELETED, FAILED, SLOT_SIZE, DurablePoint, parse_slot
from pylog.log.recovery import findings, leader_epochs, loader, log_end, producer_snapshots, replay, torn_tail
from pylog.log.recovery.findings import losses_in
from pylog.log.writing import active_segment, readying
from pylog.log.writing.active_file import ActiveFile
from pylog.log.writing.writer import LogWriter
from pylog.segment.segment import inode_of
from pylog.testing import MemoryFileSystem
from pylog.testing.disk import Image
from pylog.testing.memory import MemoryFile
from support.engines import engine_of
from support.reference.records import Batch, Record

PARTITION = "/data/t-0"
HEADER = f"{PARTITION}/durable-point"
FIRST, MIDDLE, LAST = (f"{PARTITION}/{base:020d}" for base in (0, 3, 6))
VALUES = [b"%d" % number for number in range(9)]
RECOVERY = (loader, log_end, replay, leader_epochs, findings)
PREPARATION = [  # what a writer does before its first byte
    LogWriter._open_active,
    active_segment.loaded_segment,
    readying.cut_tail,
    producer_snapshots.drop_snapshots,
    torn_tail.set_aside,
    torn_tail._new_path,
    ActiveFile.cut,
    ActiveFile.trim,
    readying.make_durable,
    readying.first_slot,
    readying.take_header,
    LeaderEpochCache.assign,
]


# ---- what can be found -------------------------------------------------------------------------------------------------------


def a_log(*, closed: bool) -> Image:
    """Nine records of a producer in three segments."""
    fs = MemoryFileSystem()
    store = pylog.open("/data", fs=fs, clock=fs.clock)
    log = store.create_topic("t", segment_bytes=210, index_interval_bytes=0) and store.log("t")
    for sequence, value in enumerate(VALUES):
        log.append_batch([(None, value, (), 1000 + sequence)], producer=ProducerBatch(1 << 48, 0, sequence))
    assert [segment.path for segment in log.segments] == [FIRST + ".log", MIDDLE + ".log", LAST + ".log"]
    if closed:
        store.close()
    return fs.image()


def content(fs: MemoryFileSystem, path: str) -> bytes:
    data = fs.read(path, 1 << 20)
    assert data is not None
    return data


def put(fs: MemoryFileSystem, path: str, data: bytes) -> None:
    file = fs.open(path, write=True) if fs.exists(path) else fs.create(path)
    file.truncate(0)
    file.write(memoryview(data), 0)
    file.close()


def flipped(fs: MemoryFileSystem, path: str, position: int) -> None:
    data = bytearray(content(fs, path))
    data[position] ^= 1
    put(fs, path, bytes(data))


def slot_says(fs: MemoryFileSystem, **changes: Any) -> None:
    data = content(fs, HEADER)
    slots = [slot for start in (0, SLOT_SIZE) if (slot := parse_slot(data[start : start + SLOT_SIZE])) is not None]
    newest: DurablePoint = max(slots, key=lambda slot: slot.counter)
    put(fs, HEADER, replace(newest, **changes).encoded() * 2)


def two_days_later(fs: MemoryFileSystem) -> None:
    """The producer has been idle for longer than it is kept."""
    clock = fs.clock
    assert isinstance(clock, ManualClock)
    clock.advance(2 * 86_400_000)


def no_header(fs: MemoryFileSystem) -> None:
    fs.remove(HEADER)


def a_torn_tail(fs: MemoryFileSystem) -> None:
    put(fs, f"{LAST}.torn.0", b"of an earlier time")
    put(fs, LAST + ".log", content(fs, LAST + ".log") + b"torn")


def a_whole_batch_of_a_dead_process(fs: MemoryFileSystem) -> None:
    put(fs, LAST + ".log", content(fs, LAST + ".log") + Batch([Record(0, 0, None, b"9")], 9, 0).encoded())


def zeros_written_ahead(fs: MemoryFileSystem) -> None:
    put(fs, LAST + ".log", content(fs, LAST + ".log") + bytes(1000))


def a_whole_batch_of_a_dead_process_amid_zeros(fs: MemoryFileSystem) -> None:
    a_whole_batch_of_a_dead_process(fs)
    zeros_written_ahead(fs)


def half_a_batch_of_a_dead_process_amid_zeros(fs: MemoryFileSystem) -> None:
    a_torn_tail(fs)
    zeros_written_ahead(fs)


def damage_far_before_zeros_and_a_header_that_lags(fs: MemoryFileSystem) -> None:
    end = len(content(fs, LAST + ".log")) // 3 * 2
    slot_says(fs, published_position=end, published_offset=8, durable_position=end, durable_offset=8)
    flipped(fs, LAST + ".log", 65)
    zeros_written_ahead(fs)


def a_failed_sync(fs: MemoryFileSystem) -> None:
    slot_says(fs, flags=FAILED, durable_position=0, durable_offset=6)


def a_deletion_under_way(fs: MemoryFileSystem) -> None:
    slot_says(fs, flags=DELETED)


def a_roll_under_way(fs: MemoryFileSystem) -> None:
    slot_says(fs, epoch=7)
    put(fs, f"{PARTITION}/{9:020d}.log", b"")


def a_truncation_under_way(fs: MemoryFileSystem) -> None:
    """All but its last rename is done: the copy that ends where the log does now is to be the middle segment."""
    whole = content(fs, MIDDLE + ".log")
    put(fs, MIDDLE + ".log.tmp", whole)
    slot_says(
        fs,
        epoch=7,
        active_base=3,
        active_inode=inode_of(fs, MIDDLE + ".log.tmp"),
        published_position=len(whole),
        published_offset=6,
        durable_base=3,
        durable_position=len(whole),
        durable_offset=6,
    )
    for entry in fs.list(PARTITION):
        if entry.name.startswith(f"{6:020d}") or entry.name.endswith(".snapshot"):
            fs.remove(f"{PARTITION}/{entry.name}")


def a_truncation_with_a_later_segment_still_there(fs: MemoryFileSystem) -> None:
    """A truncation deletes the later segments first, so this copy is not finished: the later segment has the log's records."""
    later = {name: content(fs, name) for name in (entry_path(entry) for entry in fs.list(PARTITION)) if name.startswith(LAST)}
    a_truncation_under_way(fs)
    for name, data in later.items():
        put(fs, name, data)


def a_truncation_that_failed_after_a_brokers_segment(fs: MemoryFileSystem) -> None:
    """The later segment is deleted by name, and the one before it, which a broker had sealed, has no seal."""
    for entry in fs.list(PARTITION):
        if entry_path(entry).startswith(LAST) and not entry.name.endswith(".snapshot"):
            fs.rename(entry_path(entry), entry_path(entry) + ".deleted")
    if fs.exists(MIDDLE + ".seal"):
        fs.remove(MIDDLE + ".seal")


def entry_path(entry: DirectoryEntry) -> str:
    return f"{PARTITION}/{entry.name}"


def bytes_missing(fs: MemoryFileSystem) -> None:
    put(fs, LAST + ".log", content(fs, LAST + ".log")[:-1])


def a_changed_header_of_a_batch(fs: MemoryFileSystem) -> None:
    flipped(fs, LAST + ".log", 15)


def a_damaged_record(fs: MemoryFileSystem) -> None:
    flipped(fs, LAST + ".log", 65)


def a_damaged_sealed_segment_without_a_header(fs: MemoryFileSystem) -> None:
    no_header(fs)
    flipped(fs, FIRST + ".log", 65)


def damage_below_the_recovery_point(fs: MemoryFileSystem) -> None:
    no_header(fs)
    put(fs, "/data/recovery-point-offset-checkpoint", b"0\n1\nt 0 9\n")
    put(fs, LAST + ".log", content(fs, LAST + ".log")[:-1])


def a_recovery_point_beyond_the_end(fs: MemoryFileSystem) -> None:
    no_header(fs)
    put(fs, "/data/recovery-point-offset-checkpoint", b"0\n1\nt 0 19\n")


def a_broker_has_written_since(fs: MemoryFileSystem) -> None:
    put(fs, LAST + ".log", content(fs, LAST + ".log") + Batch([Record(0, 0, None, b"9")], 9, 5).encoded())


def another_file_in_the_place_of_the_active_one(fs: MemoryFileSystem) -> None:
    data = content(fs, LAST + ".log")
    fs.remove(LAST + ".log")
    put(fs, LAST + ".log", data)


def damaged_leader_epochs(fs: MemoryFileSystem) -> None:
    put(fs, f"{PARTITION}/leader-epoch-checkpoint", b"nonsense")


def damaged_partition_metadata(fs: MemoryFileSystem) -> None:
    put(fs, f"{PARTITION}/partition.metadata", b"nonsense")


def damaged_snapshots(fs: MemoryFileSystem) -> None:
    for entry in fs.list(PARTITION):
        if entry.name.endswith(".snapshot"):
            put(fs, f"{PARTITION}/{entry.name}", b"nonsense")


def a_snapshot_behind_the_end(fs: MemoryFileSystem) -> None:
    put(fs, f"{PARTITION}/{19:020d}.snapshot", b"nonsense")


def snapshots_of_earlier_shutdowns(fs: MemoryFileSystem) -> None:
    for offset in (1, 2):
        put(fs, f"{PARTITION}/{offset:020d}.snapshot", b"nonsense")


def no_indexes(fs: MemoryFileSystem) -> None:
    for entry in fs.list(PARTITION):
        if entry.name.endswith("index"):
            fs.remove(f"{PARTITION}/{entry.name}")


def a_time_index_without_its_end(fs: MemoryFileSystem) -> None:
    if fs.exists(LAST + ".timeindex"):
        put(fs, LAST + ".timeindex", content(fs, LAST + ".timeindex")[:-12])


def an_index_that_leads_into_damage(fs: MemoryFileSystem) -> None:
    flipped(fs, LAST + ".log", len(content(fs, LAST + ".log")) // 3 * 2 + 26)  # the last batch's last offset


def a_finished_compaction(fs: MemoryFileSystem) -> None:
    for suffix in (".log", ".index", ".timeindex"):
        fs.rename(FIRST + suffix, f"{FIRST}{suffix}.swap")
        put(fs, f"{MIDDLE}{suffix}.deleted", b"")


def a_finished_compaction_of_a_sealed_segment(fs: MemoryFileSystem) -> None:
    a_finished_compaction(fs)
    put(fs, f"{FIRST}.seal.swap", content(fs, FIRST + ".seal"))


def an_unfinished_compaction(fs: MemoryFileSystem) -> None:
    put(fs, FIRST + ".log.cleaned", b"")
    put(fs, MIDDLE + ".log.swap", content(fs, MIDDLE + ".log"))


def a_hole_that_a_power_loss_left(fs: MemoryFileSystem) -> None:
    slot_says(fs, durable_position=0, durable_offset=6)
    flipped(fs, LAST + ".log", 65)


def no_segments(fs: MemoryFileSystem) -> None:
    for entry in fs.list(PARTITION):
        if entry.name[:20].isdigit():
            fs.remove(f"{PARTITION}/{entry.name}")


def no_partition(fs: MemoryFileSystem) -> None:
    fs.remove_tree(PARTITION)


def nothing_wrong(fs: MemoryFileSystem) -> None:
    """The disk as it was left."""


WRONG: list[Callable[[MemoryFileSystem], None]] = [
    nothing_wrong,
    two_days_later,
    no_header,
    a_torn_tail,
    a_whole_batch_of_a_dead_process,
    zeros_written_ahead,
    a_whole_batch_of_a_dead_process_amid_zeros,
    half_a_batch_of_a_dead_process_amid_zeros,
    damage_far_before_zeros_and_a_header_that_lags,
    a_failed_sync,
    a_deletion_under_way,
    a_roll_under_way,
    a_truncation_under_way,
    a_truncation_with_a_later_segment_still_there,
    a_truncation_that_failed_after_a_brokers_segment,
    bytes_missing,
    a_changed_header_of_a_batch,
    a_damaged_record,
    a_damaged_sealed_segment_without_a_header,
    damage_below_the_recovery_point,
    a_recovery_point_beyond_the_end,
    a_broker_has_written_since,
    another_file_in_the_place_of_the_active_one,
    damaged_leader_epochs,
    damaged_partition_metadata,
    damaged_snapshots,
    a_snapshot_behind_the_end,
    snapshots_of_earlier_shutdowns,
    no_indexes,
    a_time_index_without_its_end,
    an_index_that_leads_into_damage,
    a_finished_compaction,
    a_finished_compaction_of_a_sealed_segment,
    an_unfinished_compaction,
    a_hole_that_a_power_loss_left,
    no_segments,
    no_partition,
]


# ---- what is done with it ----------------------------------------------------------------------------------------------------


def recover(fs: MemoryFileSystem) -> None:
    """Opens for reading and for writing; whatever happens is an answer or an error of pylog's."""
    for mode in ("r", "rw"):
        with suppress(pylog.PylogError), pylog.open("/data", mode, fs=fs, clock=fs.clock) as store:
            log = store.log("t")
            with suppress(pylog.CorruptionError):
                values = [record.value for record in log.records(isolation_level="read_committed")]
                assert values[: len(VALUES)] == VALUES[: len(values)]
            assert all("/data" in finding.message for finding in losses_in(engine_of(log).recovery_report))
            if mode == "rw":
                log.append_batch([b"next"], producer=ProducerBatch(1 << 48, 0, len(VALUES)))
                assert log.read(log.end_offset - 1).value == b"next"


@pytest.mark.sampled(7)
@pytest.mark.parametrize("boots", [1, 2], ids=["same boot", "other boot"])
@pytest.mark.parametrize("closed", [True, False], ids=["closed", "killed"])
@pytest.mark.parametrize("wrong", WRONG, ids=lambda wrong: wrong.__name__.replace("_", " "))
def test_recovery_ends_with_records_that_were_written_or_with_an_error_of_pylogs(
    wrong: Callable[[MemoryFileSystem], None], closed: bool, boots: int
) -> None:
    fs = MemoryFileSystem(image=a_log(closed=closed), boots=boots)
    wrong(fs)
    recover(fs)


@pytest.mark.slow
def test_no_line_of_recovery_is_left_that_none_of_these_comes_to(tmp_path: Path) -> None:
    lines = Lines([*(code for module in RECOVERY for code in codes_of(module)), *(method.__code__ for method in PREPARATION)])
    with traced(lines):
        for closed in (True, False):
            image = a_log(closed=closed)
            for boots in (1, 2):
                for wrong in WRONG:
                    fs = MemoryFileSystem(image=image, boots=boots)
                    wrong(fs)
                    recover(fs)
        for fs in (BesideABroker, WithALink, WhereItVanishes, WhereAReaderWasFaster, WhereNothingGoes, WhereAnotherHandWrites):
            recover(fs(image=a_log(closed=True)))
        fs = WhereNoSealIsWritten(image=a_log(closed=True))
        a_truncation_that_failed_after_a_brokers_segment(fs)
        recover(fs)
        a_log_whose_first_records_are_in_an_archive(tmp_path)
    assert lines.left() == []


def a_log_whose_first_records_are_in_an_archive(path: Path) -> None:
    """Opened once more after a tick has moved them there, and read from the archive alone."""
    archive = f"file://{path}/archive"
    for _ in range(2):
        with pylog.open(path / "data", archive=archive) as store:
            store.create_topic("tiered", exist_ok=True, remote_storage_enable=True, local_retention_bytes=0, segment_bytes=1000)
            store.log("tiered").append_many([b"x" * 600])
            store.log("tiered").append_many([b"x" * 600])
            store.tick()
            assert store.log("tiered").read(0).value == b"x" * 600
            store.archive()
    with pylog.open(archive, "r") as store:
        assert store.log("tiered").read(0).value == b"x" * 600


class BesideABroker(MemoryFileSystem):
    """Another program has the directory open."""

    def lock_owner(self, path: str, start: int = 0, size: int = 0) -> int | None:
        return 1234


class WithALink(MemoryFileSystem):
    """A segment's name stands for something that is no file."""

    def list(self, path: str, *, sizes: str = "") -> list[DirectoryEntry]:
        found = super().list(path, sizes=sizes)
        return [entry._replace(is_file=False) if entry.name == f"{0:020d}.log" else entry for entry in found]


class WhereItVanishes(MemoryFileSystem):
    """The partition is deleted by another process while it is being opened."""

    def list(self, path: str, *, sizes: str = "") -> list[DirectoryEntry]:
        if path == PARTITION:
            self.remove_tree(PARTITION)
        return super().list(path, sizes=sizes)


class WhereAReaderWasFaster(MemoryFileSystem):
    """An index that a reader was making when the directory was listed has its name by now."""

    def list(self, path: str, *, sizes: str = "") -> list[DirectoryEntry]:
        found = super().list(path, sizes=sizes)
        unfinished = DirectoryEntry(f"{0:020d}.index.tmp", is_directory=False, is_file=True, size=0, mtime_ms=0)
        return [*found, unfinished] if path == PARTITION else found


class WhereNothingGoes(WhereAReaderWasFaster):
    """The disk refuses to remove what is unfinished."""

    def remove(self, path: str) -> None:
        raise pylog.StorageFailedError(f"cannot remove {path}", path=path, errno=errno.EIO)


class WhereNoSealIsWritten(MemoryFileSystem):
    """The disk refuses the name of a seal."""

    def rename(self, old: str, new: str) -> None:
        if new.endswith(".seal"):
            raise pylog.StorageFailedError(f"cannot rename {old}", path=old, errno=errno.EIO)
        super().rename(old, new)


class WhereAnotherHandWrites(MemoryFileSystem):
    """Somebody who knows no locks writes a slot between loading the log and the first write."""

    had_written = False

    def open(self, path: str, *, write: bool = False) -> MemoryFile:
        if path == HEADER and write and not self.had_written:
            self.had_written = True
            slot_says(self, counter=1 << 60)
        return super().open(path, write=write)


# ---- which lines were run ----------------------------------------------------------------------------------------------------


def codes_of(module: ModuleType) -> list[CodeType]:
    """The code of a module's functions and methods."""
    own = [value for value in vars(module).values() if getattr(value, "__module__", None) == module.__name__]
    values = own + [value for each in own if isinstance(each, type) for value in vars(each).values()]
    found = [value.fget if isinstance(value, property) else value for value in values]
    codes = [value.__code__ for value in found if isinstance(value, FunctionType)]
    return [code for code in codes if code.co_filename == module.__file__]  # not what a dataclass makes


def with_inner(code: CodeType) -> Iterator[CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from with_inner(constant)


class Lines:
    """The lines of some code, and which of them were run."""

    def __init__(self, codes: list[CodeType]) -> None:
        self._codes = {inner for code in codes for inner in with_inner(code)}
        self._left = {(code, line) for code in self._codes for line in lines_of(code)}

    def left(self) -> list[str]:
        return sorted(f"{code.co_filename}:{line} in {code.co_name}" for code, line in self._left)

    def trace(self, frame: FrameType, event: str, _: object) -> Any:
        if frame.f_code not in self._codes:
            return None
        self._left.discard((frame.f_code, frame.f_lineno))
        return self.trace


def lines_of(code: CodeType) -> set[int]:
    return {line for _, _, line in code.co_lines() if line is not None and line != code.co_firstlineno}


@contextmanager
def traced(lines: Lines) -> Iterator[None]:
    before = sys.gettrace()
    sys.settrace(lines.trace)
    try:
        yield
    finally:
        sys.settrace(before)
