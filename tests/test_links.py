"""Symbolic links: a partition behind one is read and written as any other, or an error says why not; none is left out."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

import pylog
from pylog.errors import IllegalStateError, NotALogDirectoryError, PylogError, StorageFailedError
from pylog.fs import OsFileSystem
from pylog.spark.options import read_options
from pylog.spark.planner import plan
from pylog.testing import MemoryFileSystem
from pylog.tools.repair import repair
from pylog.tools.verify import verify
from support.cli import call as run


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A broker-like directory with the topic `t` of three partitions, the last behind a link, and `whole`, all behind a link."""
    path, disk = tmp_path / "data", tmp_path / "other disk"
    disk.mkdir()
    with pylog.open(path) as store:
        store.create_topic("t", partition_count=3, segment_bytes=300)
        store.create_topic("whole")
        for number in range(3):
            store.log("t", number).append_many([b"%d" % number] * 3)
        store.log("whole").append(b"w")
    (path / "pylog.json").unlink()
    for name in ("t-2", "whole-0"):
        shutil.move(path / name, disk / name)
        (path / name).symlink_to(disk / name)
    return path


def values(root: Path) -> list[bytes]:
    return sorted(pylog.read_table(root, "t")["value"].to_pylist())


def told(call: Callable[[], object]) -> str:
    with pytest.raises(PylogError) as caught:
        call()
    return str(caught.value)


def everything_of(root: Path, topic: str) -> dict[str, Callable[[], object]]:
    """The ways to read a topic whole; each must have all of its records, or raise or print what is wrong."""

    def printed(*command: str) -> Callable[[], object]:
        def call() -> object:
            done = run(*command)
            if done.code:
                raise PylogError(done.complaints + done.text)
            return done

        return call

    def through(mode: str, action: Callable[[pylog.Store], object]) -> Callable[[], object]:
        def call() -> object:
            with pylog.open(root, mode) as store:
                return action(store)

        return call

    def report(checked: Callable[[pylog.Store], object]) -> Callable[[pylog.Store], object]:
        def action(store: pylog.Store) -> object:
            found = checked(store)
            if not found.ok:  # type: ignore[attr-defined]
                raise PylogError(str(found))
            return found

        return action

    def consumed(store: pylog.Store) -> object:
        with store.consumer(topic, auto_offset_reset="earliest") as consumer:
            return consumer.poll(timeout_ms=0)

    return {
        "read_table": lambda: pylog.read_table(root, topic),
        "cat": printed("cat", str(root), topic),
        "describe": printed("describe", str(root), topic),
        "copy": printed("copy", str(root), topic, str(root) + "-copy"),
        "verify": printed("verify", str(root)),
        "verify, of a reading store": through("r", report(lambda store: store.verify())),
        "check, of a reading store": through("r", report(lambda store: store.check())),
        "verify, of a writing store": through("rw", report(lambda store: store.verify())),
        "check, of a writing store": through("rw", report(lambda store: store.check())),
        "consumer": through("r", consumed),
        "spark": lambda: plan(read_options({"path": str(root), "subscribe": topic})),
    }


WAYS = list(everything_of(Path("x"), "t"))


@pytest.mark.slow
def test_linked_partitions_are_read_through_every_interface(root: Path) -> None:
    assert values(root) == [b"0"] * 3 + [b"1"] * 3 + [b"2"] * 3
    for call in everything_of(root, "t").values():
        call()
    with pylog.open(root, mode="r") as store:
        assert {name: topic.partition_ids for name, topic in store.topics().items()} == {"t": (0, 1, 2), "whole": (0,)}
    parts = plan(read_options({"path": str(root), "subscribe": "t"}))
    assert {(part.partition, part.start, part.end) for part in parts} == {(0, 0, 3), (1, 0, 3), (2, 0, 3)}


@pytest.mark.parametrize("command", ["topics", "cat", "describe", "verify", "doctor", "stats"])
def test_commands_print_which_partitions_are_links(root: Path, command: str) -> None:
    done = run(command, str(root), *(["t"] if command in ("cat", "describe") else []))
    assert done.code == 0
    assert f"{root}/t-2 is a symbolic link to {root.parent}/other disk/t-2, which is followed" in done.complaints


