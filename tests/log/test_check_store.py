"""`check` of a whole store: its root, its catalog, what a log believes while others change it, and the reports."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import pylog
from pylog.directory.checkpoints import LOG_START, RECOVERY_POINT
from pylog.errors import UnknownTopicOrPartitionError
from pylog.fs import DirectoryEntry, OsFileSystem
from pylog.index.skiplist import SkipList
from pylog.log.checking.check import check_ends, check_store
from pylog.log.checking.report import ATTEMPTS, Partition, Report, about, ask, of_error, read_checkpoints
from pylog.log.recovery.findings import Finding
from pylog.record.types import TopicPartition
from pylog.segment.names import INDEX, LOG, SNAPSHOT, TIME_INDEX, file_name
from pylog.store import manager_of
from pylog.topics.catalog import Catalog, CatalogTopic, read_catalog
from pylog.topics.checking import check_catalog
from support.engines import engine_of
from support.faults.neighbours import HookedFileSystem
from support.log import checking
from support.log.checking import FS, SMALL, T0, bases, checked, findings, flip, partition_of, told
from support.log.derived import format_offsets

sound = pytest.fixture(scope="module")(checking.sound)
root = pytest.fixture(checking.root)
directory = pytest.fixture(checking.directory)


# ---- the root ----------------------------------------------------------------------------------------------------------------


def test_a_recovery_point_beyond_the_end_tells_of_records_that_are_gone(root: Path, directory: Path) -> None:
    (root / RECOVERY_POINT).write_bytes(format_offsets({T0: 31}))
    (found,) = findings(root)
    assert (found.kind, Path(found.path).name) == ("missing", file_name(bases(directory)[-1], LOG))
    (root / RECOVERY_POINT).write_bytes(format_offsets({T0: 30, TopicPartition("other", 0): 99}))
    assert findings(root) == []


def test_a_recovery_point_that_a_truncation_lowered_meanwhile_is_no_finding(root: Path) -> None:
    with pylog.open(root, mode="r") as store:
        partition = partition_of(store.log("t"), root, quiet=False)
        ends, _ = read_checkpoints(FS, str(root))
        stale = ends._replace(recovery_points={T0: 31})
        assert list(check_ends(partition, stale)) == []
        (root / RECOVERY_POINT).write_bytes(format_offsets({T0: 31}))
        assert [found.kind for found in check_ends(partition, stale)] == ["missing"]


def test_a_log_start_that_the_log_does_not_keep_to_is_reported(root: Path) -> None:
    with pylog.open(root, mode="r") as store:
        log = store.log("t")
        (root / LOG_START).write_bytes(format_offsets({T0: 1}))
        (found,) = checked(log, root, writable=False).findings
        assert (found.kind, Path(found.path).name, found.offset) == ("state", LOG_START, 1)


@pytest.mark.parametrize("name", [RECOVERY_POINT, LOG_START])
def test_a_checkpoint_that_does_not_parse_is_reported(root: Path, name: str) -> None:
    with pylog.open(root, mode="r") as store:
        log = store.log("t")
        (root / name).write_bytes(b"rubbish")
        assert [(found.kind, Path(found.path).name) for found in checked(log, root).findings] == [("derived", name)]


def test_the_catalog_and_the_directories_agree(root: Path, directory: Path) -> None:
    def against(topic_id: str, partitions: int = 1) -> list[Finding]:
        return list(check_catalog(FS, str(root), Catalog(topics={"t": CatalogTopic(topic_id, partitions)}), quiet=True))

    known = read_catalog(FS, str(root)).topics["t"].id
    assert against(known) == []
    (found,) = against(known, 2)
    assert (found.kind, found.path) == ("missing", str(root))
    assert "partition 1 of topic t" in found.message
    (found,) = against("A" * 22)
    assert (found.kind, Path(found.path).name) == ("derived", "t-0")
    (directory / "partition.metadata").write_bytes(b"rubbish")
    (found,) = against(known)
    assert (found.kind, Path(found.path).name) == ("derived", "partition.metadata")


def test_a_topic_that_is_created_again_during_a_check_is_not_taken_for_damage(root: Path) -> None:
    before = read_catalog(FS, str(root))
    with pylog.open(root) as store:
        store.delete_topic("t")
        store.create_topic("t")
    assert list(check_catalog(FS, str(root), before, quiet=False)) == []


@pytest.mark.parametrize("quiet", [True, False])
def test_an_unfinished_file_in_the_root_is_a_leftover_once_no_process_is_active(root: Path, quiet: bool) -> None:
    (root / "pylog.json.tmp").write_bytes(b"")
    found = check_catalog(FS, str(root), read_catalog(FS, str(root)), quiet=quiet)
    assert [(each.kind, Path(each.path).name) for each in found] == ([("leftover", "pylog.json.tmp")] if quiet else [])


def test_a_file_that_another_thread_is_writing_in_the_root_is_no_leftover(root: Path) -> None:
    written = root / f"{LOG_START}.tmp"
    with pylog.open(root) as store, ThreadPoolExecutor(1) as pool:
        with manager_of(store).root.lock():
            written.write_bytes(b"")
            report = pool.submit(store.check)
            with pytest.raises(TimeoutError):
                report.result(0.2)
            written.unlink()
        assert report.result(60).ok


def test_a_partition_that_is_deleted_before_its_turn_is_no_finding(root: Path) -> None:
    def gone() -> Partition:
        raise UnknownTopicOrPartitionError("it was deleted")

    assert check_store(FS, str(root), [gone]).ok


# ---- what a log believes -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "changes",
    [
        {"start_offset": 31},
        {"start_offset": -1},
        {"durable_offset": 31},
        {"start_offset": 20, "durable_offset": 10},
        {"first_unstable_offset": 31},
        {"end_offset": 29},
        {"active_size": 1},
    ],
)
def test_a_state_that_cannot_be_is_reported(root: Path, changes: dict[str, int]) -> None:
    with pylog.open(root, mode="r") as store:
        log = store.log("t")
        before = engine_of(log).known
        fields = {name: getattr(before, name) for name in ("segments", "active", "active_size", "start_offset", "end_offset")}
        fields |= {"durable_offset": before.durable_offset, "first_unstable_offset": None}
        state = type(before)(**(fields | changes))
        assert checked(log, root, writable=False, state=type(before)(**fields)).ok
        report = checked(log, root, writable=False, state=state)
        assert "active_size" in changes or {found.kind for found in report.findings} >= {"state"}, report
        assert not report.ok


def test_a_partition_that_cannot_be_opened_is_a_finding_and_the_others_are_checked(root: Path) -> None:
    def broken() -> Partition:
        raise pylog.StorageFailedError("a link, not a file", path="/elsewhere")

    with pylog.open(root, mode="r") as store:
        log = store.log("t")
        report = check_store(FS, str(root), [broken, lambda: partition_of(log, root, writable=False)])
    assert [(found.kind, found.path) for found in report.findings] == [("unreadable", "/elsewhere")]
    assert (report.partitions, report.records) == (2, 30)


class Ghostly(OsFileSystem):
    """The real file system, but a listing still has a deleted file."""

    def __init__(self, name: str) -> None:
        self._name = name

    def list(self, path: str, *, sizes: str = "") -> list[DirectoryEntry]:
        return sorted([*super().list(path, sizes=sizes), DirectoryEntry(self._name, False, True, 10, 0)])


def test_a_snapshot_that_retention_takes_meanwhile_is_no_finding(root: Path) -> None:
    assert told(root, fs=Ghostly(file_name(1, SNAPSHOT)), quiet=False) == []


def test_a_fault_seen_while_segments_change_counts_when_two_passes_agree_on_it(root: Path, directory: Path) -> None:
    """Else an old name with a new file would be called damage, beside a writer that never rests."""
    numbers = itertools.count()

    def question(partition: Partition) -> Report:
        with (directory / file_name(0, LOG)).open("ab") as file:
            file.write(b"x")  # the shape is another one each time
        return Report((about("corrupt", "/passing", f"is wrong, {next(numbers)}"), about("corrupt", "/lasting", "is wrong")))

    with pylog.open(root, mode="r") as store:
        log = store.log("t")
        report = ask(lambda: partition_of(log, root, quiet=False), question)
        assert [found.path for found in report.findings] == ["/lasting"]
        assert next(numbers) == ATTEMPTS


def test_a_log_whose_segments_go_meanwhile_in_another_thread_lacks_none(tmp_path: Path) -> None:
    """The check comes when the first file has its new name, and the log does not say so yet; then it waits for the log."""
    fs, reports = HookedFileSystem(), []
    with pylog.open(tmp_path / "s", fs=fs) as store:
        store.create_topic("t", retention_ms=1000, **SMALL)
        log = store.log("t")
        for number in range(30):
            log.append(b"value %d" % number, timestamp=1)
        assert store.check().ok

        def beside_it() -> None:
            checking.start()
            checking.join(0.5)
            assert not reports  # it waits

        checking = threading.Thread(target=lambda: reports.append(store.check()))
        fs.before("rename", INDEX, beside_it)
        assert store.tick() > 1
        checking.join()
        assert [report.findings for report in reports] == [()]


def test_a_fault_is_checked_again_while_the_threads_of_this_process_wait(root: Path) -> None:
    events: list[str] = []

    @contextmanager
    def still() -> Iterator[None]:
        events.append("still")
        yield
        events.append("over")

    def question(_: Partition) -> Report:
        events.append("asked")
        return Report((about("state", "/x", "is wrong"),) if len(events) < most else ())

    with pylog.open(root, mode="r") as store:
        log = store.log("t")
        for most, expected in (
            (0, ["asked"]),
            (2, ["asked", "still", "asked", "over"]),
            (9, ["asked", "still", "asked", "over"]),
        ):
            events.clear()
            report = ask(lambda: partition_of(log, root, quiet=True, still=still), question)
            assert (events, report.ok) == (expected, most < 9)


@pytest.mark.damaged("it was damaged on purpose")
def test_a_store_checks_itself(root: Path, directory: Path) -> None:
    with pylog.open(root) as store:
        assert store.check().findings == ()
        store.log("t").append(b"more")
        report = store.check()
        assert (report.findings, report.partitions, report.records) == ((), 1, 31)
        flip(directory / file_name(0, TIME_INDEX), 7)
        assert [(found.kind, Path(found.path).name) for found in store.check().findings] == [
            ("derived", file_name(0, TIME_INDEX))
        ]


def test_a_broken_list_of_segments_is_reported(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(_: SkipList[Any]) -> None:
        raise AssertionError("keys do not rise")

    with pylog.open(root, mode="r") as store:
        log = store.log("t")
        monkeypatch.setattr(SkipList, "check", broken)
        (found,) = checked(log, root, writable=False).findings
        assert found.kind == "state"
        assert "keys do not rise" in found.message


# ---- reports -----------------------------------------------------------------------------------------------------------------


def test_reports_add_up_and_say_what_they_hold() -> None:
    torn, corrupt = about("torn", "/a", "is torn"), about("corrupt", "/b", "is broken", position=7, size=2, offset=3)
    first = Report((torn,), partitions=1, segments=2, batches=3, records=4, bytes=5)
    second = Report((corrupt,), partitions=1, segments=1, batches=1, records=1, bytes=1)
    both = first + second
    assert both == Report((torn, corrupt), partitions=2, segments=3, batches=4, records=5, bytes=6)
    assert (first.ok, second.ok, both.ok) == (True, False, False)
    assert str(both).splitlines() == [
        "2 findings in 2 partitions: 3 segments, 4 batches, 5 records, 6 bytes",
        "  torn: /a is torn",
        "  corrupt: /b is broken",
    ]
    assert (corrupt.position, corrupt.size, corrupt.offset, corrupt.next_offset) == (7, 2, 3, None)


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (pylog.CorruptionError("damage", path="/x", position=5, offset=6, next_offset=9), "corrupt"),
        (pylog.UnsupportedFormatError("later", path="/x", position=5, offset=6), "unreadable"),
        (pylog.StorageFailedError("bad sector", path="/x", position=5, offset=6), "unreadable"),
    ],
)
def test_an_error_becomes_a_finding_with_its_place(error: pylog.PylogError, kind: str) -> None:
    found = of_error(error, "/elsewhere")
    assert found[:5] == (kind, "/x", 5, 0, 6)
    assert found.next_offset == getattr(error, "next_offset", None)
    assert found.message == str(error)
    assert of_error(pylog.CorruptionError("damage"), "/elsewhere", "derived")[:2] == ("derived", "/elsewhere")
