"""Enumerates the states in which a crash can leave a recorded disk (reliability 8.2).

A completed sync fixes the operations that it covers. The other operations are *volatile*: each of them may have reached the disk
or not. All subsets are tried if there are few volatile operations. Otherwise these are tried: each prefix, each operation
missing, each alone, each pair missing, and random subsets.

A volatile write may also have reached the disk in part. It is cut at each 512 bytes, and at each of its last 64 bytes. The rest
is missing, zeros, noise, or the earlier content of the disk.

A `Crash` describes a state. It can be printed and parsed for a replay: the same `Crash` of the same recording gives the same
state.
"""

from __future__ import annotations

import hashlib
import itertools
import random
import re
from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Final, NamedTuple, TypeVar

from pylog.clock import Clock
from pylog.errors import InvalidArgumentError
from pylog.testing.disk import ROOT, Image
from pylog.testing.memory import MAKE_DIRECTORY, SYNC, SYNC_DIRECTORY, TRUNCATE, WRITE, Operation
from pylog.testing.recording import Recording, RecordingFileSystem, Without

_T = TypeVar("_T")

SECTOR: Final = 512
FINE_CUTS: Final = 64  # the last bytes of a write, at each of which it is cut
FEW: Final = 8  # the largest number of volatile operations with all subsets tried
RANDOM_SUBSETS: Final = 64
FILLINGS: Final = ("absent", "zeros", "random", "stale")


class PartialWrite(NamedTuple):
    """A write that reached the disk in part.

    Attributes:
        operation: number of the operation.
        size: number of its bytes that reached the disk.
        filling: content in place of the other bytes: "absent", "zeros", "random" or "stale".
    """

    operation: int
    size: int
    filling: str


class Crash(NamedTuple):
    """A crash.

    Attributes:
        after: number of operations before the crash.
        kept: numbers of the volatile operations that reached the disk.
        cut: one of them that reached the disk in part; None for none.
        power: True for a power loss; False if only the process died, which loses no operation.

    >>> str(Crash(7, (3, 6), PartialWrite(6, 57, "zeros")))
    'after=7 kept=3,6 cut=6:57:zeros'
    >>> Crash.parse("after=7 kept=3,6 cut=6:57:zeros")
    Crash(after=7, kept=(3, 6), cut=PartialWrite(operation=6, size=57, filling='zeros'), power=True)
    """

    after: int
    kept: tuple[int, ...]
    cut: PartialWrite | None = None
    power: bool = True

    def __str__(self) -> str:
        cut = "" if self.cut is None else " cut={}:{}:{}".format(*self.cut)
        return f"after={self.after} kept={','.join(map(str, self.kept)) or '-'}{cut}{'' if self.power else ' process'}"

    @classmethod
    def parse(cls, text: str) -> Crash:
        """Parses the text of a crash.

        Raises:
            InvalidArgumentError: the text does not describe a crash.
        """
        found = re.fullmatch(r"after=(\d+) kept=([\d,]+|-)(?: cut=(\d+):(\d+):(\w+))?( process)?", text.strip())
        if found is None:
            raise InvalidArgumentError(f"{text!r} does not describe a crash")
        after, kept, operation, size, filling, process = found.groups()
        cut = None if operation is None else PartialWrite(int(operation), int(size), filling)
        return cls(int(after), () if kept == "-" else tuple(map(int, kept.split(","))), cut, process is None)


class _FileContent(NamedTuple):
    """The content of a file and its hash."""

    data: bytes
    digest: bytes


class _DirectoryContent(NamedTuple):
    """The names in a directory and their hash."""

    names: dict[str, int]
    digest: bytes


def _bytes(data: bytes) -> _FileContent:
    return _FileContent(data, hashlib.blake2b(data, digest_size=16).digest())


def _names(names: dict[str, int]) -> _DirectoryContent:
    entries = "\0".join(f"{name}/{number}" for name, number in sorted(names.items()))
    return _DirectoryContent(names, hashlib.blake2b(entries.encode(), digest_size=16).digest())


