"""Damage to each byte of a small log, and whether reading keeps its promise: no altered record, no lost neighbour.

A specimen is a closed log directory as values: the bytes of its files, and what was written into them. It lies on a disk in
memory, so that a case costs no copy of a directory.
"""

from __future__ import annotations

import random
import signal
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa

import pylog
from pylog.clock import ManualClock
from pylog.record.batch import scan_batches
from pylog.record.format import BASE_OFFSET, HEADER_SIZE, LAST_OFFSET, POSITION, SIZE
from pylog.record.types import OffsetAndTimestamp
from pylog.testing import MemoryFileSystem
from pylog.testing.disk import ROOT as DISK_ROOT
from pylog.testing.disk import FileNode, Image
from pylog.testing.memory import Operation
from support.campaign.processes import seeded, until

ROOT: Final = "/specimen"
TOPIC: Final = "t"
PARTITION: Final = f"{ROOT}/{TOPIC}-0"
CATALOG: Final = f"{ROOT}/pylog.json"  # topics and their settings: nothing can take its place, so it may be refused
NOW: Final = 1_700_000_000_000
SECTOR: Final = 512
COLUMNS: Final = ("offset", "timestamp", "timestamp_type", "key", "value", "headers", "leader_epoch")
LEADER_EPOCH_AT: Final = 12
PATIENCE_S: Final = 10  # for one case: it takes a millisecond

# Two sectors that changed places, or an old one, can hold as many whole good batches as stand where they should. Nobody can tell
# by their bytes which are in place, so reading may go on behind some that are; it says so, and never hands out a wrong record.
MISPLACED: Final = ("swap", "past")
_DRAWN: Final = 100  # damages to each file of a specimen, in long runs

# ---- specimens ---------------------------------------------------------------------------------------------------------------


class Place(NamedTuple):
    """Where a batch stands, and the offsets that it holds: `first` inclusive, `end` exclusive."""

    path: str
    position: int
    size: int
    first: int
    end: int

    def has_in_epoch(self, position: int) -> bool:
        """Whether a byte of its file is one of its leader epoch."""
        return LEADER_EPOCH_AT <= position - self.position < LEADER_EPOCH_AT + 4

    def has_in_payload(self, position: int) -> bool:
        """Whether a byte of its file lies behind its header."""
        return HEADER_SIZE <= position - self.position < self.size


class Specimen(NamedTuple):
    """A closed log directory as values.

    Attributes:
        image: the disk that it is on.
        files: the bytes of each file, by path.
        older: the files as they were half way.
        past: the files of another log of the same layout, as if it had had the same blocks before.
        rows: the records; row n has offset n.
        past_rows: those of the other log.
        records: the same as `rows`.
        searches: times, and what searches for them answer.
        batches: all batches, in order.
    """

    image: Image
    files: Mapping[str, bytes]
    older: Mapping[str, bytes]
    past: Mapping[str, bytes]
    rows: pa.RecordBatch
    past_rows: pa.RecordBatch
    records: list[pylog.Record]
    searches: list[tuple[int, OffsetAndTimestamp | None]]
    batches: tuple[Place, ...]

    @property
    def logs(self) -> list[str]:
        """The paths of its segments."""
        return sorted(path for path in self.files if path.endswith(".log"))

    def without(self, *suffixes: str) -> Specimen:
        """The same without the files that end so."""
        directories = {
            number: {name: child for name, child in names.items() if not name.endswith(suffixes)}
            for number, names in self.image.directories.items()
        }
        image = self.image._replace(directories=directories)
        return self._replace(image=image, files=files_of(image))

    def damaged(self, path: str, data: bytes) -> Image:
        """The disk with other bytes in one file."""
        return self.image._replace(files={**self.image.files, numbers_of(self.image)[path]: data})

    def is_in_an_epoch(self, damage: Damage) -> bool:
        """Whether a bit of a leader epoch is flipped."""
        return damage.kind == "flip" and any(place.has_in_epoch(damage.at >> 3) for place in self.places_of(damage.path))

    def is_in_a_payload(self, damage: Damage) -> bool:
        """Whether a bit behind a batch's header is flipped."""
        return damage.kind == "flip" and any(place.has_in_payload(damage.at >> 3) for place in self.places_of(damage.path))

    def places_of(self, path: str) -> list[Place]:
        """The batches in a file."""
        return [place for place in self.batches if place.path == path]


