"""Zeros that are written after a log's end make syncs cheaper and change nothing else, for any read and after any death."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import pylog
from pylog import Durability, limits
from pylog.directory.checkpoints import CLEAN_SHUTDOWN
from pylog.log.writing.active_file import ActiveFile
from pylog.segment.segment import LogSegment
from pylog.store import Store
from pylog.testing import FaultyFileSystem, MemoryFileSystem
from pylog.tools.dump import documents
from pylog.tools.verify import verify
from support.engines import writer_of
from support.faults.neighbours import HookedFileSystem, values

ROOM = 1000
VALUE = bytes(range(30))
LOG = "/data/t-0/00000000000000000000.log"


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Zeros behind the third synced append, and few."""
    monkeypatch.setattr(limits, "PREALLOCATE_AFTER", 3)
    monkeypatch.setattr(limits, "PREALLOCATED_BYTES", ROOM)


@pytest.fixture
def fs() -> MemoryFileSystem:
    return MemoryFileSystem()


@pytest.fixture
def store(fs: MemoryFileSystem) -> Iterator[Store]:
    with opened(fs) as store:
        store.create_topic("t")
        yield store


def opened(fs: MemoryFileSystem, mode: str = "rw") -> Store:
    return pylog.open("/data", mode, fs=fs, clock=fs.clock)


def append(log: pylog.Log, count: int = 3, **options: Durability) -> None:
    for _ in range(count):
        log.append(VALUE, **options)


def size(fs: MemoryFileSystem, path: str = LOG) -> int:
    file = fs.open(path)
    try:
        return file.size()
    finally:
        file.close()


def published(log: pylog.Log) -> int:
    return log.segments[-1].size


# ---- when --------------------------------------------------------------------------------------------------------------------