@pytest.mark.slow
@pytest.mark.pair("links", "roll", "delete_records", "truncation", "compaction", "retention by size", "close")
def test_a_linked_partition_is_written_trimmed_and_compacted_as_any_other(root: Path) -> None:
    with pylog.open(root) as store:
        store.alter_topic("t", segment_bytes=300, retention_bytes=400)
    with pylog.open(root) as store:
        log = store.log("t", 2)
        log.append_many([b"more %d" % number for number in range(60)])
        for number in range(20):
            log.append(b"value %d" % (number % 3), key=b"k%d" % (number % 3))
        assert log.delete_records(2) == 2
        log.truncate(80)
        assert (log.start_offset, log.end_offset, len(log.segments) > 3) == (2, 80, True)
        store.tick()
        start = log.start_offset
        assert start > 2
        assert store.check().ok
    with pylog.open(root) as store:
        log = store.log("t", 2)
        assert (log.start_offset, log.end_offset, log.append(b"again", key=b"k")) == (start, 80, 80)
        store.alter_topic("t", retention_bytes=-1, cleanup_policy="compact")
    with pylog.open(root) as store:
        store.compact("t", 2)
        assert store.check().ok
    assert (root / "t-2").is_symlink()
    assert verify(str(root)).ok


@pytest.mark.pair("links", "second process")
def test_records_that_another_process_appends_to_a_linked_partition_are_read(root: Path) -> None:
    with pylog.open(root) as one, pylog.open(root) as two, pylog.open(root, mode="r") as reader:
        assert one.log("t", 2).append(b"a") == 3
        assert two.log("t", 2).append(b"b") == 4
        assert [record.value for record in reader.log("t", 2).records(3)] == [b"a", b"b"]


def test_a_topic_with_a_linked_partition_is_not_deleted_and_nothing_changes(root: Path) -> None:
    with pylog.open(root) as store:
        for topic in ("t", "whole"):
            said = told(lambda topic=topic: store.delete_topic(topic))  # type: ignore[misc]
            assert "symbolic link" in said
            assert "delete the topic then" in said
        assert store.log("t").append(b"0") == 3
        assert sorted(store.topics()) == ["t", "whole"]
    assert values(root).count(b"2") == 3
    (root / "t-2").unlink()
    shutil.move(root.parent / "other disk" / "t-2", root / "t-2")
    with pylog.open(root) as store:
        store.delete_topic("t")
        assert sorted(store.topics()) == ["whole"]


def nowhere(link: Path, root: Path) -> str:
    link.symlink_to(root.parent / "not mounted")
    return "leads to no directory"


def loop(link: Path, root: Path) -> str:
    del root
    link.symlink_to(link)
    return "leads to no directory"


def to_a_file(link: Path, root: Path) -> str:
    (root.parent / "file").touch()
    link.symlink_to(root.parent / "file")
    return "not a directory"


def to_another_partition(link: Path, root: Path) -> str:
    link.symlink_to(root / "t-1")
    return "in the same log directory"


def to_the_directory_of_another_link(link: Path, root: Path) -> str:
    link.symlink_to(root.parent / "other disk" / "whole-0")
    return "symbolic links to the same directory"


def to_a_partition_of_another_store(link: Path, root: Path) -> str:
    with pylog.open(root.parent / "another") as store:
        store.create_topic("t")
    link.symlink_to(root.parent / "another" / "t-0")
    return "in another log directory"


def to_a_directory_that_is_no_partition(link: Path, root: Path) -> str:
    (root.parent / "photos").mkdir()
    link.symlink_to(root.parent / "photos")
    return "holds no partition"


ASTRAY = [
    nowhere,
    loop,
    to_a_file,
    to_another_partition,
    to_the_directory_of_another_link,
    to_a_partition_of_another_store,
    to_a_directory_that_is_no_partition,
]


@pytest.mark.sampled(4)
@pytest.mark.damaged("a link that is not followed is found")
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("astray", ASTRAY)
def test_a_link_that_is_not_followed_is_an_error_in_words_by_every_way(
    root: Path, astray: Callable[[Path, Path], str], way: str
) -> None:
    (root / "t-2").unlink()
    words = astray(root / "t-2", root)
    said = told(everything_of(root, "t")[way])
    assert words in said
    assert "t-2" in said