def make_specimen(codecs: Sequence[str]) -> Specimen:
    """A log of some 7 KB in three segments: null keys and values, headers, batches of one record and of several.

    Args:
        codecs: of the batches, in turn.
    """
    older, image = _written(codecs, b"present")
    _, past = _written(codecs, b"before!")
    files = files_of(image)
    with pylog.open(ROOT, "r", fs=MemoryFileSystem(image=image)) as store:
        log = store.log(TOPIC)
        rows, records = _rows(log), list(log.records())
        times = sorted({record.timestamp + late for record in records for late in (0, 1)})
        searches = [(time, log.offset_for_timestamp(time)) for time in times]
    with pylog.open(ROOT, "r", fs=MemoryFileSystem(image=past)) as store:
        past_rows = _rows(store.log(TOPIC))
    return Specimen(image, files, files_of(older), files_of(past), rows, past_rows, records, searches, _places(files))


def _written(codecs: Sequence[str], life: bytes) -> list[Image]:
    """A log half way and at its end."""
    fs, images = MemoryFileSystem(clock=ManualClock(NOW)), []
    for half in (range(14), range(14, 28)):
        with pylog.open(ROOT, fs=fs, clock=fs.clock) as store:
            if not images:
                store.create_topic(TOPIC, segment_bytes=2560, index_interval_bytes=256)
            for number in half:
                store.log(TOPIC).append_many(_batch(number, life), compression=codecs[number % len(codecs)])
        images.append(fs.image())
    return images


def _batch(number: int, life: bytes) -> list[Any]:
    """The records of one batch; those of another life differ in nothing but bytes of keys and values."""
    made = []
    for which in range(number * 5, number * 5 + 1 + number * 2 % 5):
        key = None if which % 4 == 0 else b"%b-%d" % (life[:3], which)
        value = None if which % 9 == 8 else (b"%b%d." % (life, which % 7)) * (which * 3 % 11)
        headers = [("trace", b"%d" % which), ("empty", None)][: which % 3]
        made.append((key, value, headers, NOW + which * 7 % 50))
    return made


def files_of(image: Image) -> dict[str, bytes]:
    """The bytes of each file of a disk, by path."""
    return {path: image.files[number] for path, number in numbers_of(image).items()}


def numbers_of(image: Image, directory: int = DISK_ROOT, prefix: str = "") -> dict[str, int]:
    """The number of each file of a disk, by path."""
    found: dict[str, int] = {}
    for name, number in sorted(image.directories[directory].items()):
        path = f"{prefix}/{name}"
        found |= numbers_of(image, number, path) if number in image.directories else {path: number}
    return found


def _rows(log: pylog.Log) -> pa.RecordBatch:
    return pa.Table.from_batches(log.scan(columns=COLUMNS)).combine_chunks().to_batches()[0]


def _places(files: Mapping[str, bytes]) -> tuple[Place, ...]:
    made = []
    for path in sorted(path for path in files if path.endswith(".log")):
        table = scan_batches(np.frombuffer(files[path], np.uint8)).table
        for position, size, first, last in table[[POSITION, SIZE, BASE_OFFSET, LAST_OFFSET]].T.tolist():
            made.append(Place(path, position, size, first, last + 1))
    return tuple(made)


# ---- damage ------------------------------------------------------------------------------------------------------------------


class Damage(NamedTuple):
    """One thing that happens to one file; printed, it is what repeats a case.

    Attributes:
        path: the file.
        kind: flip (a bit), cut (to a size), zeros, ones, noise, stale, past (a sector), copy, swap (two sectors).
        at: the bit, the size, or the sector's number.
        other: the other sector, or the noise's seed.
    """

    path: str
    kind: str
    at: int
    other: int = 0

    def applied(self, specimen: Specimen) -> bytes:
        """The file after it."""
        data = bytearray(specimen.files[self.path])
        if self.kind == "flip":
            data[self.at >> 3] ^= 1 << (self.at & 7)
            return bytes(data)
        if self.kind == "cut":
            return bytes(data[: self.at])
        here, size = slice(self.at * SECTOR, (self.at + 1) * SECTOR), len(data[self.at * SECTOR : (self.at + 1) * SECTOR])
        old = bytes(data[here])
        data[here] = self._sector(specimen, size)
        if self.kind == "swap":
            there = slice(self.other * SECTOR, self.other * SECTOR + size)
            data[there] = old[: len(data[there])]
        return bytes(data)

    def _sector(self, specimen: Specimen, size: int) -> bytes:
        """What the disk returns for the sector."""
        here = slice(self.at * SECTOR, self.at * SECTOR + size)
        there = slice(self.other * SECTOR, self.other * SECTOR + size)
        found = {
            "zeros": lambda: b"",
            "ones": lambda: b"\xff" * size,
            "noise": lambda: random.Random(self.other).randbytes(size),
            "stale": lambda: specimen.older.get(self.path, b"")[here],
            "past": lambda: specimen.past[self.path][here],
            "copy": lambda: specimen.files[self.path][there],
            "swap": lambda: specimen.files[self.path][there],
        }[self.kind]()
        return found + bytes(size - len(found))


