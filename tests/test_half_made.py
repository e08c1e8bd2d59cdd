"""A topic that is being made, or was left half made: in nobody's way, and told apart from one whose partition was lost."""

from __future__ import annotations

import itertools
import random
import shutil
from pathlib import Path

import pytest

import pylog
from pylog.directory.checkpoints import CLEAN_SHUTDOWN, RECOVERY_POINT, parse_offsets
from pylog.errors import CorruptionError, StorageFailedError
from pylog.fs import OsFileSystem
from pylog.record.types import TopicPartition
from pylog.testing import FaultyFileSystem, MemoryFileSystem, Moment, RecordingFileSystem
from pylog.tools.compare import compare
from pylog.tools.verify import verify
from pylog.topics import changes
from pylog.topics.catalog import read_catalog
from pylog.topics.checking import check_catalog
from support.cli import call

FS = OsFileSystem()


class Killed(BaseException):
    """The errors that end a process during a call."""


@pytest.fixture
def half(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A store with a topic that is whole, and one of whose four partitions the first one was made when its maker was killed."""
    root = tmp_path / "s"
    with pylog.open(root) as store:
        store.create_topic("whole")
        store.log("whole").append(b"kept")
    make = changes.make_partitions

    def killed(fs: OsFileSystem, path: str, topic: str, topic_id: str, numbers: range) -> None:
        make(fs, path, topic, topic_id, numbers[:1])
        raise Killed

    with monkeypatch.context() as patched, pylog.open(root) as store:
        patched.setattr(changes, "make_partitions", killed)
        with pytest.raises(Killed):
            store.create_topic("fresh", partition_count=4)
    return root


def kinds(root: Path) -> list[str]:
    return [each.finding.kind for each in verify(str(root)).affected]


def test_a_half_made_topic_is_no_damage_and_its_store_has_no_marker_of_a_clean_shutdown(half: Path) -> None:
    assert not (half / CLEAN_SHUTDOWN).exists(), "it would say that everything is made"
    assert kinds(half) == ["unmade"] * 3
    assert verify(str(half)).ok
    with pylog.open(half, mode="r") as store:
        assert store.check().ok


def test_opening_for_writing_creates_the_missing_partitions(half: Path) -> None:
    with pylog.open(half) as store:
        assert store.log("fresh", 3).append(b"x") == 0
    assert kinds(half) == []


@pytest.mark.parametrize(
    "arguments",
    [
        ["topics"],
        ["describe", "fresh"],
        ["cat", "fresh"],
        ["cat", "whole"],
        ["retain", "--yes"],
        ["verify"],
        ["delete", "fresh", "--yes"],
        ["graduate", "--yes"],
    ],
)
def test_no_command_is_stopped_by_a_half_made_topic(half: Path, arguments: list[str]) -> None:
    command, *rest = arguments
    done = call(command, half, *rest)
    assert done.code == 0, done.complaints


def test_a_topic_of_which_nothing_is_made_yet_is_deleted_by_its_name(half: Path) -> None:
    shutil.rmtree(half / "fresh-0")
    assert call("delete", half, "fresh", "--yes", "--json").json == {"deleted": ["fresh"], "failed": {}}


def test_a_partition_that_is_asked_for_by_number_and_is_not_made_is_an_error_of_its_own(half: Path) -> None:
    done = call("cat", half, "fresh", "--partition", "2")
    assert done.code == 1
    assert "fresh-2 is incomplete" in done.complaints


def test_a_half_made_topic_equals_itself_and_lacks_what_the_other_side_has(half: Path, tmp_path: Path) -> None:
    other = shutil.copytree(half, tmp_path / "other")
    with pylog.open(half, mode="r") as left, pylog.open(other, mode="r") as right:
        assert compare(left, right).same
    with pylog.open(other):
        pass
    with pylog.open(half, mode="r") as left, pylog.open(other, mode="r") as right:
        found = next(topic for topic in compare(left, right).topics if topic.left == "fresh")
        assert found.only == {"left": [], "right": [1, 2, 3]}


@pytest.mark.damaged("its partition is gone")
def test_a_deleted_partition_that_held_records_stays_an_error_for_readers_and_for_verify(half: Path) -> None:
    assert TopicPartition("whole", 0) in parse_offsets((half / RECOVERY_POINT).read_bytes(), "")
    shutil.rmtree(half / "whole-0")
    assert sorted(kinds(half)) == ["missing", "unmade", "unmade", "unmade"]
    with pylog.open(half, mode="r") as store, pytest.raises(CorruptionError, match="whole-0 is missing"):
        store.log("whole")
    assert call("cat", half, "whole").code == 1


def test_a_topic_that_is_completed_or_deleted_between_two_passes_is_not_reported(half: Path) -> None:
    stale = read_catalog(FS, str(half))
    with pylog.open(half) as store:
        store.delete_topic("fresh")
    assert (half / CLEAN_SHUTDOWN).exists()
    assert list(check_catalog(FS, str(half), stale, quiet=False)) == []


# ---- what was half made is durable once something durable is in it -----------------------------------------------------------


def append_after(fs: MemoryFileSystem, fault: str, number: int) -> bool:
    """Makes a store, a topic and durable records while one call fails; goes on after the error. Returns whether one failed."""
    faulty = FaultyFileSystem(fs)
    faulty.fail(fault, number)
    while True:  # the second time nothing fails any more
        try:
            with pylog.open("/new", fs=faulty) as store:
                store.create_topic("orders", partition_count=2, exist_ok=True)
                for partition in (0, 1):
                    store.log("orders", partition).append(b"kept", durability="sync")
        except StorageFailedError:
            continue
        return faulty.fired > 0


@pytest.mark.sampled(5)
@pytest.mark.parametrize("fault", ["sync_directory EIO", "open EMFILE", "rename EIO", "write ENOSPC", "sync EIO"])
def test_a_durable_record_is_kept_in_what_was_made_only_at_the_second_attempt(fault: str) -> None:
    for number in itertools.count(1):
        fs = MemoryFileSystem()
        fired = append_after(fs, fault, number)
        with pylog.open("/new", fs=fs.crash()) as store:
            for partition in (0, 1):
                assert b"kept" in [record.value for record in store.log("orders", partition).records()]
        if not fired:
            assert number > 1
            return


def test_a_durable_record_is_kept_in_what_a_killed_process_had_begun_to_make() -> None:
    """The process dies after each of its calls; another one then uses the topic as it finds it, and the power fails."""
    recording = RecordingFileSystem()
    with pylog.open("/new", fs=recording) as store:
        store.create_topic("orders")
    moment = Moment(recording.recording)
    while moment.after < len(recording.recording):
        moment.advance()
        for crash in moment.deaths(random.Random(0), 0):
            fs = MemoryFileSystem(image=moment.state(crash)[1])
            with pylog.open("/new", fs=fs) as store:
                store.create_topic("orders", exist_ok=True)
                store.log("orders").append(b"kept", durability="sync")
            with pylog.open("/new", fs=fs.crash()) as store:
                assert [record.value for record in store.log("orders").records()] == [b"kept"]
