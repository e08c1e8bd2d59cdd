"""The files of segments that this process has deleted: they go when the call returns, unless a reader uses them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

import pylog
from pylog import Store
from pylog.fs import OsFileSystem
from support.faults.neighbours import HookedFileSystem

CHANGES: dict[str, Callable[[Store], object]] = {
    "delete_records": lambda store: store.log("t").delete_records(before=25),
    "retain": lambda store: (store.alter_topic("t", retention_bytes=1000), store.retain("t")),
    "truncate": lambda store: store.log("t").truncate(end=15),
}
BEFORE: dict[str, Callable[[Store], object]] = {
    "nothing": lambda store: store,
    "a read": lambda store: list(store.log("t").records()),
    "an append": lambda store: store.log("t").append(b"v" * 100),
}


@pytest.fixture
def made(tmp_path: Path) -> Path:
    with pylog.open(tmp_path) as store:
        store.create_topic("t", segment_bytes=1000)
        for _ in range(30):
            store.log("t").append(b"v" * 100)
    return tmp_path


@pytest.mark.parametrize("before", BEFORE)
@pytest.mark.parametrize("change", CHANGES)
def test_deleted_segments_leave_no_file_in_a_store_that_was_opened_again(made: Path, change: str, before: str) -> None:
    """What was read before the first write must not keep them: a long-lived process would never free the disk."""
    with pylog.open(made) as store:
        BEFORE[before](store)
        CHANGES[change](store)
        assert not list(made.glob("t-0/*.deleted"))
        records = list(store.log("t").records())
        assert [record.offset for record in records] == list(range(store.log("t").start_offset, store.log("t").end_offset))


def test_a_compaction_whose_segments_another_process_truncates_meanwhile_ends_and_is_repeated_later(tmp_path: Path) -> None:
    """The file that has the segment's name then is shorter than the segment was: that is no damage."""
    fs = HookedFileSystem()
    with pylog.open(tmp_path) as other:
        other.create_topic("t", segment_bytes=1000, cleanup_policy="compact", min_cleanable_dirty_ratio=0.01)
        for number in range(60):
            other.log("t").append(b"v" * 100, key=b"k%d" % (number % 3))
        base = other.log("t").segments[-2].base_offset
        with pylog.open(tmp_path, fs=fs) as store:
            fs.before("open", f"{base:020}.log", lambda: other.log("t").truncate(end=base + 2))
            store.compact("t")
            assert store.log("t").end_offset == base + 2
            for number in range(30):
                store.log("t").append(b"v" * 100, key=b"k%d" % (number % 3))
            store.compact("t")
            assert len(list(store.log("t").records())) < 20
            assert store.verify().ok


class Meanwhile(OsFileSystem):
    """Another process removes a cleaned file just before this one does."""

    def remove(self, path: str) -> None:
        if path.endswith(".cleaned"):
            super().remove(path)
        super().remove(path)


def test_a_log_opens_although_another_process_removes_a_file_of_a_dead_compaction_at_the_same_moment(made: Path) -> None:
    (made / "t-0/00000000000000000000.log.cleaned").write_bytes(b"")
    with pylog.open(made, fs=Meanwhile()) as store:
        assert store.log("t").append(b"x") == 30
    assert not list(made.glob("t-0/*.cleaned"))
