"""A log that is made shorter beside its readers, by a process that dies, or on a disk that fails."""

from __future__ import annotations

import contextlib
import gc
import os
import random
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import pylog
from pylog import Durability
from pylog.clock import ManualClock
from pylog.errors import OffsetOutOfRangeError, StorageFailedError, SyncFailedError
from pylog.fs import OsFileSystem
from pylog.log.checking.report import HARMLESS
from pylog.store import Store
from pylog.testing import FaultyFileSystem, MemoryFileSystem, Moment, RecordingFileSystem, restarted
from pylog.testing.disk import Image
from pylog.tools.verify import verify
from support.engines import segments_of
from support.faults.neighbours import HookedFileSystem, values
from support.log import trimming
from support.log.trimming import NOW, aged, bases, digit, digits, fail, names, sized

fs = pytest.fixture(trimming.fs)
path = pytest.fixture(trimming.path)
store = pytest.fixture(trimming.store)
log = pytest.fixture(trimming.log)


def fail_sync() -> None:
    raise SyncFailedError("cannot sync: no room, for a test", errno=28)


# ---- readers of this process -------------------------------------------------------------------------------------------------


def trims() -> list[tuple[str, Callable[[Store], object]]]:
    return [
        ("delete_records", lambda store: store.log("t").delete_records(10)),
        ("retention", lambda store: store.retain("t", now_ms=NOW + 10**9)),
    ]


@pytest.mark.slow
@pytest.mark.parametrize(("how", "trim"), trims(), ids=lambda each: each if isinstance(each, str) else "")
def test_a_reader_reads_the_segment_that_it_has_in_hand_to_its_end(
    path: Path, store: Store, how: str, trim: Callable[[Store], object]
) -> None:
    """The files are renamed, and go when the last reader has let go: also those that it has not opened yet."""
    log = aged(store, retention_ms=1)
    records = log.records()
    if how == "retention":
        next(records)
    trim(store)
    assert names(path / "t-0", "*.log.deleted")
    assert len(list(records)) in (14, 15)
    del records
    gc.collect()
    store.tick(now_ms=0)
    assert names(path / "t-0", "*.deleted") == set()


@pytest.mark.slow
def test_a_file_without_readers_is_deleted_at_once(path: Path, store: Store, log: pylog.Log) -> None:
    log.delete_records(10)
    gc.collect()
    store.retain("t", now_ms=0)
    assert names(path / "t-0", "*.deleted") == set()


def test_renamed_files_go_at_the_latest_when_the_store_is_closed(path: Path, store: Store, log: pylog.Log) -> None:
    records = log.records()
    log.delete_records(10)
    assert names(path / "t-0", "*.deleted")
    store.close()
    assert names(path / "t-0", "*.deleted") == set()
    del records


@pytest.mark.slow
def test_a_reader_that_a_truncation_overtakes_gets_what_it_had_or_is_told_that_it_is_gone(log: pylog.Log) -> None:
    for first in range(15):
        records = log.records(first)
        began = next(records)
        assert began.value == digit(first)
        log.truncate(3)
        try:
            left = [record.value for record in records]
            assert left == digits(range(first + 1, first + 1 + len(left)))
        except pylog.OffsetOutOfRangeError:
            pass
        for number in range(3, 15):
            log.append(digit(number))


@pytest.mark.slow
def test_threads_that_read_while_the_log_is_trimmed_see_what_was_written_or_that_it_is_gone(store: Store) -> None:
    log = sized(store)
    done, errors = threading.Event(), []

    def read() -> None:
        while not done.wait(0.001):  # two readers without a pause leave the writer no time
            try:
                errors.extend(record for record in log.records() if record.value != digit(record.offset))
                log.read(log.start_offset)
            except pylog.OffsetOutOfRangeError:
                pass
            except Exception as error:  # noqa: BLE001 - looked at below
                errors.append(error)

    threads = [threading.Thread(target=read) for _ in range(2)]
    for thread in threads:
        thread.start()
    try:
        for _ in range(15):
            while log.end_offset < log.start_offset + 20:
                log.append(digit(log.end_offset), durability=Durability.OS)
            log.truncate(log.end_offset - 7)
            log.delete_records(log.start_offset + 8)
    finally:
        done.set()
        for thread in threads:
            thread.join()
    assert errors == []


# ---- crashes and failures ----------------------------------------------------------------------------------------------------


