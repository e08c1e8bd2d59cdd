"""What an acknowledgement is worth: when a level syncs, what `durable_offset` and `flush` say; a failed sync ends writing."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import pylog
from pylog import Durability, limits
from pylog.errors import StorageFailedError, SyncFailedError
from pylog.log.durable_point import FAILED, DurablePoint, open_header
from pylog.store import Store
from support.engines import segments_of
from support.faults.neighbours import HookedFileSystem, Neighbour, values

PATIENCE = 20.0  # seconds, for what takes milliseconds
NEVER = Durability.INTERVAL(3_600_000)


@pytest.fixture
def store(tmp_path: Path, fs: HookedFileSystem) -> Iterator[Store]:
    with pylog.open(tmp_path, fs=fs) as opened:
        yield opened


@pytest.fixture
def log(store: Store) -> pylog.Log:
    store.create_topic("t")
    made = store.log("t")
    made.append(b"0")
    return made


def slot_of(directory: Path) -> DurablePoint:
    header = open_header(HookedFileSystem(), str(directory))
    assert header is not None
    slot = header.refresh()
    header.close()
    assert slot is not None
    return slot


def fail() -> None:
    raise StorageFailedError("cannot write: no room, for a test", errno=28)


def fail_sync() -> None:
    raise SyncFailedError("cannot sync: no room, for a test", errno=28)


def wait_for_durable(log: pylog.Log, offset: int) -> None:
    assert log.wait_for(offset - 1, timeout_ms=int(PATIENCE * 1000), durable=True) >= offset


def wait_until(met: Callable[[], bool]) -> None:
    """Waits for what the background does."""
    passed, step = 0.0, 0.002
    while not met():
        assert passed < PATIENCE
        threading.Event().wait(step)
        passed += step


# ---- levels ------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("level", "syncs"), [(Durability.SYNC, 1), (Durability.OS, 0), (NEVER, 0)], ids=str)
def test_an_append_syncs_if_its_level_says_so(log: pylog.Log, fs: HookedFileSystem, level: Durability, syncs: int) -> None:
    before = fs.count("sync", ".log")
    assert log.append_batch([b"1", b"2"], durability=level).durability == level
    assert fs.count("sync", ".log") - before == syncs
    assert log.durable_offset == (3 if syncs else 1)
    assert log.end_offset == 3


def test_acknowledged_records_have_been_synced_before(log: pylog.Log, fs: HookedFileSystem) -> None:
    """Written, on its way to the disk, synced, published, in this order."""
    fs.calls.clear()
    log.append(b"1", durability=Durability.SYNC)
    calls = [(call, name[-4:]) for call, name in fs.calls]
    assert calls == [("write", ".log"), ("write_back", ".log"), ("sync", ".log"), ("write", "oint")]


def test_the_disk_works_on_the_first_pieces_of_a_synced_append_while_the_next_are_made(
    log: pylog.Log, fs: HookedFileSystem
) -> None:
    fs.calls.clear()
    log.append_many([bytes(1 << 19)] * 18, durability=Durability.SYNC)
    calls = [call for call, name in fs.calls if name.endswith(".log")]
    pieces = calls.count("write")
    assert pieces > 1
    assert calls == ["write", "write_back"] * pieces + ["sync"]


def test_an_append_that_does_not_sync_leaves_it_to_the_system_when_the_disk_gets_it(log: pylog.Log, fs: HookedFileSystem) -> None:
    log.append(b"1", durability=Durability.SYNC)
    before = fs.count("write_back")
    log.append(b"2", durability=Durability.OS)
    log.append_many([bytes(1 << 19)] * 18, durability=NEVER)
    assert fs.count("write_back") == before


def test_a_log_that_fills_segments_sends_them_to_the_disk_before_they_are_full(
    store: Store, fs: HookedFileSystem, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A roll waits for the sync of a segment. The first one is the system's to write: most logs never fill it."""
    monkeypatch.setattr(limits, "WRITE_BACK_BYTES", 3_000)
    store.create_topic("small", segment_bytes=10_000)
    log = store.log("small")
    while len(log.segments) < 2:
        assert fs.count("write_back") == 0
        log.append(bytes(1_000), durability=Durability.OS)
    while len(log.segments) < 3:
        log.append(bytes(1_000), durability=Durability.OS)
    calls = [call for call, name in fs.calls if name == segments_of(log)[1].log_name and call in ("write", "write_back", "sync")]
    assert calls == (["write"] * 3 + ["write_back"]) * 3 + ["sync"]


