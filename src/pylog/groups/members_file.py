"""The members file: next to a partition of `__consumer_offsets`, a slot for each living member of the groups in it.

A member holds the lock of its slot's first byte while it lives, through its own descriptor: the system releases the lock when the
process dies. The slot holds the member's id, and counters that grow as it runs and polls. The file is derived: it is never
synced, and no byte is locked after a restart of the system.
"""

from __future__ import annotations

import contextlib
import struct
import threading
from collections.abc import Callable
from typing import Final

from pylog import limits, trace
from pylog.errors import StorageFailedError
from pylog.fs import File, FileKind, FileSystem, at_most
from pylog.groups.liveness import MemberSlot
from pylog.record.checksum import crc32c

MEMBERS_FILE: Final = "group-members"
SLOT_BYTES: Final = 128
_LAYOUT: Final = struct.Struct("<IHHQQQQ64s")  # checksum, version, size of the id, two limits in ms, beats, polls, the id
_CHECKSUM: Final = struct.Struct("<I")
_VERSION: Final = 1
_TRIES: Final = 3  # to read a slot while it is being written


class MembersFile:
    """One member's view of the file, and its slot in it. `beat` may be called from another thread.

    Args:
        fs: the file system of the file.
        path: the file, created if it is missing.

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

    # ---- all slots -----------------------------------------------------------------------------------------------------------

    def slots(self) -> list[MemberSlot]:
        """Returns all slots. Cost: one read, and 1 µs for each slot."""
        count = min(self._file.size() // SLOT_BYTES, limits.MEMBER_SLOTS)
        data = self._read(0, count)
        return [self._read_slot(number, data[number * SLOT_BYTES : (number + 1) * SLOT_BYTES]) for number in range(count)]

    def _read_slot(self, number: int, data: bytes) -> MemberSlot:
        locked = number == self._own or self._locks.is_locked(number * SLOT_BYTES, 1)
        found = SLOTS.parsed(data, self._path, locked=locked)
        for _ in range(_TRIES if locked else 0):
            if found.member_id is not None:
                break
            found = SLOTS.parsed(self._read(number, 1), self._path, locked=True)
        return found

    def _read(self, first: int, count: int) -> bytes:
        return self._file.read(count * SLOT_BYTES, first * SLOT_BYTES)

    # ---- its own slot -------------------------------------------------------------------------------------------------------

    def claim(self, member_id: str, session_timeout_ms: int, max_poll_interval_ms: int, is_member: Callable[[str], bool]) -> None:
        """Locks a slot, then writes it. The member may join only after this; other members would find it dead before.

        Args:
            member_id: the member.
            session_timeout_ms, max_poll_interval_ms: how long each counter may stand still.
            is_member: returns whether an id belongs to a member of any group. The slot of such a member stays until its removal.

        Raises:
            StorageFailedError: the slot cannot be written, or no slot is free.
        """
        known = self.slots()  # another process may add slots at the same time: try the next one then
        self._report_refused(known)
        for number in range(limits.MEMBER_SLOTS):
            if (number >= len(known) or not known[number].locked) and self._try_take(number, is_member):
                with self._guard:
                    self._own, self._slot = number, MemberSlot(True, member_id, session_timeout_ms, max_poll_interval_ms)
                    self._write()
                return
        raise StorageFailedError(f"{self._path} has no free slot for another member; close consumers", path=self._path)

    def _report_refused(self, known: list[MemberSlot]) -> None:
        """Logs which slots have bytes that are no member's. Such a slot counts as free, or as that of a member that joins."""
        refused = [number for number, slot in enumerate(known) if slot.member_id is None and any(self._read(number, 1))]
        if refused:
            reason = f"slots {trace.text_of(refused)} have bytes that are no member's"
            trace.line(trace.IGNORED, path=self._path, reason=reason)

    def _try_take(self, number: int, is_member: Callable[[str], bool]) -> bool:
        """Takes the lock of a slot, unless its last member has not been removed from its group yet."""
        if not self._locks.try_lock(number * SLOT_BYTES, 1, exclusive=True):
            return False
        last = SLOTS.parsed(self._read(number, 1), self._path, locked=True).member_id
        if last is None or not is_member(last):
            return True
        self._locks.unlock(number * SLOT_BYTES, 1)
        return False

    def beat(self, *, polled: bool = False) -> None:
        """Counts a heartbeat, and a poll if `polled`. Cost: one write of a hundred bytes."""
        with self._guard:
            if self._own is not None:
                self._slot = self._slot._replace(beats=self._slot.beats + 1, polls=self._slot.polls + polled)
                self._write()

    def _write(self) -> None:
        assert self._own is not None
        self._file.write(memoryview(format_slot(self._slot)), self._own * SLOT_BYTES)

    def close(self) -> None:
        """Releases the slot and closes the file."""
        with self._guard:
            self._own = None
            self._locks.close()
            with contextlib.suppress(StorageFailedError):  # nothing in the file must last
                self._file.close()


def slots_of(fs: FileSystem, path: str) -> list[MemberSlot]:
    """Returns the slots of a file, for callers that are not members; an empty list if the file does not exist.

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
    """Returns the bytes of a slot."""
    assert slot.member_id is not None
    name = slot.member_id.encode()
    rest = (slot.session_timeout_ms, slot.max_poll_interval_ms, slot.beats, slot.polls, name)
    data = _LAYOUT.pack(0, _VERSION, len(name), *rest)
    return (_CHECKSUM.pack(crc32c(data[_CHECKSUM.size :])) + data[_CHECKSUM.size :]).ljust(SLOT_BYTES, b"\0")


def parse_slot(data: bytes, _path: str = MEMBERS_FILE, *, locked: bool) -> MemberSlot:
    """Parses a slot; the result has no member id if the bytes are damaged.

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


SLOTS: Final = FileKind("a file of group members", parse_slot, at_most(SLOT_BYTES), "remove it while no consumer runs")