def test_leftovers_of_a_crash_are_deleted_when_the_partition_is_opened_for_writing(
    path: Path, store: Store, log: pylog.Log
) -> None:
    store.close()
    left = [f"{number:020d}{suffix}" for number in (3, 5) for suffix in (".log.deleted", ".index.deleted", ".log.tmp")]
    left += [f"{5:020d}.log.cleaned", f"{15:020d}.snapshot.deleted", f"{7:020d}.snapshot.tmp"]
    left += [f"{5:020d}.{suffix}.tmp" for suffix in ("index", "timeindex", "txnindex", "seal")] + ["leader-epoch-checkpoint.tmp"]
    for name in left:
        (path / "t-0" / name).write_bytes(b"left over")
    kept = names(path / "t-0") - set(left)
    with pylog.open(path, mode="r") as reading:
        assert values(reading.log("t")) == digits(range(15))
    assert names(path / "t-0") == kept | set(left)
    with pylog.open(path) as again:
        assert values(again.log("t")) == digits(range(15))
        assert names(path / "t-0") == kept
        assert again.log("t").append(b"x") == 15


def test_an_index_that_a_reader_finishes_while_leftovers_of_a_crash_are_swept_does_no_harm(path: Path, store: Store) -> None:
    sized(store).append(b"x")
    store.close()
    unfinished, fs = path / "t-0" / f"{0:020d}.index.tmp", HookedFileSystem()
    unfinished.write_bytes(b"")
    fs.before("remove", ".index.tmp", unfinished.unlink)
    with pylog.open(path, fs=fs) as again:
        assert again.log("t").append(b"y") == 1
        assert fs.count("remove") > 0
    assert not unfinished.exists()


def test_a_swap_that_a_crash_left_is_completed(path: Path, store: Store, log: pylog.Log) -> None:
    """It holds the records of the segments that it replaces, which go with their other files."""
    store.close()
    directory = path / "t-0"
    merged = b"".join((directory / f"{base:020d}.log").read_bytes() for base in (0, 5))
    (directory / f"{0:020d}.log.swap").write_bytes(merged)
    with pylog.open(path, mode="r") as reading:
        assert values(reading.log("t")) == digits(range(15))
    with pylog.open(path) as again:
        log = again.log("t")
        assert bases(log) == [0, 10]
        assert values(log) == digits(range(15))
        assert log.append(digit(15)) == 15
    assert names(directory, "*.swap") == set()
    assert not names(directory, f"{5:020d}.*")


def deaths(trim: Callable[[Store], object]) -> Iterator[Image]:
    """A log of fifteen records, trimmed by a process that dies: the disk after each of its steps."""
    fs = RecordingFileSystem()
    with pylog.open("/s", fs=fs, clock=ManualClock(NOW)) as store:
        log = sized(store, retention_bytes=345)
        for number in range(15):
            log.append(digit(number))
        before = len(fs.recording)
        trim(store)
    for after in range(before, len(fs.recording) + 1):
        moment = Moment.of(fs.recording, after)
        for death in moment.deaths(random.Random(after), 1):
            yield moment.state(death)[1]


@pytest.mark.slow
@pytest.mark.parametrize(
    "trim",
    [
        lambda store: store.log("t").delete_records(10),
        lambda store: store.log("t").delete_records(12),
        lambda store: store.tick(),
    ],
    ids=["delete-a-segment", "delete-within-a-segment", "retention"],
)
def test_a_trim_at_the_start_that_is_killed_at_any_step_never_passes_for_lost_records(trim: Callable[[Store], object]) -> None:
    """Neither at once nor after the next process has finished it."""
    judged = 0
    for image in deaths(trim):
        fs, clock = MemoryFileSystem(image=image), ManualClock(NOW)
        assert {each.finding.kind for each in verify("/s", fs=fs, clock=clock).affected} <= HARMLESS
        with pylog.open("/s", fs=fs, clock=clock) as again:
            trim(again)
            start = again.log("t").start_offset
            assert values(again.log("t")) == digits(range(start, 15))
            assert start >= 10
        assert verify("/s", fs=fs, clock=clock).affected == ()
        judged += 1
    assert judged > 20


@pytest.mark.sampled(5)
@pytest.mark.parametrize("fault", ["rename ENOSPC", "create ENOSPC", "write ENOSPC", "open EMFILE"])
def test_a_segment_that_may_be_mapped_is_never_cut_whatever_becomes_of_the_truncation_that_made_it_the_last_one(
    fault: str,
) -> None:
    """The n-th call is refused, for every n. The file system of the test refuses to cut a file that is mapped."""
    for number in range(1, 60):
        fs = FaultyFileSystem(MemoryFileSystem())
        with pylog.open("/s", fs=fs, clock=ManualClock(NOW)) as store:
            log = sized(store)
            for offset in range(15):
                log.append(digit(offset))
            kept = [segment.file().mapping for segment in segments_of(log)[:2]]  # as who reads them now
            assert not any(each is None for each in kept)
            fs.fail(fault, number)
            with contextlib.suppress(StorageFailedError):
                log.truncate(3)
            fired = fs.fired
            fs.heal()
            log.truncate(2)
            assert log.append(digit(2)) == 2
            assert values(log) == digits(range(3))
        if not fired:
            return
    pytest.fail("the calls never came to an end")


