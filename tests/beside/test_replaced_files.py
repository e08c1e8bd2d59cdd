"""A sound directory is never called damaged while another store or thread deletes, truncates, trims or compacts its files."""

from __future__ import annotations

import glob
import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import pylog
from pylog import Durability, Store
from pylog.cli.describe import _partition as describe_partition
from pylog.fs import OsFileSystem
from pylog.index.builder import SegmentIndexBuilder
from pylog.log.checking.report import Report
from pylog.log.durable_point import DurablePointFile
from pylog.log.state import LogState
from support.engines import engine_of
from support.faults.neighbours import HookedFileSystem

VALUE = b"x" * 100


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "store")


@pytest.fixture
def writer(path: str) -> Iterator[Store]:
    """The store that changes the log."""
    with pylog.open(path, durability=Durability.OS) as store:
        store.create_topic(
            "t", segment_bytes=1000, cleanup_policy="compact,delete", retention_ms=-1, min_cleanable_dirty_ratio=0.01
        )
        fill(store, 60)
        yield store


def fill(store: Store, count: int) -> None:
    for number in range(count):
        store.log("t").append(VALUE, key=b"k%d" % (number % 7))


CHANGES: dict[str, Callable[[Store], object]] = {
    "truncate": lambda store: store.log("t").truncate(5),
    "delete_records": lambda store: store.log("t").delete_records(50),
    "compaction": lambda store: store.compact("t"),
}


@pytest.mark.slow
@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.pair("aborted transactions", "second process")
def test_the_stable_offset_is_found_while_segments_are_deleted(path: str, writer: Store, change: str) -> None:
    fs = HookedFileSystem()
    with pylog.open(path, mode="r", fs=fs) as store:
        log = store.log("t")
        for snapshot in glob.glob(f"{path}/t-0/*.snapshot"):  # so that all segments are read
            os.remove(snapshot)
        fs.before("open", "0.log", lambda: CHANGES[change](writer))
        assert log.stable_offset == writer.log("t").end_offset
        values = [record.value for record in log.records(log.start_offset, isolation_level="read_committed")]
        assert values
        assert set(values) == {VALUE}


@pytest.mark.slow
@pytest.mark.pair("compaction", "broker's directory")
@pytest.mark.damaged("its first segment is deleted by hand")
def test_a_reader_that_saw_a_segment_go_without_the_header_goes_on_after_each_later_compaction(path: str, writer: Store) -> None:
    def compact() -> None:
        with pylog.open(path, durability=Durability.OS) as store:
            fill(store, 60)
            store.compact("t")

    writer.close()
    with pylog.open(path, mode="r") as store:
        log = store.log("t")
        for name in glob.glob(f"{path}/t-0/{0:020}.*"):  # as a broker's retention does
            os.remove(name)
        with pytest.raises(pylog.OffsetOutOfRangeError):
            list(log.scan())
        for _ in range(2):
            compact()
            scan = log.scan(max_rows=1)
            next(scan)
            compact()
            assert sum(frame.num_rows for frame in scan) > 0


@pytest.mark.parametrize("method", ["check", "verify"])
@pytest.mark.parametrize("call", [("rename", ".log.cleaned"), ("rename", ".log.swap")], ids=lambda call: call[1])
def test_the_files_of_a_compaction_that_goes_on_are_no_findings(tmp_path: Path, method: str, call: tuple[str, str]) -> None:
    fs = HookedFileSystem()
    with pylog.open(tmp_path / "s", fs=fs, durability=Durability.OS) as store:
        store.create_topic("t", segment_bytes=1000, cleanup_policy="compact", min_cleanable_dirty_ratio=0.01)
        fill(store, 60)
        reports: list[Report] = []
        seen = threading.Event()

        def look() -> None:
            reports.append(getattr(store, method)())
            seen.set()

        def meanwhile() -> None:
            threading.Thread(target=look).start()
            seen.wait(0.3)  # the report may wait for the end of the change

        fs.before(*call, meanwhile)
        store.compact("t")
        assert seen.wait(30)
        assert [str(report) for report in reports if not report.ok] == []


@pytest.mark.slow
@pytest.mark.damaged("a byte is overwritten")
def test_a_change_that_a_dead_process_began_delays_a_report_and_does_not_prevent_it(path: str, writer: Store) -> None:
    writer.close()
    header = DurablePointFile(OsFileSystem(), f"{path}/t-0", write=True)
    header.refresh()
    header.write(epoch=header.slot.epoch + 1)
    header.close()
    with open(f"{path}/t-0/{0:020}.log", "r+b") as file:
        file.seek(80)
        file.write(b"?")
    with pylog.open(path, mode="r") as store:
        assert not store.verify().ok


@pytest.mark.parametrize("mode", ["r", "rw"])
def test_a_question_about_segments_is_asked_again_after_another_store_deleted_them(path: str, writer: Store, mode: str) -> None:
    with pylog.open(path, mode=mode) as store:
        asked: list[int] = []

        def question(state: LogState) -> int:
            asked.append(state.start_offset)
            if len(asked) == 1:
                writer.log("t").delete_records(50)
            return len([segment.file().size() for segment in state.segments.values()])

        assert engine_of(store.log("t")).answer(question) == len(store.log("t").segments)
        assert asked == [0, 50]


@pytest.mark.slow
def test_describe_answers_while_segments_are_deleted(path: str, writer: Store) -> None:
    ended = threading.Event()
    wrong: list[Exception] = []

    def describe() -> None:
        with pylog.open(path, mode="r") as store:
            log = engine_of(store.log("t"))
            while not ended.is_set():
                try:
                    assert describe_partition(path, log)["end_offset"] >= 60
                except Exception as error:  # noqa: BLE001 - whatever it is, it is a finding
                    wrong.append(error)
                    return

    thread = threading.Thread(target=describe)
    thread.start()
    for _ in range(15):
        fill(writer, 10)
        writer.log("t").delete_records(writer.log("t").end_offset - 5)
    ended.set()
    thread.join()
    assert wrong == []


@pytest.mark.pair("second process", "compaction", "truncation")
@pytest.mark.parametrize("change", ["truncate", "compaction"])
def test_an_index_that_a_read_rebuilds_is_not_written_for_a_file_that_has_replaced_the_one_it_read(
    path: str, writer: Store, change: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    done: list[object] = []
    finish = SegmentIndexBuilder.finish
    with pylog.open(path, durability=Durability.OS) as store:
        assert store.log("t").end_offset == 60
        os.remove(f"{path}/t-0/{0:020}.index")

        def replaced_meanwhile(builder: SegmentIndexBuilder) -> None:
            finish(builder)
            if not done:
                done.append(True)
                CHANGES[change](writer)

        monkeypatch.setattr(SegmentIndexBuilder, "finish", replaced_meanwhile)
        list(store.log("t").records(3, 5))
        monkeypatch.undo()
        assert done
        for each in (store, writer):
            report = each.verify()
            assert report.ok, str(report)
            report = each.check()
            assert report.ok, str(report)
