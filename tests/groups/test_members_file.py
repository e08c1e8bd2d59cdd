"""The members file: who has which slot, whatever the file held before, and however others read it."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

import pylog
from pylog import limits
from pylog.fs import FileSystem, OsFileSystem
from pylog.groups.liveness import MemberSlot
from pylog.groups.members_file import _LAYOUT, SLOT_BYTES, MembersFile, format_slot, parse_slot
from pylog.record.checksum import crc32c
from pylog.testing import MemoryFileSystem
from support.faults.neighbours import Neighbour


@pytest.fixture(params=["real", "memory"])
def opened(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[list[MembersFile]]:
    """Three consumers' views of one file."""
    fs: FileSystem = OsFileSystem() if request.param == "real" else MemoryFileSystem()
    path = str(tmp_path / "members") if request.param == "real" else "/members"
    files = [MembersFile(fs, path) for _ in range(3)]
    yield files
    for file in files:
        file.close()


def claim(file: MembersFile, name: str, *members: str) -> None:
    file.claim(name, 45_000, 300_000, members.__contains__)


def names(file: MembersFile) -> list[tuple[bool, str | None]]:
    return [(slot.locked, slot.member_id) for slot in file.slots()]


def test_each_member_has_a_slot_of_its_own_and_all_see_all(opened: list[MembersFile]) -> None:
    for file, name in zip(opened, "abc", strict=True):
        claim(file, name)
    for file in opened:
        assert names(file) == [(True, "a"), (True, "b"), (True, "c")]


def test_a_slot_is_free_when_its_member_lets_go_and_is_taken_by_the_next(opened: list[MembersFile]) -> None:
    claim(opened[0], "a")
    claim(opened[1], "b")
    opened[0].close()
    assert names(opened[1]) == [(False, "a"), (True, "b")]
    claim(opened[2], "c")
    assert names(opened[1]) == [(True, "c"), (True, "b")]


def test_the_slot_of_a_dead_one_that_is_still_in_a_group_is_left_alone(opened: list[MembersFile]) -> None:
    claim(opened[0], "a")
    opened[0].close()
    claim(opened[1], "b", "a")
    assert names(opened[2]) == [(False, "a"), (True, "b")]
    claim(opened[2], "c")
    assert names(opened[1]) == [(True, "c"), (True, "b")]


def test_counters_count_beats_and_polls(opened: list[MembersFile]) -> None:
    claim(opened[0], "a")
    opened[0].beat()
    opened[0].beat(polled=True)
    assert opened[1].slots() == [MemberSlot(True, "a", 45_000, 300_000, 2, 1)]
    opened[0].close()
    opened[0].beat()  # its thread may be late
    assert opened[1].slots()[0].beats == 2


def test_a_damaged_slot_names_no_member_and_its_owner_writes_it_again(opened: list[MembersFile]) -> None:
    claim(opened[0], "a")
    opened[1]._file.write(memoryview(b"\xff" * 20), 10)
    assert opened[1].slots() == [MemberSlot(True)]
    opened[0].beat()
    assert names(opened[1]) == [(True, "a")]


def test_bytes_that_are_no_slot_are_taken_like_a_free_one(opened: list[MembersFile]) -> None:
    opened[0]._file.write(memoryview(bytes(range(256)) + b"half"), 0)
    assert opened[0].slots() == [MemberSlot(False), MemberSlot(False)]
    for file, name in zip(opened, "abc", strict=True):
        claim(file, name)
    assert names(opened[0]) == [(True, "a"), (True, "b"), (True, "c")]


def test_members_that_claim_a_slot_at_the_same_time_get_one_each(
    opened: list[MembersFile], monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = [file.slots() for file in opened]  # by all of them before the first one has a slot
    for file, slots, name in zip(opened, seen, "abc", strict=True):
        monkeypatch.setattr(file, "slots", lambda slots=slots: slots)
        claim(file, name)
    monkeypatch.undo()
    assert [slot.member_id for slot in opened[0].slots()] == ["a", "b", "c"]


def test_a_file_without_room_says_so(opened: list[MembersFile], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "MEMBER_SLOTS", 1)
    claim(opened[0], "a")
    with pytest.raises(pylog.StorageFailedError, match="no free slot"):
        claim(opened[1], "b")


@pytest.mark.parametrize("at", range(SLOT_BYTES - 20))
def test_no_flipped_byte_makes_a_slot_another_members(at: int) -> None:
    data = bytearray(format_slot(MemberSlot(True, "member", 1, 2, 3, 4)))
    data[at] ^= 0x20
    assert parse_slot(bytes(data), locked=True) in (MemberSlot(True), MemberSlot(True, "member", 1, 2, 3, 4))
    assert at >= 104 or parse_slot(bytes(data), locked=True) == MemberSlot(True)


def test_a_slot_whose_checksum_is_right_and_whose_name_is_no_text_has_no_member() -> None:
    good = format_slot(MemberSlot(True, "member", 1, 1))
    body = good[4:].replace(b"member", b"\xff\xfe\xfd\xfc\xfb\xfa")[: _LAYOUT.size - 4]
    data = crc32c(body).to_bytes(4, "little") + body
    assert parse_slot(data.ljust(SLOT_BYTES, b"\0"), locked=True) == MemberSlot(True)


@pytest.mark.slow
def test_a_killed_process_leaves_its_slot_free_and_a_forked_child_does_not_keep_it(tmp_path: Path) -> None:
    path = str(tmp_path / "members")
    mine = MembersFile(OsFileSystem(), path)
    with Neighbour() as other:
        other.run(
            "from pylog.fs import OsFileSystem; from pylog.groups.members_file import MembersFile\n"
            "import os, time\n"
            "file = MembersFile(OsFileSystem(), path)\n"
            "file.claim('a', 1, 1, lambda name: False)\n"
            "child = os.fork()\n"
            "if not child: os.closerange(0, 2), time.sleep(20), os._exit(0)\n"
            "child",
            path=path,
        )
        child = other.run("child")
        assert names(mine) == [(True, "a")]
        other.kill()
        assert names(mine) == [(False, "a")]
        os.kill(child, signal.SIGKILL)
    mine.close()