def test_a_synced_append_makes_those_before_it_durable_too(log: pylog.Log) -> None:
    log.append(b"1", durability=Durability.OS)
    log.append(b"2", durability=NEVER)
    assert log.durable_offset == 1
    log.append(b"3", durability=Durability.SYNC)
    assert log.durable_offset == 4


def test_a_roll_makes_the_segment_before_it_durable_at_every_level(store: Store) -> None:
    store.create_topic("small", segment_bytes=300)
    log = store.log("small")
    for number in range(30):
        log.append(b"%d" % number, durability=Durability.OS)
    assert log.durable_offset == log.segments[-1].base_offset > 0


def test_the_call_decides_over_the_topic_and_the_topic_over_the_store(tmp_path: Path) -> None:
    with pylog.open(tmp_path, durability=NEVER) as store:
        store.create_topic("plain")
        store.create_topic("os", durability="os")
        store.create_topic("sync", durability="sync")

        def reached(topic: str, level: Durability | None = None) -> Durability:
            return store.log(topic).append_batch([b"x"], durability=level).durability

        assert [reached(topic) for topic in ("plain", "os", "sync")] == [NEVER, Durability.OS, Durability.SYNC]
        assert [reached(topic, Durability.SYNC) for topic in ("plain", "os", "sync")] == [Durability.SYNC] * 3
        assert [reached(topic, Durability.OS) for topic in ("plain", "os", "sync")] == [Durability.OS] * 3


def test_the_level_of_a_topic_is_kept_with_it(tmp_path: Path) -> None:
    with pylog.open(tmp_path) as store:
        store.create_topic("t", durability="interval:3600000")
    with pylog.open(tmp_path) as store:
        assert store.log("t").append_batch([b"x"]).durability == NEVER


def test_every_way_to_append_takes_a_level(log: pylog.Log) -> None:
    import pyarrow as pa

    log.append(b"1", durability=Durability.OS)
    log.append_many([b"2"], durability=Durability.OS)
    log.append_arrow(pa.table({"value": [b"3"]}), durability=Durability.OS)
    log.append_batch([b"4"], durability=Durability.OS)
    assert (log.durable_offset, log.end_offset) == (1, 5)


@pytest.mark.parametrize("wrong", ["disk", 0, True, Durability])
def test_a_value_that_is_no_durability_is_refused_before_anything_is_written(log: pylog.Log, wrong: object) -> None:
    with pytest.raises(pylog.InvalidArgumentError):
        log.append(b"never", durability=wrong)  # type: ignore[arg-type]
    assert log.end_offset == 1


# ---- flush -------------------------------------------------------------------------------------------------------------------


def test_a_flush_makes_everything_durable_with_one_sync_and_is_nothing_when_all_is(
    log: pylog.Log, fs: HookedFileSystem, tmp_path: Path
) -> None:
    log.append_many([b"x"] * 5, durability=Durability.OS)
    before = fs.count("sync")
    log.flush()
    assert log.durable_offset == 6
    assert slot_of(tmp_path / "t-0").durable_offset == 6
    log.flush()
    assert fs.count("sync") - before == 1


def test_a_flush_of_the_store_flushes_all_of_its_logs(store: Store) -> None:
    logs = []
    for name in ("a", "b"):
        store.create_topic(name, partition_count=2)
        logs += [store.log(name, number) for number in range(2)]
    for log in logs:
        log.append(b"x", durability=Durability.OS)
    store.flush()
    assert [log.durable_offset for log in logs] == [1, 1, 1, 1]


def test_a_flush_of_the_store_that_fails_for_one_log_is_done_for_the_others(store: Store, fs: HookedFileSystem) -> None:
    logs = {}
    for name in ("a", "b", "c"):
        store.create_topic(name)
        logs[name] = store.log(name)
        logs[name].append(b"0")
        logs[name].append(b"1", durability=Durability.OS)
    fs.before("sync", ".log", fail_sync)  # the first one
    with pytest.raises(StorageFailedError):
        store.flush()
    assert sorted(log.durable_offset for log in logs.values()) == [1, 2, 2]


def test_closing_flushes(tmp_path: Path) -> None:
    with pylog.open(tmp_path, durability=Durability.OS) as store:
        store.create_topic("t")
        store.log("t").append(b"x")
        assert slot_of(tmp_path / "t-0").durable_offset == 0
    assert slot_of(tmp_path / "t-0").durable_offset == 1