def test_zeros_are_written_after_a_run_of_syncs_and_again_when_too_few_are_left_for_the_next_append(
    fs: MemoryFileSystem, store: Store
) -> None:
    log, sizes = store.log("t"), []
    for _ in range(16):
        append(log, 1)
        sizes.append(size(fs) - published(log))
    taken = published(log) // 16
    used = [ROOM - taken * number for number in range(ROOM // taken)]
    assert used[-1] - taken < taken
    again = used[-1] - taken + ROOM
    assert sizes == [0, 0, *used, *(again - taken * number for number in range(16))][:16]


def test_a_log_without_syncs_has_no_zeros(fs: MemoryFileSystem, store: Store) -> None:
    log = store.log("t")
    append(log, 9, durability=Durability.OS)
    append(log, 2)
    append(log, 1, durability=Durability.OS)
    append(log, 2)
    assert size(fs) == published(log)


def test_no_zeros_are_written_after_a_large_commit(fs: MemoryFileSystem, store: Store) -> None:
    log = store.log("t")
    append(log, 2)
    log.append_many([bytes(1000)] * (limits.PREALLOCATE_UP_TO_BYTES // 1000 + 1))
    assert size(fs) == published(log)
    append(log, 1)
    assert size(fs) == published(log) + ROOM


def test_they_cost_no_sync_of_their_own(tmp_path: Path) -> None:
    fs = HookedFileSystem()
    with pylog.open(tmp_path, fs=fs) as store:
        store.create_topic("t")
        append(store.log("t"), 1)
        before = fs.count("sync", ".log")
        append(store.log("t"), 40)
        assert fs.count("sync", ".log") == before + 40


def test_they_end_where_the_segment_may(fs: MemoryFileSystem, store: Store) -> None:
    log = store.create_topic("small", segment_bytes=700) and store.log("small")
    append(log)
    assert size(fs, LOG.replace("t-0", "small-0")) == 700


@pytest.mark.parametrize("left", [0, 5])
def test_an_append_into_zeros_notices_that_another_process_has_cut_them_off(fs: MemoryFileSystem, left: int) -> None:
    fs.make_directory("/data")
    file = ActiveFile(fs.create("/data/x.log"), 0)
    for end in (30, 60, 90):
        file.put(memoryview(VALUE), end - 30, send_from=0)
        file.after_commit(end, 30, 1 << 20, synced=True)
    assert file.end == 90 + ROOM
    assert file.is_unchanged_since(90)
    file.raw.truncate(90 + left)
    assert not file.is_unchanged_since(90)


# ---- until -------------------------------------------------------------------------------------------------------------------


def test_a_segment_is_sealed_without_them(fs: MemoryFileSystem, store: Store) -> None:
    log = store.create_topic("small", segment_bytes=700) and store.log("small")
    append(log, 30)
    for segment in log.segments[:-1]:
        assert size(fs, segment.path) == segment.size
    assert values(log) == [VALUE] * 30


def test_a_log_is_closed_without_them_and_the_marker_stands(fs: MemoryFileSystem, store: Store) -> None:
    append(store.log("t"))
    end = published(store.log("t"))
    assert size(fs) > end
    store.close()
    after = fs.crash()
    assert size(after) == end
    assert after.exists(f"/data/{CLEAN_SHUTDOWN}")


def test_a_truncated_log_has_none_and_goes_on(fs: MemoryFileSystem, store: Store) -> None:
    log = store.log("t")
    append(log, 4)
    log.truncate(2)
    assert size(fs) == published(log)
    append(log, 4)
    assert values(log) == [VALUE] * 6


def test_a_failed_append_is_cut_off_with_them(fs: MemoryFileSystem) -> None:
    faulty = FaultyFileSystem(fs)
    with pylog.open("/data", fs=faulty, clock=fs.clock) as store:
        log = store.create_topic("t") and store.log("t")
        append(log, 4)
        end = published(log)
        faulty.fail("short write ENOSPC", of=".log")
        with pytest.raises(pylog.StorageFailedError):
            log.append(VALUE)
        faulty.heal()
        assert size(fs) == published(log) == end
        append(log, 4)
        assert values(log) == [VALUE] * 8
        assert store.check().ok


def test_a_failed_append_reads_the_segment_once_to_go_back_and_knows_what_it_knew(
    fs: MemoryFileSystem, monkeypatch: pytest.MonkeyPatch
) -> None:
    walks, regions = [], LogSegment.regions
    faulty = FaultyFileSystem(fs)
    with pylog.open("/data", fs=faulty, clock=fs.clock) as store:
        log = store.create_topic("t", index_interval_bytes=100, segment_bytes=3000) and store.log("t")
        append(log, 10)
        with monkeypatch.context() as patched:
            patched.setattr(LogSegment, "regions", lambda *given, **options: walks.append(given) or regions(*given, **options))
            faulty.fail("short write ENOSPC", of=".log")
            with pytest.raises(pylog.StorageFailedError):
                log.append(VALUE)
            assert len(walks) == 1
        faulty.heal()
        append(log, 40)  # sealed meanwhile, by the digest and the index that go on
        assert values(log) == [VALUE] * 50
        assert len(log.segments) > 1
        assert store.verify().ok


@pytest.mark.parametrize("kind", ["write ENOSPC", "write EIO", "short write ENOSPC"])
def test_where_there_is_no_room_for_them_the_append_is_made_all_the_same(fs: MemoryFileSystem, kind: str) -> None:
    faulty = FaultyFileSystem(fs)
    with pylog.open("/data", fs=faulty, clock=fs.clock) as store:
        log = store.create_topic("t") and store.log("t")
        append(log, 2)
        faulty.fail(kind, 2, of=".log")  # the first one is the batch
        append(log, 1)
        assert faulty.fired == 1
        assert size(fs) == published(log)
        append(log, 10)
        assert size(fs) == published(log)  # nor is it tried again soon
        assert values(log) == [VALUE] * 13


def test_if_they_can_neither_be_written_nor_taken_back_the_log_goes_on(fs: MemoryFileSystem) -> None:
    class Stuck(FaultyFileSystem):
        """Behind the first fault no file can be cut."""

        def meet(self, call: str, path: str) -> None:
            if call == "truncate" and self.fired:
                self.fail("truncate EIO")
            super().meet(call, path)

    stuck = Stuck(fs)
    with pylog.open("/data", fs=stuck, clock=fs.clock) as store:
        log = store.create_topic("t") and store.log("t")
        append(log, 2)
        stuck.fail("short write ENOSPC", 2, of=".log")
        append(log, 1)
        stuck.heal()
        append(log, 4)
        assert values(log) == [VALUE] * 7
        assert log.durable_offset == 7


# ---- what others see ---------------------------------------------------------------------------------------------------------


def test_readers_checks_and_verification_do_not_see_them(fs: MemoryFileSystem, store: Store) -> None:
    log = store.log("t")
    append(log, 4)
    assert size(fs) > published(log)
    assert store.check().ok
    with opened(fs.process(), "r") as reading:
        reader = reading.log("t")
        assert values(reader) == [VALUE] * 4
        append(log, 1)
        assert reader.wait_for(4, timeout_ms=0)
        assert values(reader) == [VALUE] * 5
        assert reading.recovery_report == ()
    assert verify("/data", fs=fs).ok


def test_two_writers_share_them(fs: MemoryFileSystem, store: Store) -> None:
    log = store.log("t")
    append(log, 4)
    with opened(fs.process()) as second:
        other = second.log("t")
        for number in range(20):
            assert (log, other)[number % 2].append(VALUE) == 4 + number
        assert size(fs) > published(log)
        assert values(log) == values(other) == [VALUE] * 24
    assert values(log) == [VALUE] * 24
    append(log, 4)
    assert store.check().ok
    assert store.recovery_report == ()


# ---- after a crash -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("ending", ["kill", "power"])
def test_zeros_that_a_crash_leaves_are_no_finding_and_the_next_append_cuts_them_off(fs: MemoryFileSystem, ending: str) -> None:
    after = crashed(fs, 4, ending)
    with opened(after, "r") as reading:
        assert values(reading.log("t")) == [VALUE] * 4
        assert reading.recovery_report == ()
    assert verify("/data", fs=after).ok
    with opened(after) as store:
        log = store.log("t")
        assert values(log) == [VALUE] * 4
        assert store.recovery_report == ()
        assert size(after) > published(log)
        assert log.append(VALUE) == 4
        assert size(after) == published(log)
        assert store.check().ok
    assert after.exists(f"/data/{CLEAN_SHUTDOWN}")
    assert not [entry.name for entry in after.list("/data/t-0") if "torn" in entry.name]


@pytest.mark.parametrize("ending", ["kill", "power"])
def test_a_store_that_only_read_the_zeros_leaves_no_clean_marker_under_which_a_broker_would_take_them_for_batches(
    fs: MemoryFileSystem, ending: str
) -> None:
    after = crashed(fs, 4, ending)
    with opened(after) as store:
        assert store.log("t").end_offset == 4
    assert not after.exists(f"/data/{CLEAN_SHUTDOWN}")


def test_tools_call_them_what_they_are_and_verify_tells_of_them_only_where_a_broker_would_stumble(fs: MemoryFileSystem) -> None:
    after = crashed(fs, 4, "kill")
    end = size(after) - ROOM
    *batches, last = documents(after, LOG)
    assert [batch["kind"] for batch in batches] == ["batch"] * 4
    position = batches[-1]["position"] + batches[-1]["size"]
    assert last == {"kind": "preallocated", "position": position, "size": size(after) - position}
    assert end < position
    assert verify("/data", fs=after).affected == ()
    after.create(f"/data/{CLEAN_SHUTDOWN}").close()
    assert [each.finding.kind for each in verify("/data", fs=after).affected] == ["behind"]


def test_a_batch_that_a_dead_process_wrote_among_them_is_kept_whole(fs: MemoryFileSystem, store: Store) -> None:
    log = store.log("t")
    append(log, 4)
    batch = fs.read(LOG, 1 << 20)[: published(log) // 4]  # type: ignore[index]
    write(fs, (4).to_bytes(8, "big") + batch[8:], published(log))
    assert log.append(b"next") == 5
    assert values(log) == [VALUE] * 5 + [b"next"]
    assert store.recovery_report == ()


def test_a_batch_that_a_dead_process_wrote_among_them_is_kept_by_one_that_has_only_read_so_far(
    fs: MemoryFileSystem, store: Store
) -> None:
    log = store.log("t")
    append(log, 4)
    with opened(fs.process()) as second:
        other = second.log("t")
        assert other.end_offset == 4
        batch = fs.read(LOG, 1 << 20)[: published(log) // 4]  # type: ignore[index]
        write(fs, (4).to_bytes(8, "big") + batch[8:], published(log))
        assert other.append(b"next") == 5
        assert values(log) == values(other) == [VALUE] * 5 + [b"next"]


@pytest.mark.parametrize("cut", [8, 12, 13, 61, 90])
def test_half_a_batch_that_a_dead_process_wrote_among_them_is_kept_aside(fs: MemoryFileSystem, store: Store, cut: int) -> None:
    log = store.log("t")
    append(log, 4)
    end, batch = published(log), fs.read(LOG, 1 << 20)
    assert batch is not None
    half = ((4).to_bytes(8, "big") + batch[8:])[:cut]
    write(fs, half, end)
    assert log.append(b"next") == 4
    assert values(log) == [VALUE] * 4 + [b"next"]
    aside = fs.read(LOG.replace(".log", ".torn.0"), 1 << 20)
    assert aside is not None
    assert aside.rstrip(b"\0") == half.rstrip(b"\0")
    assert [finding.kind for finding in store.recovery_report] == ["torn"]


def test_records_that_were_acknowledged_and_read_as_zeros_are_missed(fs: MemoryFileSystem) -> None:
    after = crashed(fs, 3, "kill")
    one = (size(after) - ROOM) // 3
    write(after, bytes(one), 2 * one)
    with opened(after) as store:
        log = store.log("t")
        assert [finding.kind for finding in store.recovery_report] == ["corrupt"]
        with pytest.raises(pylog.CorruptionError):
            log.append(VALUE)
    assert not verify("/data", fs=after).ok


@pytest.mark.parametrize("place", range(8, 12), ids=lambda place: f"length byte {place}")
def test_a_record_between_damage_and_zeros_stays_readable(fs: MemoryFileSystem, place: int) -> None:
    after = crashed(fs, 5, "kill")
    one = (size(after) - ROOM) // 3  # the zeros came with the third
    data = after.read(LOG, 1 << 20)
    assert data is not None
    write(after, bytes([data[3 * one + place] ^ 64]), 3 * one + place)
    found = verify("/data", fs=after)
    assert [(each.finding.kind, each.first_offset, each.last_offset) for each in found.affected] == [("corrupt", 3, 3)]
    with opened(after, "r") as store:
        assert store.log("t").end_offset == 5
        assert store.log("t").read(4).value == VALUE


def test_one_file_is_verified_as_a_directory_is(fs: MemoryFileSystem) -> None:
    """But that nothing says there whose zeros they are: they are told of, as what is behind an end, and are no damage."""
    found = verify(LOG, fs=crashed(fs, 4, "kill"))
    assert found.ok
    assert [each.finding.kind for each in found.affected] == ["behind"]


def test_a_checkpoint_of_a_longer_log_is_reported_although_zeros_follow_this_one(fs: MemoryFileSystem) -> None:
    after = crashed(fs, 4, "kill")
    file = after.create("/data/recovery-point-offset-checkpoint")
    file.write(memoryview(b"0\n1\nt 0 50\n"), 0)
    file.close()
    assert not verify("/data", fs=after).ok


@pytest.mark.parametrize("tells_boots_apart", [True, False])
def test_no_marker_is_written_above_zeros_that_another_process_has_left(
    fs: MemoryFileSystem, tells_boots_apart: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not tells_boots_apart:
        monkeypatch.setattr(MemoryFileSystem, "boot_id", lambda _: b"")
    with opened(fs) as store:
        store.create_topic("t")
    one, two = fs.process(), fs.process()
    staying, dying = opened(one), opened(two)
    append(dying.log("t"))
    two.kill()
    staying.close()
    assert size(fs) > ROOM
    assert not fs.exists(f"/data/{CLEAN_SHUTDOWN}")


@pytest.mark.parametrize("call", ["truncate", "create", "rename"])
def test_an_interrupt_while_a_log_is_put_to_rest_does_not_keep_it_from_going_on(fs: MemoryFileSystem, call: str) -> None:
    class Interrupting(FaultyFileSystem):
        armed = False

        def meet(self, made: str, path: str) -> None:
            if self.armed and made == call:
                self.armed = False
                raise KeyboardInterrupt
            super().meet(made, path)

    interrupting = Interrupting(fs)
    with pylog.open("/data", fs=interrupting, clock=fs.clock) as store:
        log = store.create_topic("t") and store.log("t")
        append(log)
        interrupting.armed = True
        with pytest.raises(KeyboardInterrupt):
            writer_of(log).release()
        append(log, 2)
        assert values(log) == [VALUE] * 5


def crashed(fs: MemoryFileSystem, count: int, ending: str) -> MemoryFileSystem:
    """What is left of a store whose process dies, or whose machine loses power, behind so many appends."""
    running = fs.process()
    log = (store := opened(running)).create_topic("t") and store.log("t")
    append(log, count)
    assert size(running) > published(log)
    if ending == "power":
        return running.crash()
    running.kill()
    return fs.process()


def write(fs: MemoryFileSystem, data: bytes, position: int) -> None:
    file = fs.open(LOG, write=True)
    file.write(memoryview(data), position)
    file.sync()
    file.close()