@pytest.mark.sampled(3)
@pytest.mark.pair("truncation", "close")
@pytest.mark.parametrize(
    ("fault", "closed"),
    [("rename ENOSPC", False), ("rename ENOSPC", True), ("rename EIO", True)],
    ids=["open", "closed-between", "failed-and-closed"],
)
def test_a_sealed_segment_left_as_the_last_one_is_not_cut_by_the_next_truncation(fault: str, closed: bool) -> None:
    """All renames fail from the n-th on, for every n. The file system of the test refuses to cut a file that is mapped."""
    ends_met = set()
    for number in range(1, 60):
        fs = FaultyFileSystem(MemoryFileSystem())
        with contextlib.ExitStack() as stores:
            store = stores.enter_context(pylog.open("/s", fs=fs, clock=ManualClock(NOW)))
            log = sized(store)
            for offset in range(15):
                log.append(digit(offset))
            kept = [segment.file().mapping for segment in segments_of(log)[:2]]
            fs.fail(fault, number, forever=True)
            with contextlib.suppress(StorageFailedError):
                log.truncate(3)
            fired = fs.fired
            fs.heal()
            if closed:
                store.close()
                log = stores.enter_context(pylog.open("/s", fs=fs, clock=ManualClock(NOW))).log("t")
            ends_met.add(log.end_offset)
            for end in (7, 6, 2):
                with contextlib.suppress(OffsetOutOfRangeError):  # the first truncation went further, before it failed
                    log.truncate(end)
                assert log.end_offset <= end
                assert values(log) == digits(range(log.end_offset))
            assert log.append(digit(2)) == 2
            assert not any(each is None for each in kept)
        if not fired:
            assert ends_met >= ({3, 10, 15} if fault == "rename EIO" else {3, 15})
            return
    pytest.fail("the calls never came to an end")


def batch_and_a_segment_behind_it(store: Store) -> None:
    store.create_topic("t", segment_bytes=150)
    store.log("t").append_many([b"one", b"two", b"three"])
    store.log("t").append(bytes(50))
    assert bases(store.log("t")) == [0, 3]


def gap_and_nothing_else(store: Store) -> None:
    """Closed afterwards, so that files are there that tell of an end at 3."""
    store.create_topic("t")
    store.log("t").append_many([b"one", b"two", b"three", b"four"])
    store.log("t").truncate(3)


@pytest.mark.slow
@pytest.mark.parametrize("made", [batch_and_a_segment_behind_it, gap_and_nothing_else])
def test_a_truncation_inside_a_batch_that_a_crash_cuts_short_reuses_no_offset_below_its_end_and_is_no_loss(
    made: Callable[[Store], None],
) -> None:
    """Only the header knows where a log ends that ends with a gap. Both were found by the model of a log."""
    fs, clock = RecordingFileSystem(), ManualClock(NOW)
    with pylog.open("/s", fs=fs, clock=clock) as store:
        made(store)
    with pylog.open("/s", fs=fs, clock=clock) as store:
        before = len(fs.recording)
        store.log("t").truncate(2)
        last = len(fs.recording)
    judged = 0
    for after in range(before, last + 1):
        moment, rng = Moment.of(fs.recording, after), random.Random(after)
        for crash in (*moment.crashes(rng, 6, 2), *moment.deaths(rng, 1)):
            again = restarted(fs.recording, crash, clock=clock)
            with pylog.open("/s", fs=again, clock=clock) as store:
                assert {finding.kind for finding in store.log("t").recovery_report} <= {"torn", "rebuilt"}
                end = store.log("t").end_offset
                assert 2 <= end <= 4
                assert store.log("t").append(b"next") == end
            judged += 1
    assert judged > 60


@pytest.mark.damaged("its first segment is removed")
def test_epochs_that_tell_of_a_first_segment_that_is_lost_go_on_telling_it_when_the_log_is_written(
    path: Path, store: Store
) -> None:
    for number in range(15):
        (store.log("t") if number else sized(store)).append(digit(number))
    store.close()
    for file in (path / "t-0").glob(f"{0:020d}.*"):
        file.unlink()
    for _ in range(2):
        with pylog.open(path) as again:
            again.log("t").append(b"x")
        assert [(each.finding.kind, each.first_offset) for each in verify(str(path)).affected] == [("missing", 0)]