def flips(specimen: Specimen, path: str) -> list[Damage]:
    """Every bit of a file."""
    return [Damage(path, "flip", bit) for bit in range(8 * len(specimen.files[path]))]


def cuts(specimen: Specimen, path: str) -> list[Damage]:
    """Every size that is less."""
    return [Damage(path, "cut", size) for size in range(len(specimen.files[path]))]


def sectors(specimen: Specimen, path: str) -> list[Damage]:
    """All that can happen to whole sectors."""
    count = -(-len(specimen.files[path]) // SECTOR)
    alone = [Damage(path, kind, at) for at in range(count) for kind in ("zeros", "ones", "stale", "past")]
    noise = [Damage(path, "noise", at, seed) for at in range(count) for seed in range(8)]
    pairs = [(at, other) for at in range(count) for other in range(count) if at != other]
    return [
        *(damage for damage in alone if damage.kind != "past" or path in specimen.past),
        *noise,
        *(Damage(path, "copy", at, other) for at, other in pairs),
        *(Damage(path, "swap", at, other) for at, other in pairs if at < other),
    ]


# ---- reading -----------------------------------------------------------------------------------------------------------------


class Reading(NamedTuple):
    """What reading from `start` to before `end` gave.

    Attributes:
        start, end: offsets.
        frames: the records.
        gaps: offsets, from a first to before an end, that errors said are not readable.
        log_end: the log's end as it was opened.
        told: whether opening the log had something to say.
    """

    start: int
    end: int
    frames: list[pa.RecordBatch]
    gaps: list[tuple[int, int]]
    log_end: int
    told: bool


def read_all(log: pylog.Log, start: int, end: int) -> Reading:
    """Reads, going on behind each error where it says."""
    reading = Reading(start, end, [], [], log.end_offset, bool(log.recovery_report))
    at: int | None = max(start, log.start_offset)
    stop = min(end, log.end_offset)
    while at is not None and at < stop:
        try:
            for frame in log.scan(at, stop, columns=COLUMNS):
                reading.frames.append(frame)
            break
        except pylog.CorruptionError as error:
            reading.gaps.append(_gap(error, at, stop))
            at = error.next_offset
    return reading


def _gap(error: pylog.CorruptionError, start: int, stop: int) -> tuple[int, int]:
    """The offsets that an error says are not readable; it must name its place, and lead onwards."""
    assert None not in (error.path, error.position, error.offset), f"an error without a place: {error}"
    assert error.next_offset is None or error.next_offset > start, f"from {start} it goes on at {error.next_offset}: {error}"
    return error.offset or 0, stop if error.next_offset is None else error.next_offset


class Judge:
    """Says which promises a reading of a damaged specimen broke.

    Args:
        specimen: as it was before.
    """

    def __init__(self, specimen: Specimen) -> None:
        self._specimen = specimen
        self._count = specimen.rows.num_rows

    def complaints(self, damage: Damage, data: bytes, reading: Reading) -> Iterator[str]:
        """Every broken promise, as a sentence.

        Args:
            damage, data: what happened to a file, and its bytes after that.
            reading: what was read then.
        """
        got = np.zeros(self._count, bool)
        for frame in reading.frames:
            yield from self._altered(frame, got, damage)
        missing = ~got
        missing[: reading.start] = missing[reading.end :] = False
        lost = missing & self._intact(damage.path, data)
        if lost.any() and damage.kind not in MISPLACED:
            yield f"lost, though their batches stand as they were written: {_shown(lost)}"
        for first, end in reading.gaps:
            missing[first:end] = False
        if missing.any() and not (reading.told and missing[reading.log_end :].sum() == missing.sum()):
            yield f"missing, and no error says so: {_shown(missing)}"

    def _altered(self, frame: pa.RecordBatch, got: Any, damage: Damage) -> Iterator[str]:
        offsets = frame.column(0).to_numpy()
        if offsets[0] < 0 or offsets.max() >= self._count:
            yield f"offsets that were never written: {offsets.tolist()}"
            return
        if (np.diff(offsets) <= 0).any() or got[offsets].any():
            yield f"offsets out of order, or twice: {offsets.tolist()}"
        got[offsets] = True
        expected = self._written(self._specimen.rows, offsets)
        if damage.path == self._specimen.logs[-1] and self._specimen.is_in_an_epoch(damage):
            frame, expected = (each.drop_columns("leader_epoch") for each in (frame, expected))  # `verify` finds it
        if frame != expected and not (damage.kind == "past" and self._is_of_either_life(frame, offsets)):
            yield f"altered among the records of offsets {offsets[0]} to {offsets[-1]}"

    @staticmethod
    def _written(rows: pa.RecordBatch, offsets: Any) -> pa.RecordBatch:
        first, count = int(offsets[0]), len(offsets)
        return rows.slice(first, count) if int(offsets[-1]) - first + 1 == count else rows.take(pa.array(offsets))

    def _is_of_either_life(self, frame: pa.RecordBatch, offsets: Any) -> bool:
        """Whether each row is this log's, or of the log that had its blocks before, in whole batches with good checksums."""
        lives = [self._written(rows, offsets) for rows in (self._specimen.rows, self._specimen.past_rows)]
        return all(any(frame.slice(row, 1) == life.slice(row, 1) for life in lives) for row in range(len(offsets)))

    def _intact(self, path: str, data: bytes) -> Any:
        """Which offsets' batches stand where they stood, byte for byte."""
        found = np.ones(self._count, bool)
        before = self._specimen.files[path]
        for place in self._specimen.places_of(path):
            span = slice(place.position, place.position + place.size)
            if data[span] != before[span]:
                found[place.first : place.end] = False
        return found


def _shown(offsets: Any) -> str:
    return str(np.flatnonzero(offsets).tolist())


@contextmanager
def patience(seconds: float) -> Iterator[None]:
    """Raises when what is done inside takes longer."""

    def expired(*_: object) -> None:
        raise AssertionError(f"not done after {seconds} s")

    before = signal.signal(signal.SIGALRM, expired)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


class ReadersFileSystem(MemoryFileSystem):
    """A disk that readers may not change; what happens to its files comes from outside."""

    def admit(self, operation: Operation) -> bool:
        raise AssertionError(f"a reader changes something: {operation}")

    def put(self, path: str, data: bytes) -> None:
        """Gives a file other bytes, as if they had always been there."""
        node = self.disk.node(path)
        assert isinstance(node, FileNode)
        node.truncate(0)
        node.write(data, 0)
        node.sync()


class Laboratory:
    """Damages a specimen, one way after the other, and reads it each time.

    Most of what a case would cost is spared where that is sound. Opening a log reads neither its sealed segments nor what is
    behind the headers in the active one, so a bit is flipped there under a log that is open. Reading a segment asks for nothing
    but the ends of its neighbours, so it is read up to those; a bit behind a header is the affair of that batch's checksum
    alone, so the batches around are read. One case in `FRESH` is opened anew and read from end to end all the same.

    Args:
        specimen: what is damaged.
    """

    FRESH: Final = 16
    REOPEN: Final = 1000  # cases with one store: it remembers what it found

    def __init__(self, specimen: Specimen) -> None:
        self._specimen = specimen
        self._judge = Judge(specimen)
        self._sealed = specimen.logs[:-1]
        self._count = 0
        self._open()

    def _open(self) -> None:
        self._fs = ReadersFileSystem(image=self._specimen.image)
        self._damaged: str | None = None
        self._store = pylog.open(ROOT, "r", fs=self._fs, clock=self._fs.clock)
        self._log = self._store.log(TOPIC)
        read_all(self._log, 0, self._specimen.rows.num_rows)  # opens all of its segments

    def _put(self, path: str, data: bytes) -> None:
        """Damages a file, after undoing the last damage."""
        if self._damaged is not None:
            self._fs.put(self._damaged, self._specimen.files[self._damaged])
        self._damaged = path
        self._fs.put(path, data)

    def complaints(self, damages: Iterable[Damage]) -> list[str]:
        """Each broken promise, with the damage that repeats it."""
        return [f"{damage}: {told}" for damage in damages for told in self._watched(damage)]

    def _watched(self, damage: Damage) -> list[str]:
        """The broken promises of one case, bounded in time. Errors that are not pylog's are raised."""
        try:
            with patience(PATIENCE_S):
                return list(self._of(damage))
        except pylog.PylogError as error:
            return [] if damage.path == CATALOG else [repr(error)]
        except AssertionError as error:
            return [repr(error)]
        except Exception as error:
            error.add_note(str(damage))
            raise

    def _of(self, damage: Damage) -> Iterator[str]:
        data = damage.applied(self._specimen)
        self._count += 1
        if self._count % self.REOPEN == 0:
            self._open()
        self._put(damage.path, data)
        fresh = self._count % self.FRESH == 0
        log = self._opened(damage, fresh=fresh)
        start, end = (0, self._specimen.rows.num_rows) if fresh else self._around(damage)
        yield from self._judge.complaints(damage, data, read_all(log, start, end))
        if not damage.path.endswith(".log"):
            yield from self._wrong_answers(log)

    def _opened(self, damage: Damage, *, fresh: bool) -> pylog.Log:
        """The log as far as it must be opened anew to notice what has happened."""
        if not damage.path.startswith(PARTITION):
            return pylog.open(ROOT, "r", fs=self._fs, clock=self._fs.clock).log(TOPIC)
        unread = damage.path in self._sealed or self._specimen.is_in_a_payload(damage)
        return self._log if unread and damage.kind == "flip" and not fresh else self._store.log(TOPIC)

    def _around(self, damage: Damage) -> tuple[int, int]:
        """The offsets of what may be harmed, with the batch before it and the one behind it."""
        batches = self._specimen.batches
        segment = damage.path.rpartition(".")[0] + ".log"
        harmed = [number for number, place in enumerate(batches) if place.path == segment] or range(len(batches))
        if damage.kind == "flip":
            harmed = [number for number in harmed if batches[number].has_in_payload(damage.at >> 3)] or harmed
        return batches[max(0, harmed[0] - 1)].first, batches[min(harmed[-1] + 1, len(batches) - 1)].end

    def _wrong_answers(self, log: pylog.Log) -> Iterator[str]:
        """Searches that do not find what they found before the damage, in a log whose records are undamaged."""
        for record in self._specimen.records[self._count % 29 :: 29]:
            if log.read(record.offset) != record:
                yield f"reading offset {record.offset} gave something else"
        some = self._specimen.records[self._count % 5 :: 5]
        if log.read_many([record.offset for record in some])["value"].to_pylist() != [record.value for record in some]:
            yield "reading many offsets gave something else"
        for timestamp, answer in self._specimen.searches[self._count % 19 :: 19]:
            if log.offset_for_timestamp(timestamp) != answer:
                yield f"searching for time {timestamp} gave something else than {answer}"


def complaints_of_writing(specimen: Specimen, damage: Damage, boots: int) -> Iterator[str]:
    """The broken promises of opening for writing, appending and reading again, in the same boot (1) or after a restart (2)."""
    damaged = damage.applied(specimen)
    fs = MemoryFileSystem(clock=ManualClock(NOW), image=specimen.damaged(damage.path, damaged), boots=boots)
    before, count = files_of(fs.image()), specimen.rows.num_rows
    with patience(PATIENCE_S), pylog.open(ROOT, fs=fs, clock=fs.clock) as store, suppress(pylog.CorruptionError):
        offset = store.log(TOPIC).append(b"behind the damage")
        if offset != count:
            yield f"{damage}: offset {offset} is given to another record; the log had {count}"
    after = files_of(fs.image())
    for path in specimen.logs:
        if not after.get(path, b"").startswith(before[path]):
            yield f"{damage}: {path} is not what it was, though all of it was durable"
    with pylog.open(ROOT, "r", fs=fs, clock=fs.clock) as store:
        for told in Judge(specimen).complaints(damage, damaged, read_all(store.log(TOPIC), 0, count)):
            yield f"{damage}, opened for writing: {told}"


# ---- for long runs -------------------------------------------------------------------------------------------------------------


def run(seed: int, seconds: float) -> dict[str, Any]:
    """Damages logs with all sorts of codecs at random, until the time is over.

    Args:
        seed: decides what happens.
        seconds: how long.

    Returns:
        How many cases there were, and as violations what was found, each with the damage that repeats it.
    """
    rng = seeded(seed)
    cases, violations = 0, []
    for _ in until(None, seconds):
        codec = rng.choice(("none", "gzip", "snappy", "lz4", "zstd"))
        specimen = make_specimen([codec])
        laboratory = Laboratory(specimen)
        for path in specimen.files:
            every = [*flips(specimen, path), *cuts(specimen, path), *sectors(specimen, path)]
            drawn = rng.sample(every, min(len(every), _DRAWN))
            cases += len(drawn)
            violations += [f"make_specimen([{codec!r}]): {told}" for told in laboratory.complaints(drawn)]
    return {"seed": seed, "cases": cases, "violations": violations}