@pytest.mark.slow
def test_the_durable_offset_is_known_after_a_kill(tmp_path: Path) -> None:
    with Neighbour() as other:
        other.run(
            "store = pylog.open(path); store.create_topic('t'); log = store.log('t')\n"
            "log.append_many([b'x'] * 3); log.append_many([b'y'] * 2, durability=pylog.Durability.OS)",
            path=str(tmp_path),
        )
        other.kill()
    with pylog.open(tmp_path) as store:
        log = store.log("t")
        assert (log.durable_offset, log.end_offset) == (3, 5)
        log.flush()
        assert log.durable_offset == 5


# ---- an interval -------------------------------------------------------------------------------------------------------------


def test_an_interval_is_flushed_by_itself(log: pylog.Log, fs: HookedFileSystem, tmp_path: Path) -> None:
    before = fs.count("sync", ".log")
    log.append_many([b"x"] * 3, durability=Durability.INTERVAL(5))
    wait_for_durable(log, 4)
    assert fs.count("sync", ".log") - before == 1
    assert slot_of(tmp_path / "t-0").durable_offset == 4


def test_an_interval_is_flushed_again_and_again(log: pylog.Log) -> None:
    for number in range(5):
        log.append(b"x", durability=Durability.INTERVAL(2))
        wait_for_durable(log, number + 2)


def test_the_shortest_interval_in_use_counts(log: pylog.Log) -> None:
    log.append(b"1", durability=NEVER)
    assert log.durable_offset == 1
    log.append(b"2", durability=Durability.INTERVAL(2))
    wait_for_durable(log, 3)
    log.append(b"3", durability=NEVER)
    wait_for_durable(log, 4)


def test_appends_go_on_while_the_disk_works(log: pylog.Log, fs: HookedFileSystem) -> None:
    """The flush covers what was there when it began."""
    syncing, go_on = threading.Event(), threading.Event()

    def hold_up() -> None:
        syncing.set()
        assert go_on.wait(PATIENCE)

    fs.before("sync", ".log", hold_up)
    log.append(b"1", durability=Durability.INTERVAL(2))
    assert syncing.wait(PATIENCE)
    for number in range(2, 5):
        assert log.append(b"x", durability=NEVER) == number
    assert (log.durable_offset, log.end_offset) == (1, 5)
    the_end = threading.Event()
    fs.before("sync", ".log", the_end.wait)  # the next flush does not come to an end within this test
    go_on.set()
    wait_for_durable(log, 2)
    assert log.durable_offset == 2
    fs.forget()
    the_end.set()


def test_a_flush_that_a_truncation_overtakes_raises_no_error(
    log: pylog.Log, fs: HookedFileSystem, caplog: pytest.LogCaptureFixture
) -> None:
    """Its file is closed under its hands: that is no failure of the disk."""
    done = threading.Event()

    def truncate() -> None:
        log.truncate(1)
        done.set()

    fs.before("sync", ".log", truncate)
    log.append_many([b"x"] * 3, durability=Durability.INTERVAL(2))
    assert done.wait(PATIENCE)
    assert log.append(b"1") == 1
    assert (log.durable_offset, values(log)) == (2, [b"0", b"1"])
    assert caplog.records == []


def test_an_append_that_would_leave_too_much_unsynced_flushes_first(
    log: pylog.Log, fs: HookedFileSystem, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "FLUSH_BYTES", 10_000)
    durable = []
    for _ in range(9):
        log.append(bytes(3000), durability=NEVER)
        durable.append(log.durable_offset)
    assert durable == [1, 1, 1, 4, 4, 4, 7, 7, 7]