@pytest.mark.damaged("a link that is not followed is found")
@pytest.mark.parametrize("astray", ASTRAY)
def test_a_link_that_is_not_followed_hides_nothing_of_the_others(root: Path, astray: Callable[[Path, Path], str]) -> None:
    (root / "t-2").unlink()
    words = astray(root / "t-2", root)
    with pylog.open(root) as store:
        assert store.log("t").append(b"0") == 3
        assert words in told(lambda: store.log("t", 2))
        assert words in told(lambda: store.log("t", 2).append(b""))
        assert words in told(store.tick)
    with pylog.open(root, "r") as store:
        assert store.log("t").end_offset == 4
        assert store.log("t", 1).end_offset == 3
        assert "t" in store.topics()
    assert not (root.parent / "photos").exists() or not list((root.parent / "photos").iterdir())


@pytest.mark.damaged("a segment is a link")
@pytest.mark.parametrize("way", WAYS)
def test_a_linked_segment_is_refused_through_every_interface(root: Path, way: str) -> None:
    segment = root / "t-1" / f"{0:020}.log"
    shutil.move(segment, root.parent / "segment")
    segment.symlink_to(root.parent / "segment")
    said = told(everything_of(root, "t")[way])
    assert str(segment) in said
    assert "symbolic link" in said
    assert "put the file itself there" in said


def test_a_strangers_link_is_not_followed(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a directory that several users may write: nobody else decides where this process reads and writes."""
    if os.geteuid() == 0:
        os.lchown(root / "t-2", 4321, 4321)
    else:
        monkeypatch.setattr(os, "geteuid", lambda: 4321)
        monkeypatch.setattr(OsFileSystem, "check_directory", lambda *_, **__: None)
        real = os.stat
        monkeypatch.setattr(os, "stat", lambda path, **how: os.stat_result((0,) * 4 + (4321,) + tuple(real(path, **how))[5:]))
    with pylog.open(root, "r") as store:
        assert "not followed" in told(lambda: store.log("t", 2))


@pytest.mark.slow
@pytest.mark.damaged("it was damaged on purpose")
def test_repair_mends_a_linked_partition_in_place(root: Path) -> None:
    with pylog.open(root) as store:
        for number in range(40):
            store.log("t", 2).append(b"value %d" % number)
    first = min((root / "t-2").glob("*.log"))
    data = bytearray(first.read_bytes())
    data[-3] ^= 0xFF
    first.write_bytes(data)
    assert not verify(str(root)).ok
    assert repair(str(root), "skip", execute=True).plans
    assert not [each.finding.message for each in verify(str(root)).affected]
    assert (root / "t-2").is_symlink()


@pytest.mark.pair("links", "crash")
def test_links_in_memory_are_followed_like_those_of_the_system() -> None:
    fs = MemoryFileSystem()
    with pylog.open("/data", fs=fs) as store:
        store.create_topic("t")
        store.log("t").append(b"a")
    fs.make_directory("/disk")
    fs.rename("/data/t-0", "/disk/t-0")
    fs.sync_directory("/disk")
    fs.sync_directory("/data")
    fs.symlink("/disk/t-0", "/data/t-0")
    fs.sync_directory("/")
    store = pylog.open("/data", fs=fs)
    store.log("t").append(b"b")
    with pytest.raises(IllegalStateError, match="symbolic link"):
        store.delete_topic("t")
    again = fs.crash()
    with pylog.open("/data", fs=again) as store:
        assert [record.value for record in store.log("t").records()] == [b"a", b"b"]
    again.rename("/disk/t-0", "/disk/t-1")
    with pylog.open("/data", fs=again) as store, pytest.raises(NotALogDirectoryError, match="does not lead to a directory"):
        store.log("t")
    with pytest.raises(StorageFailedError):
        again.open("/data/t-0")


def test_a_directory_that_is_no_store_has_no_topics_by_name_alone(tmp_path: Path) -> None:
    for name in ("photos-2024", "src-1"):
        (tmp_path / name).mkdir()
    (tmp_path / "photos-2024" / "beach.jpg").touch()
    with pylog.open(tmp_path, mode="r") as store:
        assert store.topics() == {}
    assert "photos" not in run("topics", str(tmp_path)).text
    assert verify(str(tmp_path)).report.partitions == 0


def test_partitions_in_a_directory_without_any_other_file_are_still_found(root: Path) -> None:
    for path in list(root.iterdir()):
        if path.is_file() and not path.is_symlink():
            path.unlink()
    assert values(root) == [b"0"] * 3 + [b"1"] * 3 + [b"2"] * 3
