"""The members file: beside the offsets of some groups, a slot for each living member of them.

A member holds the lock of its slot's first byte for as long as it lives, through a descriptor of its own: the system lets go of
it when the process dies. What stands in the slot says which member that is, and counts up as it runs and polls. The file is
derived: it is never synced, and after a restart of the system no byte is locked.
"""

from __future__ import annotations

import contextlib
import struct
import threading
from collections.abc import Callable
from typing import Final

from pylog import limits
from pylog.errors import StorageFailedError
from pylog.fs import File, FileSystem
from pylog.groups.liveness import MemberSlot
from pylog.record.checksum import crc32c

MEMBERS_FILE: Final = "group-members"
SLOT_BYTES: Final = 128
_LAYOUT: Final = struct.Struct("<IHHQQQQ64s")  # checksum, version, size of the id, two limits in ms, beats, polls, the id
_CHECKSUM: Final = struct.Struct("<I")
_VERSION: Final = 1
_TRIES: Final = 3  # to read a slot that is just being written


class MembersFile:
    """One member's view of the file, and its slot in it. `beat` may be called from another thread.

    Args:
        fs: where it is.
        path: made if it is missing.

    Raises:
        StorageFailedError: it cannot be opened.
    """

    def __init__(self, fs: FileSystem, path: str) -> None:
        self._path = path
        self._guard = threading.Lock()
        self._locks = fs.open_locks(path)
        try:
            self._file: File = fs.open(path, write=True)
        except BaseException:
            self._locks.close()
            raise
        self._own: int | None = None
        self._slot = MemberSlot(locked=True)

    # ---- the others ----------------------------------------------------------------------------------------------------------

    def slots(self) -> list[MemberSlot]:
        """All slots as they are now. Cost: one read, and 1 µs for each."""
        count = min(self._file.size() // SLOT_BYTES, limits.MEMBER_SLOTS)
        data = self._read(0, count)
        return [self._looked_at(number, data[number * SLOT_BYTES : (number + 1) * SLOT_BYTES]) for number in range(count)]

    def _looked_at(self, number: int, data: bytes) -> MemberSlot:
        locked = number == self._own or self._locks.is_locked(number * SLOT_BYTES, 1)
        found = parse_slot(data, locked=locked)
        for _ in range(_TRIES if locked else 0):
            if found.member_id is not None:
                break
            found = parse_slot(self._read(number, 1), locked=True)
        return found

    def _read(self, first: int, count: int) -> bytes:
        return self._file.read(count * SLOT_BYTES, first * SLOT_BYTES)

    # ---- one's own -----------------------------------------------------------------------------------------------------------

    def claim(self, member_id: str, session_timeout_ms: int, max_poll_interval_ms: int, is_member: Callable[[str], bool]) -> None:
        """Takes a slot: first its lock, then what it says. Only then the member may join, or others would find it dead.

        Args:
            member_id: who takes it.
            session_timeout_ms, max_poll_interval_ms: for how long its counters may stand still.
            is_member: whether an id is that of a member of any group. The slot of one is left alone until it was put out.

        Raises:
            StorageFailedError: the slot cannot be written, or there is none left.
        """
        known = self.slots()  # behind them others may appear at the same time: then the next one
        for number in range(limits.MEMBER_SLOTS):
            if (number >= len(known) or not known[number].locked) and self._try_take(number, is_member):
                with self._guard:
                    self._own, self._slot = number, MemberSlot(True, member_id, session_timeout_ms, max_poll_interval_ms)
                    self._write()
                return
        raise StorageFailedError(f"{self._path} has no free slot for another member; close consumers", path=self._path)

    def _try_take(self, number: int, is_member: Callable[[str], bool]) -> bool:
        """Takes the lock of a slot, unless its last member is still to be put out."""
        if not self._locks.try_lock(number * SLOT_BYTES, 1, exclusive=True):
            return False
        last = parse_slot(self._read(number, 1), locked=True).member_id
        if last is None or not is_member(last):
            return True
        self._locks.unlock(number * SLOT_BYTES, 1)
        return False

    def beat(self, *, polled: bool = False) -> None:
        """Shows that the process runs, and that it polls. Cost: one write of a hundred bytes."""
        with self._guard:
            if self._own is not None:
                self._slot = self._slot._replace(beats=self._slot.beats + 1, polls=self._slot.polls + polled)
                self._write()

    def _write(self) -> None:
        assert self._own is not None
        self._file.write(memoryview(format_slot(self._slot)), self._own * SLOT_BYTES)

    def close(self) -> None:
        """Lets go of the slot, and closes the file."""
        with self._guard:
            self._own = None
            self._locks.close()
            with contextlib.suppress(StorageFailedError):  # nothing in it has to last
                self._file.close()


def slots_of(fs: FileSystem, path: str) -> list[MemberSlot]:
    """The slots of a file, for who is no member; none of one that nobody has made.

    Raises:
        StorageFailedError: it cannot be read.
    """
    if not fs.exists(path):
        return []
    file = MembersFile(fs, path)
    try:
        return file.slots()
    finally:
        file.close()


def format_slot(slot: MemberSlot) -> bytes:
    """The bytes of a slot."""
    assert slot.member_id is not None
    name = slot.member_id.encode()
    rest = (slot.session_timeout_ms, slot.max_poll_interval_ms, slot.beats, slot.polls, name)
    data = _LAYOUT.pack(0, _VERSION, len(name), *rest)
    return (_CHECKSUM.pack(crc32c(data[_CHECKSUM.size :])) + data[_CHECKSUM.size :]).ljust(SLOT_BYTES, b"\0")


def parse_slot(data: bytes, *, locked: bool) -> MemberSlot:
    """A slot from its bytes; without a name if they are not what was written.

    >>> slot = MemberSlot(True, "m", 45_000, 300_000, 7, 3)
    >>> parse_slot(format_slot(slot), locked=True) == slot, parse_slot(bytes(128), locked=False)
    (True, MemberSlot(locked=False, member_id=None, session_timeout_ms=0, max_poll_interval_ms=0, beats=0, polls=0))
    """
    if len(data) < _LAYOUT.size:
        return MemberSlot(locked)
    checksum, version, size, session_ms, poll_ms, beats, polls, name = _LAYOUT.unpack_from(data)
    if version != _VERSION or size > len(name) or checksum != crc32c(data[_CHECKSUM.size : _LAYOUT.size]):
        return MemberSlot(locked)
    try:
        member_id = name[:size].decode()
    except UnicodeDecodeError:
        return MemberSlot(locked)
    return MemberSlot(locked, member_id, session_ms, poll_ms, beats, polls)