def test_the_bound_on_unsynced_bytes_is_raised_before_they_are_written(
    log: pylog.Log, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Recovery tells a torn tail from damage by it."""
    monkeypatch.setattr(limits, "FLUSH_BYTES", 2 * limits.APPEND_CHUNK_BYTES)
    bounds = []
    for level in (Durability.SYNC, NEVER, Durability.SYNC, Durability.OS, Durability.SYNC):
        log.append(b"x", durability=level)
        bounds.append(slot_of(tmp_path / "t-0").unsynced_bytes)
    segment = log.config.segment_bytes
    assert bounds == [limits.APPEND_CHUNK_BYTES, limits.FLUSH_BYTES, limits.FLUSH_BYTES, segment, segment]


@pytest.mark.slow
def test_a_process_flushes_what_another_one_left_when_it_died(tmp_path: Path) -> None:
    """Each flushes for all: the dead one cannot any more."""
    with pylog.open(tmp_path) as store, Neighbour() as other:
        store.create_topic("t")
        log = store.log("t")
        log.append(b"ours", durability=Durability.INTERVAL(2))
        wait_for_durable(log, 1)
        other.run(
            "store = pylog.open(path); store.log('t').append(b'theirs', durability=pylog.Durability.INTERVAL(3_600_000))",
            path=str(tmp_path),
        )
        other.kill()
        wait_until(lambda: slot_of(tmp_path / "t-0").durable_offset == 2)  # nothing is asked of the log meanwhile


@pytest.mark.slow
def test_a_process_flushes_what_another_one_left_in_a_later_segment(tmp_path: Path) -> None:
    with pylog.open(tmp_path) as store, Neighbour() as other:
        store.create_topic("t", segment_bytes=300)
        log = store.log("t")
        log.append(b"ours", durability=Durability.INTERVAL(2))
        wait_for_durable(log, 1)
        other.run(
            "store = pylog.open(path)\n"
            "for _ in range(10): store.log('t').append(bytes(50), durability=pylog.Durability.INTERVAL(3_600_000))",
            path=str(tmp_path),
        )
        other.kill()
        wait_until(lambda: slot_of(tmp_path / "t-0").durable_offset == 11)


def test_the_background_of_a_closed_store_flushes_nothing_any_more(tmp_path: Path) -> None:
    threads = threading.active_count()
    with pylog.open(tmp_path) as store:
        store.create_topic("t")
        store.log("t").append(b"x", durability=Durability.INTERVAL(1))
        assert threading.active_count() == threads + 1
    assert threading.active_count() == threads


# ---- a failed sync -----------------------------------------------------------------------------------------------------------


def refused(action: Callable[[], object], kind: type[Exception]) -> None:
    with pytest.raises(kind):
        action()


def test_after_a_failed_sync_nothing_is_written_until_the_store_is_opened_again(
    tmp_path: Path, store: Store, log: pylog.Log, fs: HookedFileSystem
) -> None:
    fs.before("sync", ".log", fail_sync)
    refused(lambda: log.append(b"not acknowledged"), StorageFailedError)
    writes = fs.count("write", ".log")
    for action in (
        lambda: log.append(b"x"),
        lambda: log.append(b"x", durability=Durability.OS),
        log.flush,
        lambda: log.truncate(0),
        lambda: log.delete_records(1),
        lambda: store.retain("t", now_ms=0),
    ):
        refused(action, pylog.ClosedError)
    assert fs.count("write", ".log") == writes
    assert slot_of(tmp_path / "t-0").flags & FAILED
    assert values(log) == [b"0"]  # reading goes on, with what was acknowledged
    assert (log.end_offset, log.durable_offset) == (1, 1)
    store.close()
    with pylog.open(tmp_path) as again:
        mended = again.log("t")
        assert values(mended) in ([b"0"], [b"0", b"not acknowledged"])
        end = mended.end_offset
        assert mended.append(b"next") == end
        assert slot_of(tmp_path / "t-0").flags == 0


def test_other_partitions_go_on_when_the_sync_of_one_fails(store: Store, log: pylog.Log, fs: HookedFileSystem) -> None:
    store.create_topic("other")
    store.log("other").append(b"0")
    fs.before("sync", ".log", fail_sync)
    refused(lambda: log.append(b"never"), StorageFailedError)
    assert store.log("other").append(b"1") == 1


def test_records_that_a_failed_sync_left_are_written_again_before_they_are_called_durable(
    tmp_path: Path, store: Store, log: pylog.Log, fs: HookedFileSystem
) -> None:
    """Its pages look clean to the system: a second sync alone would succeed and prove nothing."""
    fs.before("sync", ".log", fail_sync)
    refused(lambda: log.append(b"not acknowledged"), StorageFailedError)
    store.close()
    again_fs = HookedFileSystem()
    with pylog.open(tmp_path, fs=again_fs) as again:
        mended = again.log("t")
        left = mended.end_offset
        mended.append(b"next")
        of_log = [call for call, name in again_fs.calls if name.endswith(".log") and call in ("write", "sync")]
        assert of_log == (["write", "sync"] if left == 2 else ["sync"]) + ["write", "sync"]
        assert again.log("t").durable_offset == again.log("t").end_offset


def test_a_failed_write_of_the_header_ends_writing_too(log: pylog.Log, fs: HookedFileSystem) -> None:
    """The records are synced, but who comes next could not be told."""

    def fail_for_good() -> None:
        raise StorageFailedError("cannot write: a bad sector, for a test", errno=5)

    fs.before("write", "durable-point", fail_for_good)
    refused(lambda: log.append(b"x"), StorageFailedError)
    refused(lambda: log.append(b"x"), pylog.ClosedError)


@pytest.mark.parametrize("level", [Durability.SYNC, Durability.OS], ids=str)
def test_a_header_that_there_is_no_room_to_overwrite_costs_the_append_and_nothing_else(
    tmp_path: Path, log: pylog.Log, fs: HookedFileSystem, level: Durability
) -> None:
    """As on a file system that writes a block again each time: other processes still see what was acknowledged."""
    log.append(b"1", durability=Durability.OS)
    fs.before("write", "durable-point", fail)
    refused(lambda: log.append(b"never", durability=level), StorageFailedError)
    with pylog.open(tmp_path, "r") as other:
        assert values(other.log("t")) == [b"0", b"1"]
    assert log.append(b"2", durability=level) == 2
    assert values(log) == [b"0", b"1", b"2"]
    assert slot_of(tmp_path / "t-0").flags == 0


def test_a_flush_that_fails_in_the_background_is_reported_by_the_next_call_and_ends_writing(
    log: pylog.Log, fs: HookedFileSystem, caplog: pytest.LogCaptureFixture
) -> None:
    failed = threading.Event()

    def fail_and_tell() -> None:
        failed.set()
        fail_sync()

    log.append(b"safe")
    fs.before("sync", ".log", fail_and_tell)
    log.append(b"lost, perhaps", durability=Durability.INTERVAL(2))
    assert failed.wait(PATIENCE)
    refused(lambda: _until_it_fails(log), StorageFailedError)
    for _ in range(2):
        refused(lambda: log.append(b"never"), pylog.ClosedError)
    assert log.durable_offset == 2  # these are safe
    assert values(log)[:2] == [b"0", b"safe"]
    for _ in range(2000):  # the background thread logs it after it has released the locks
        if "a sync failed" in caplog.text:
            return
        threading.Event().wait(0.01)
    pytest.fail("the failed sync left no line in the log")


def _until_it_fails(log: pylog.Log) -> None:
    """The flusher has met the error and is about to say so."""
    for _ in range(2000):
        log.append(b"x", durability=Durability.INTERVAL(2))
        threading.Event().wait(0.001)


def test_a_failed_flush_at_closing_is_raised_and_everything_is_closed_all_the_same(tmp_path: Path, fs: HookedFileSystem) -> None:
    store = pylog.open(tmp_path, fs=fs, durability=Durability.OS)
    store.create_topic("t")
    store.log("t").append(b"x")
    fs.before("sync", ".log", fail_sync)
    refused(store.close, StorageFailedError)
    assert not (tmp_path / ".kafka_cleanshutdown").exists()
    refused(lambda: store.log("t"), pylog.ClosedError)
    with pylog.open(tmp_path) as again:
        assert values(again.log("t")) == [b"x"]
        assert again.log("t").append(b"y") == 1


# ---- a failed write ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("level", [Durability.SYNC, Durability.OS, NEVER], ids=str)
def test_a_failed_write_is_cut_off_and_the_next_append_gets_its_offset(
    log: pylog.Log, fs: HookedFileSystem, level: Durability, tmp_path: Path
) -> None:
    fs.before("write", ".log", fail)
    with pytest.raises(StorageFailedError) as failed:
        log.append_many([b"never"] * 3, durability=level)
    assert failed.value.offset == 1
    assert log.append(b"1", durability=level) == 1
    assert values(log) == [b"0", b"1"]
    assert slot_of(tmp_path / "t-0").flags == 0


def test_a_failed_write_that_cannot_be_cut_off_ends_writing(log: pylog.Log, fs: HookedFileSystem) -> None:
    fs.before("write", ".log", fail)
    fs.before("truncate", ".log", fail)
    refused(lambda: log.append(b"never"), StorageFailedError)
    refused(lambda: log.append(b"never"), pylog.ClosedError)
    assert values(log) == [b"0"]


def test_unsynced_records_of_before_survive_a_failed_append(log: pylog.Log, fs: HookedFileSystem) -> None:
    log.append(b"1", durability=Durability.OS)
    fs.before("write", ".log", fail)
    refused(lambda: log.append(b"never", durability=Durability.OS), StorageFailedError)
    assert values(log) == [b"0", b"1"]
    assert log.append(b"2", durability=Durability.SYNC) == 2
    assert log.durable_offset == 3