TRIMS = pytest.mark.parametrize(
    "trim",
    [lambda log: log.truncate(3), lambda log: log.truncate(12), lambda log: log.delete_records(11)],
    ids=["truncate-sealed", "truncate-active", "delete-records"],
)


@pytest.mark.slow
@pytest.mark.parametrize("call", ["write", "rename", "create", "truncate", "remove"])
@TRIMS
def test_a_trim_that_there_is_no_room_for_can_be_done_once_there_is(
    tmp_path: Path, call: str, trim: Callable[[pylog.Log], object]
) -> None:
    """The n-th call of a kind is refused, for every n: the log goes on without being opened again."""
    for number in range(1, 60):
        path, fs = tmp_path / f"{number}", HookedFileSystem()
        with pylog.open(path, fs=fs) as store:
            log = sized(store)
            for offset in range(15):
                log.append(digit(offset))
            failed = not succeeds(lambda log=log: trim(log), fs, call, number)
            trim(log)
            end = log.end_offset
            assert (log.start_offset, end) in ((0, 3), (0, 12), (11, 15))
            assert log.append(digit(end)) == end
            assert values(log) == digits(range(log.start_offset, end + 1))
        if not failed:
            return
    pytest.fail("the calls never came to an end")


@pytest.mark.slow
@pytest.mark.parametrize("call", ["write", "sync", "rename", "create", "truncate", "sync_directory", "remove"])
@TRIMS
def test_a_trim_that_fails_half_way_loses_nothing_but_what_was_to_go(
    tmp_path: Path, call: str, trim: Callable[[pylog.Log], object]
) -> None:
    """The n-th call of a kind fails, for every n: the log is a piece of what it was, between the old ends and the new ones."""
    for number in range(1, 60):
        path, fs = tmp_path / f"{number}", HookedFileSystem()
        store = pylog.open(path, fs=fs)
        log = sized(store)
        for offset in range(15):
            log.append(digit(offset))
        failed = not succeeds(lambda log=log: trim(log), fs, call, number)
        store.close()
        with pylog.open(path) as again:
            log = again.log("t")
            assert log.start_offset in (0, 11)
            assert 3 <= log.end_offset <= 15
            assert values(log) == digits(range(log.start_offset, log.end_offset))
            assert log.append(b"x") == log.end_offset - 1
            assert {finding.kind for finding in again.recovery_report} <= {"rebuilt"}
        if not failed:
            return
    pytest.fail("the calls never came to an end")


def succeeds(action: Callable[[], object], fs: HookedFileSystem, call: str, number: int) -> bool:
    """Does something while the n-th call of a kind fails; whether it took less than n of them."""
    last = fs.count(call) + number

    def meet() -> None:
        if fs.count(call) == last:
            fail_sync() if call.startswith("sync") else fail()
        fs.before(call, "", meet)

    fs.before(call, "", meet)
    try:
        action()
    except StorageFailedError:
        return False
    finally:
        fs.forget()
    return True


@pytest.mark.slow
@pytest.mark.pair("truncation", "broker's directory", "crash")
@pytest.mark.parametrize(
    "kind",
    ["write EIO", "sync EIO", "create ENOSPC", "rename EIO", "truncate EIO", "sync_directory EIO", "remove EIO", "read EIO"],
)
def test_a_segment_that_was_sealed_is_never_cut_in_place_after_a_truncation_failed_half_way(tmp_path: Path, kind: str) -> None:
    """The n-th call of a kind fails, for every n. A broker seals without a file, so only what the truncation has left tells."""
    for number in range(1, 60):
        path, fs = tmp_path / f"{number}", FaultyFileSystem(OsFileSystem())
        with pylog.open(path) as store:
            log = sized(store)
            for offset in range(15):
                log.append(digit(offset))
        for seal in (path / "t-0").glob("*.seal"):
            seal.unlink()
        sealed = sorted((path / "t-0").glob("*.log"))[:-1]
        mapped = [(name.stat().st_size, os.open(name, os.O_RDONLY)) for name in sealed]  # as readers have them
        with contextlib.suppress(StorageFailedError), pylog.open(path, fs=fs) as store:
            log = store.log("t")
            fs.fail(kind, number)
            with contextlib.suppress(StorageFailedError):
                log.truncate(1)
        failed = fs.fired
        with pylog.open(path) as again:
            log = again.log("t")
            for end in range(log.end_offset - 1, log.start_offset, -1):
                log.truncate(end)
        assert [os.fstat(file).st_size for _, file in mapped] == [size for size, _ in mapped]
        for _, file in mapped:
            os.close(file)
        if not failed:
            return
    pytest.fail("the calls never came to an end")