class Moment:
    """A recording up to some operation, with its fixed and volatile operations.

    Attributes:
        after: number of operations so far.
        volatile: numbers of the operations that no completed sync covers.
    """

    def __init__(self, recording: Recording) -> None:
        self.after = 0
        self.volatile: list[int] = []
        self._recording = recording
        self._files = {number: _bytes(data) for number, data in recording.start.files.items()}
        self._directories = {number: _names(names) for number, names in recording.start.directories.items()}
        self._changed: dict[tuple[object, ...], _FileContent | _DirectoryContent] = {}
        self._cuts: dict[int, list[PartialWrite]] = {}

    @classmethod
    def of(cls, recording: Recording, after: int) -> Moment:
        """Returns the moment after a number of operations. Cost: one pass over them."""
        moment = cls(recording)
        for _ in range(after):
            moment.advance()
        return moment

    def advance(self) -> None:
        """Advances by one operation."""
        operation = self._recording.operations[self.after]
        self.after += 1
        if operation.kind in (SYNC, SYNC_DIRECTORY):
            self._settle(operation)
        else:
            self.volatile.append(self.after - 1)

    def covered_by(self, number: int) -> list[int]:
        """Returns the volatile operations that a sync fixes; an empty list for other operations."""
        sync = self._recording.operations[number]
        if sync.kind not in (SYNC, SYNC_DIRECTORY):
            return []
        return [other for other in self.volatile if sync.number in self._concerned(other)]

    def _settle(self, sync: Operation) -> None:
        """Fixes the bytes of a file, or the names of a directory, that a sync covers."""
        covered = self.covered_by(self.after - 1)
        if sync.kind == SYNC:
            self._files[sync.number] = self._file(sync.number, covered, None)
        else:
            self._directories[sync.number] = self._directory(sync.number, covered)
        self.volatile = [number for number in self.volatile if number not in set(covered)]
        self._changed.clear()

    def _concerned(self, number: int) -> set[int]:
        """Returns the numbers of the files or directories that an operation changes."""
        operation = self._recording.operations[number]
        return {change.directory for change in operation.names} if operation.names else {operation.number}

    # ---- states --------------------------------------------------------------------------------------------------------------

    def state(self, crash: Crash) -> tuple[bytes, Image]:
        """Returns the disk after a crash, and a hash of it."""
        changes: dict[int, list[int]] = {}
        for number in crash.kept:
            for concerned in self._concerned(number):
                changes.setdefault(concerned, []).append(number)
        image = Image({}, {}, self._last_number, self._recording.start.links)
        parts = self._collect(image, changes, crash.cut)
        return hashlib.blake2b(b"".join(parts), digest_size=16).digest(), image

    @cached_property
    def _last_number(self) -> int:
        made = [change.number for operation in self._recording.operations for change in operation.names if change.number]
        return max([self._recording.start.last_number, *made])

    def _collect(self, image: Image, changes: dict[int, list[int]], cut: PartialWrite | None) -> list[bytes]:
        """Adds everything that can be reached from the root to an image. Returns the hashes of its parts."""
        parts, waiting = [], [ROOT]
        directories = self._directory_numbers
        while waiting:
            number = waiting.pop()
            names, digest = self._directory(number, changes.get(number, []))
            image.directories[number] = names
            parts.append(digest)
            for child in names.values():
                if child in directories:
                    waiting.append(child)
                elif child in self._recording.start.links:
                    continue
                elif child not in image.files:
                    image.files[child], digest = self._file(child, changes.get(child, []), cut)
                    parts.append(digest)
        return parts

    @cached_property
    def _directory_numbers(self) -> set[int]:
        made = {operation.number for operation in self._recording.operations if operation.kind == MAKE_DIRECTORY}
        return made | set(self._recording.start.directories)

    def _directory(self, number: int, applied: Sequence[int]) -> _DirectoryContent:
        fixed = self._directories.get(number)
        if fixed is not None and not applied:
            return fixed
        key = (number, *applied)
        if key not in self._changed:
            names = {} if fixed is None else dict(fixed.names)
            for change in (change for each in applied for change in self._recording.operations[each].names):
                if change.directory != number:
                    continue
                if change.number is None:
                    names.pop(change.name, None)
                else:
                    names[change.name] = change.number
            self._changed[key] = _names(names)
        found = self._changed[key]
        assert isinstance(found, _DirectoryContent)
        return found

    def _file(self, number: int, applied: Sequence[int], cut: PartialWrite | None) -> _FileContent:
        fixed = self._files.get(number)
        if fixed is not None and not applied:
            return fixed
        key = (number, *applied, cut if cut is not None and cut.operation in applied else None)
        if key not in self._changed:
            data = bytearray(b"" if fixed is None else fixed.data)
            for each in applied:
                self._apply(data, each, cut)
            self._changed[key] = _bytes(bytes(data))
        found = self._changed[key]
        assert isinstance(found, _FileContent)
        return found

    def _apply(self, data: bytearray, number: int, cut: PartialWrite | None) -> None:
        operation = self._recording.operations[number]
        if operation.kind == TRUNCATE:
            del data[operation.position :]
            data += bytes(operation.position - len(data))
        elif operation.kind == WRITE:
            written = operation.data if cut is None or cut.operation != number else self._torn(operation, cut)
            data += bytes(max(0, operation.position - len(data)))
            data[operation.position : operation.position + len(written)] = written

    def _torn(self, operation: Operation, cut: PartialWrite) -> bytes:
        """Returns the bytes of a partial write: its first bytes and the filling."""
        missing = len(operation.data) - cut.size
        if cut.filling == "absent":
            rest = b""
        elif cut.filling == "zeros":
            rest = bytes(missing)
        elif cut.filling == "random":
            rest = hashlib.shake_128(f"{cut.operation} {cut.size}".encode()).digest(missing)
        else:
            rest = self._stale(operation, cut)[cut.size :]
        return operation.data[: cut.size] + rest

    def _stale(self, operation: Operation, cut: PartialWrite) -> bytes:
        """Returns stale bytes of the length of a write: from an earlier write, to the same file if there was one."""
        earlier = [other for other in self._recording.operations[: cut.operation] if other.kind == WRITE]
        same = [other for other in earlier if other.number == operation.number]
        old = (same or earlier)[-1].data if earlier else b"stale"
        return (old * (len(operation.data) // max(1, len(old)) + 1))[: len(operation.data)]

    # ---- ways to crash -------------------------------------------------------------------------------------------------------

    def crashes(self, rng: random.Random, subsets: int | None = None, cuts: int | None = None) -> Iterator[Crash]:
        """Yields crashes by power loss at this moment.

        Args:
            rng: random number generator for the selection.
            subsets: maximal number of selections of whole operations, which include the empty and the full one. None for all.
            cuts: maximal number of partial writes; None for all.
        """
        nothing, everything = (), tuple(self.volatile)
        selections = list(selected(self.volatile, rng))
        for kept in dict.fromkeys([nothing, everything, *_drawn(selections, subsets, rng)]):
            yield Crash(self.after, kept)
        neighbours = {number: self._around(number) for number in self.volatile}
        torn = [(cut, kept) for number, around in neighbours.items() for cut in self.cuts(number) for kept in around]
        for cut, kept in _drawn(torn, cuts, rng):
            yield Crash(self.after, kept, cut)

    def cuts(self, number: int) -> list[PartialWrite]:
        """Returns the ways in which an operation can reach the disk in part."""
        operation = self._recording.operations[number]
        if operation.kind != WRITE:
            return []
        if number not in self._cuts:  # requested at each moment while it is volatile
            size = len(operation.data)
            at_bytes = sorted({*range(0, size, SECTOR), *range(max(0, size - FINE_CUTS), size)})
            self._cuts[number] = [PartialWrite(number, cut, filling) for cut in at_bytes for filling in FILLINGS]
        return self._cuts[number]

    def _around(self, number: int) -> list[tuple[int, ...]]:
        """Returns the selections to combine with a partial write: all operations, those before it, and none."""
        before = tuple(other for other in self.volatile if other <= number)
        return list(dict.fromkeys([tuple(self.volatile), before, (number,)]))

    def deaths(self, rng: random.Random, cuts: int | None = None) -> Iterator[Crash]:
        """Yields crashes by the death of the process: after the last call, or in the middle of it if it is a write.

        Args:
            rng: as for `crashes`.
            cuts: as for `crashes`.
        """
        everything = tuple(self.volatile)
        yield Crash(self.after, everything, None, power=False)
        last = self.after - 1
        if everything[-1:] == (last,):
            torn = [cut for cut in self.cuts(last) if cut.filling == "absent"]
            yield from (Crash(self.after, everything, cut, power=False) for cut in _drawn(torn, cuts, rng))


def restarted(
    recording: Recording, crash: Crash, *, clock: Clock | None = None, without: Without | None = None
) -> RecordingFileSystem:
    """Returns the disk after a crash, as a new process finds it. It records again.

    After a power loss, a new recording begins. After the death of a process, the old recording continues: volatile operations
    stay volatile, and a later power loss may lose them.

    Args:
        recording: the recording.
        crash: the crash.
        clock: as for `RecordingFileSystem`.
        without: as for `RecordingFileSystem`.
    """
    _, image = Moment.of(recording, crash.after).state(crash)
    boots = recording.boots + crash.power
    fs = RecordingFileSystem(clock=clock, image=image, boots=boots, without=without)
    if not crash.power:
        fs.recording = _before(recording, crash)
    return fs


def _before(recording: Recording, crash: Crash) -> Recording:
    """Returns the operations before a crash, of which it may have cut the last one, without marks."""
    before = Recording(recording.start, recording.boots)
    before.operations, before.sites = recording.operations[: crash.after], recording.sites[: crash.after]
    if crash.cut is not None:
        last = before.operations[-1]
        before.operations[-1] = last._replace(data=last.data[: crash.cut.size])
    return before


def _drawn(all_of_them: list[_T], count: int | None, rng: random.Random) -> list[_T]:
    """Returns a random sample of `count` elements; all of them if `count` is None."""
    return all_of_them if count is None or count >= len(all_of_them) else rng.sample(all_of_them, count)


def selected(numbers: Sequence[int], rng: random.Random) -> Iterator[tuple[int, ...]]:
    """Yields the selections of volatile operations to try (reliability 8.2): all selections of few operations, many of more.

    >>> list(selected([4, 7], random.Random(0)))
    [(), (4,), (7,), (4, 7)]
    """
    if len(numbers) <= FEW:
        yield from itertools.chain.from_iterable(itertools.combinations(numbers, size) for size in range(len(numbers) + 1))
        return
    chosen = [tuple(numbers[:size]) for size in range(len(numbers) + 1)]
    for missing in (1, 2):
        chosen += [tuple(sorted(set(numbers) - set(left))) for left in itertools.combinations(numbers, missing)]
    chosen += [(number,) for number in numbers]
    chosen += [tuple(number for number in numbers if rng.random() < 0.5) for _ in range(RANDOM_SUBSETS)]
    yield from dict.fromkeys(chosen)
