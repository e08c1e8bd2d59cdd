"""Who takes part in the protocol: processes that write, processes that read, and a broker between their lives.

Each tells the run's `Ledger` what it asks for, what it is told, and what it sees.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import pylog
from pylog.directory.checkpoints import CLEAN_SHUTDOWN, NEW_MARKER, RECOVERY_POINT
from pylog.directory.leader_epoch_cache import EpochEntry, write_epochs
from pylog.errors import ClosedError, OffsetOutOfRangeError, PylogError, StorageFailedError
from pylog.record.builder import BatchEncoder, rows_from_records
from pylog.record.checksum import crc32c
from pylog.record.format import ATTRIBUTES_AT, CRC_AT, HEADER_SIZE, LOG_OVERHEAD
from pylog.record.types import TopicPartition
from pylog.segment.names import LOG, file_name, parse
from support.campaign.ledger import Ledger, Records, ViolationError
from support.campaign.lossy import LossyFileSystem, View
from support.campaign.scheduler import FULL, SYNC_FAILS, Call, Killed, Machine, Process, VirtualClock
from support.engines import segments_of
from support.log.derived import format_offsets

ROOT: Final = "/s"
TOPIC: Final = "t"
DIRECTORY: Final = f"{ROOT}/{TOPIC}-0"
NOW_MS: Final = 1_700_000_000_000
VALUE_BYTES: Final = 150
SMALL_BYTES: Final = 20
BROKER_EPOCH: Final = 7


@dataclass(eq=False)
class World:
    """What the processes of a run share."""

    fs: LossyFileSystem
    clock: VirtualClock
    ledger: Ledger = field(default_factory=Ledger)
    trace: list[Call] = field(default_factory=list)


# ---- records -----------------------------------------------------------------------------------------------------------------


def value_of(name: str) -> bytes:
    """What a record holds; those with capital letters are small."""
    return name.encode().ljust(SMALL_BYTES if name.isupper() else VALUE_BYTES, b".")


def name_of(value: bytes | None) -> str:
    """The name in a record."""
    name = (value or b"").rstrip(b".").decode(errors="replace")
    if value_of(name) != value:
        raise ViolationError(f"a record with a value that nobody appended: {value!r}")
    return name


def read_all(log: pylog.Log, start: int | None = None) -> Records:
    return [(record.offset, name_of(record.value)) for record in log.records(start)]


def check_findings(log: pylog.Log) -> None:
    """No crash is damage."""
    wrong = [finding.message for finding in log.recovery_report if finding.kind in ("corrupt", "missing")]
    if wrong:
        raise ViolationError(f"false alarm: {wrong}")


# ---- processes of pylog ------------------------------------------------------------------------------------------------------


class Actor:
    """Somebody who opens the store and does something with its log.

    Args:
        world: what it shares with others.
        name: of its process.
        level: how it does it.
        operations: what it does: a method and its arguments.
    """

    mode = "rw"

    def __init__(self, world: World, name: str, level: str, operations: Sequence[tuple[Any, ...]]) -> None:
        self.ledger = world.ledger
        self.name = name
        self.level = level
        self.fs = world.fs.process()
        self._clock = world.clock
        self._operations = operations
        self._ended = False
        self.machine: Machine
        self.process: Process
        self.store: pylog.Store | None = None
        self.log: pylog.Log

    def begin(self, machine: Machine) -> Process:
        """The process that this is, for a machine to run."""
        self.machine = machine
        self.process = Process(self.name, machine, self.steps(), self.fs.kill)
        return self.process

    def steps(self) -> Iterator[Callable[[], None]]:
        yield functools.partial(self._attempt, self.open)
        for operation, *arguments in self._operations:
            if not self._ended:
                yield functools.partial(self._attempt, getattr(self, operation), *arguments)

    def _attempt(self, operation: Callable[..., None], *arguments: Any) -> None:
        """Does something that may fail if a fault is to blame."""
        self.machine.remark(f"{operation.__name__} {' '.join(map(str, arguments))}")
        try:
            operation(*arguments)
        except (StorageFailedError, ClosedError) as error:
            if not self.process.met:
                raise
            self.machine.remark(f"fails: {error}")
            if isinstance(error, ClosedError) or self.process.step == 1:
                self.close()

    def open(self) -> None:
        self.store = pylog.open(ROOT, self.mode, fs=View(self.machine, self.fs), clock=self._clock, durability=self.durability)
        self.log = self.store.log(TOPIC)
        check_findings(self.log)

    @property
    def durability(self) -> pylog.Durability:
        return pylog.Durability.OS if self.level == "OS" else pylog.Durability.SYNC

    def close(self) -> None:
        self._ended = True
        if self.store is not None:
            with contextlib.suppress(StorageFailedError, ClosedError):
                self.store.close()


class Writer(Actor):
    """A process that writes. Its level is its durability."""

    def open(self) -> None:
        super().open()
        self.read()

    def read(self) -> None:
        """Reads all of the log, as it is for this process."""
        since, switches, promised = self.ledger.tick(), self.machine.switches, self.ledger.promised
        records, end = read_all(self.log), self.log.end_offset
        if self.machine.switches == switches:  # else it may have changed between the two
            self.ledger.check_offsets(records, self.log.start_offset, end)
            if end < promised:
                raise ViolationError(f"{self.name} finds a log that ends at {end}; {promised} was promised")
        self.ledger.load(records, end, since)

    def append(self, *names: str) -> None:
        attempt = self.ledger.begin(names, soft=self.level == "OS")
        met = len(self.process.met)
        try:
            offsets = self.log.append_many([value_of(name) for name in names])
        except ClosedError:
            self.ledger.refuse(attempt, 0)
            raise
        except StorageFailedError as error:
            if all(kind == FULL and path.endswith(LOG) for kind, path in self.process.met[met:]):
                self.ledger.refuse(attempt, error.offset or 0)
            else:
                self.ledger.leave_open(attempt)
            raise
        except Killed:
            self.ledger.leave_open(attempt)
            raise
        self.ledger.acknowledge(attempt, offsets.start)
        self.machine.remark(f"{' '.join(names)} acknowledged at {offsets.start}")
        self._note_durable()

    def _note_durable(self) -> None:
        since = self.ledger.tick()
        self.ledger.durable(self.log.durable_offset, since)

    def flush(self) -> None:
        since, promised = self.ledger.tick(), self.ledger.promised
        self.log.flush()
        self.ledger.durable(promised, since)
        self._note_durable()

    def truncate(self, end: int) -> None:
        cut = self.ledger.begin_cut(end)
        try:
            self.log.truncate(end)
        except OffsetOutOfRangeError:
            self.ledger.cancel_cut(cut)
            if end >= self.ledger.last_start:
                raise
        except (PylogError, Killed):
            cut.active = False
            raise
        else:
            self.ledger.end_cut(cut)

    def retain(self) -> None:
        """Drops the first segment, if there is another one."""
        segments = segments_of(self.log)
        if len(segments) < 2:
            return
        before = segments[1].base_offset
        self.ledger.delete(before)
        try:
            self.ledger.deleted(self.log.delete_records(before))
        except OffsetOutOfRangeError:
            if not self.ledger.may_have_cut(0):
                raise


class Reader(Actor):
    """A process that only reads, from the log's start on, each record once.

    Its level says how: "scan" and "fresh" (which opens the log anew each time) read what there is, "follow" goes on where it
    was, "durable" does so with what outlives a loss of power.
    """

    mode = "r"

    def open(self) -> None:
        super().open()
        self.offset = self.top = self.seen = 0

    def look(self) -> None:
        """One look at what is new."""
        since, before = self.ledger.tick(), self.seen
        end = self._look_at_end(before)
        try:
            records = self._read()
        except OffsetOutOfRangeError:
            if self.offset >= self.ledger.last_start and not self.ledger.may_have_cut(before):
                raise
            self.offset = min(max(self.offset, self.log.start_offset), self.log.end_offset)
            return
        following = records[-1][0] + 1 if records else self.offset
        self.ledger.check_offsets(records, self.offset, following)
        if following < end and not self.ledger.may_have_cut(since):
            raise ViolationError(f"{self.name}: the end was {end}, and nothing is read from {following} on")
        self.ledger.see(records, since, durable=self.level == "durable")
        self.offset, self.seen = following, since
        self.machine.remark(f"sees {' '.join(name for _, name in records)} up to {self.offset}")

    def _look_at_end(self, before: int) -> int:
        switches, acknowledged = self.machine.switches, self.ledger.acknowledged
        if self.machine.has_struck(SYNC_FAILS):  # readers then see what is durable, until somebody has written the rest again
            acknowledged = min(acknowledged, self.ledger.safe)
        if self.level == "fresh" and self.store is not None:
            self.log = self.store.log(TOPIC)
        end = self.log.durable_offset if self.level == "durable" else self.log.end_offset
        if end < self.top and not self.ledger.may_have_cut(before):
            raise ViolationError(f"{self.name}: the end went back from {self.top} to {end}")
        alone = switches == self.machine.switches
        if end < acknowledged and alone and self.level != "durable":
            raise ViolationError(f"{self.name} sees a log that ends at {end}; {acknowledged} was acknowledged")
        self.top = end
        return end

    def _read(self) -> Records:
        if self.level in ("scan", "fresh"):
            return read_all(self.log, self.offset)
        frames = self.log.follow(self.offset, columns=("offset", "value"), timeout_ms=0, durable=self.level == "durable")
        rows = [row for frame in frames for row in zip(*frame.to_pydict().values(), strict=True)]
        return [(offset, name_of(value)) for offset, value in rows]


# ---- a broker ----------------------------------------------------------------------------------------------------------------


class Broker(Actor):
    """A Kafka broker between two lives of pylog: it cuts a torn tail, appends, rolls, compacts, under a leader epoch of its own.

    It is alone, and syncs whatever it does. All of its work is one step, without points.
    """

    def steps(self) -> Iterator[Callable[[], None]]:
        yield self.work

    def work(self) -> None:
        names = [parse(entry.name) for entry in self.fs.list(DIRECTORY)]
        bases = sorted(found.offset for found in names if found is not None and found[1:] == (LOG, "")) or [self._make(0)]
        self._first_base = bases[0]
        self._use(bases[-1])
        self._recover()
        for operation, *arguments in self._operations:
            self.machine.remark(f"broker: {operation} {' '.join(arguments)}")
            getattr(self, operation)(*arguments)
        self._replace(f"{ROOT}/{RECOVERY_POINT}", format_offsets({TopicPartition(TOPIC, 0): self._end}))
        own = EpochEntry(BROKER_EPOCH, self._began)
        write_epochs(self.fs, DIRECTORY, [EpochEntry(0, 0), own] if self._began else [own])

    def append(self, *names: str) -> None:
        for name in names:
            attempt = self.ledger.begin((name,), soft=False)
            self._file.write(memoryview(batch_of(name, self._end)), self._file.size())
            self._file.sync()
            self.ledger.acknowledge(attempt, self._end)
            self._end += 1

    def roll(self) -> None:
        self._use(self._make(self._end))

    def compact(self) -> None:
        """Writes the first segment again, under its name and without its first record."""
        content = self._content(self._first_base)
        found = list(batches(content))
        if self._first_base != self._base and len(found) > 1:
            self._replace(path_of(self._first_base), content[found[0][1] :])
            self.ledger.compacted(self._first_base + 1)

    def refetch(self) -> None:
        """Drops the last segment and gets it again from another broker, which has its first record only: a new file."""
        content = self._content(self._base)
        name, size = next(batches(content), ("", 0))
        self._end = self._began = self._base + bool(name)
        cut = self.ledger.begin_cut(self._end)
        self._replace(path_of(self._base), content[:size])
        self.ledger.end_cut(cut)
        self._use(self._base)

    def stop(self) -> None:
        """Leaves the marker of a clean shutdown."""
        self._replace(f"{ROOT}/{CLEAN_SHUTDOWN}", NEW_MARKER)

    # ---- files ---------------------------------------------------------------------------------------------------------------

    def _make(self, base: int) -> int:
        self.fs.create(path_of(base)).close()
        self.fs.sync_directory(DIRECTORY)
        return base

    def _use(self, base: int) -> None:
        self._base, self._file = base, self.fs.open(path_of(base), write=True)

    def _content(self, base: int) -> bytes:
        return self.fs.read(path_of(base), 1 << 20) or b""

    def _recover(self) -> None:
        found = list(batches(self._content(self._base)))
        self._file.truncate(found[-1][1] if found else 0)
        self._file.sync()
        self._end = self._began = self._base + len(found)
        records = [(self._base + number, name) for number, (name, _) in enumerate(found)]
        self.ledger.load(records, self._end, self.ledger.tick())

    def _replace(self, path: str, data: bytes) -> None:
        file = self.fs.create(path + ".broker")
        file.write(memoryview(data), 0)
        file.sync()
        self.fs.rename(path + ".broker", path)
        self.fs.sync_directory(path.rpartition("/")[0])


def path_of(base: int) -> str:
    return f"{DIRECTORY}/{file_name(base, LOG)}"


def batches(data: bytes) -> Iterator[tuple[str, int]]:
    """The records of a file up to the first bytes that are no batch, each with the position behind it."""
    position = 0
    while position + HEADER_SIZE < len(data):
        end = position + LOG_OVERHEAD + int.from_bytes(data[position + 8 : position + LOG_OVERHEAD], "big")
        batch = data[position:end]
        whole = position + HEADER_SIZE < end <= len(data)
        if not whole or crc32c(batch[ATTRIBUTES_AT:]) != int.from_bytes(batch[CRC_AT : CRC_AT + 4], "big"):
            return
        size = SMALL_BYTES if len(batch) < VALUE_BYTES else VALUE_BYTES
        yield name_of(batch[-1 - size : -1]), end
        position = end


@functools.cache
def batch_of(name: str, offset: int) -> bytes:
    """A broker's batch of one record."""
    rows = rows_from_records([None], [value_of(name)], [NOW_MS], None, NOW_MS)
    return b"".join(bytes(piece.data) for piece in BatchEncoder().encode(rows, offset, BROKER_EPOCH))
