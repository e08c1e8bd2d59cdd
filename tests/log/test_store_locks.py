"""Who may write a directory at the same time: brokers and pylog keep each other out, so do machines and `exclusive` stores.

Open-file-description locks belong to a descriptor, so two stores of one process keep each other out as two processes do.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import pylog
from pylog.clock import ManualClock, SystemClock
from pylog.directory.byte_lock import ByteLock
from pylog.directory.locks import KAFKA_LOCK, PYLOG_LOCK, StoreLocks
from pylog.errors import StorageFailedError
from pylog.fs import OsFileSystem
from pylog.fs.locks import OsLockFile
from pylog.store import manager_of
from pylog.testing import MemoryFileSystem
from support.faults.neighbours import HookedFileSystem, Neighbour, NeighbourError

LockAs = Callable[..., StoreLocks]


@pytest.fixture
def locks(tmp_path: Path) -> Iterator[LockAs]:
    """Makes the locks of a store on `tmp_path`; closed with the test."""
    made: list[StoreLocks] = []

    def make(*, exclusive: bool = False, timeout_ms: int = 0, clock: ManualClock | SystemClock | None = None) -> StoreLocks:
        made.append(StoreLocks(OsFileSystem(), str(tmp_path), clock or ManualClock(), exclusive=exclusive, timeout_ms=timeout_ms))
        return made[-1]

    yield make
    for each in made:
        each.close()


def boot_id() -> bytes:
    return OsFileSystem().boot_id()


# ---- between stores --------------------------------------------------------------------------------------------------------


def test_the_first_one_was_alone_and_the_next_ones_were_not(locks: LockAs) -> None:
    assert [locks().was_alone for _ in range(3)] == [True, False, False]


def test_a_store_is_alone_again_only_when_all_others_have_left(locks: LockAs) -> None:
    first, second, third = (locks() for _ in range(3))
    second.close()
    assert not first.alone()
    third.close()
    assert first.alone()


def test_a_store_that_found_itself_alone_keeps_all_others_out_until_it_closes(locks: LockAs) -> None:
    first = locks()
    assert first.alone()
    with pytest.raises(pylog.StoreLockedError):
        locks()
    first.close()
    assert locks().was_alone


def test_a_store_that_checks_whether_it_is_alone_lets_others_in_again(locks: LockAs) -> None:
    first = locks()
    with first.alone_meanwhile() as alone:
        assert alone
        with pytest.raises(pylog.StoreLockedError):
            locks()
    second = locks()
    with first.alone_meanwhile() as alone:
        assert not alone
    assert not second.was_alone


def test_an_exclusive_store_keeps_all_others_out_and_they_it(locks: LockAs) -> None:
    first = locks(exclusive=True)
    for exclusive in (False, True):
        with pytest.raises(pylog.StoreLockedError, match="exclusive" if not exclusive else "another pylog process"):
            locks(exclusive=exclusive)
    first.close()
    shared = locks()
    with pytest.raises(pylog.StoreLockedError, match="another pylog process or store"):
        locks(exclusive=True)
    shared.close()
    locks(exclusive=True)


def test_a_refused_store_leaves_nothing_locked(locks: LockAs) -> None:
    first = locks(exclusive=True)
    with pytest.raises(pylog.StoreLockedError):
        locks()
    first.close()
    assert locks().was_alone


def test_a_store_that_opens_waits_while_another_one_has_its_moment_alone(locks: LockAs, tmp_path: Path) -> None:
    """The exclusive moment in which the boot id is written is none of a broker's: it is waited for."""
    first = locks()
    assert first.alone()
    opened: list[StoreLocks] = []
    thread = threading.Thread(target=lambda: opened.append(locks(timeout_ms=20_000, clock=SystemClock())))
    thread.start()
    first.close()
    thread.join(20)
    assert len(opened) == 1


# ---- one partition ---------------------------------------------------------------------------------------------------------


def test_one_partition_is_changed_by_one_store_at_a_time_and_others_meanwhile(locks: LockAs) -> None:
    one, two = locks(), locks()
    with one.partition("t-0"):
        assert not two.partition("t-0").try_enter()
        with two.partition("t-1"), two.cleaner("t-0"), two.root:
            pass
    with two.partition("t-0"):
        assert not one.partition("t-0").try_enter()


def test_a_partitions_lock_is_the_same_object_each_time(locks: LockAs) -> None:
    one = locks()
    assert one.partition("t-0") is one.partition("t-0")
    assert one.partition("t-0") is not one.cleaner("t-0")


def test_a_thread_may_enter_again_and_leaves_with_the_last_exit(locks: LockAs) -> None:
    one, two = locks(), locks()
    lock = one.partition("t-0")
    with lock:
        with lock:
            pass
        assert lock.try_enter()
        lock.__exit__(None, None, None)
        assert not two.partition("t-0").try_enter()
    assert two.partition("t-0").try_enter()


def entered_by_another_thread(lock: Any) -> bool:
    """True if another thread got the lock."""
    with ThreadPoolExecutor(1) as other:
        return other.submit(lock.try_enter).result()


def test_another_thread_of_the_same_store_is_kept_out_too(locks: LockAs) -> None:
    """The threads of a store share one descriptor, so the system's lock would let both in."""
    lock = locks().partition("t-0")
    with lock:
        assert not entered_by_another_thread(lock)


def test_waiting_ends_with_the_time_and_breaks_no_lock(locks: LockAs) -> None:
    clock = ManualClock()
    one, two = locks(), locks(timeout_ms=700, clock=clock)
    with one.partition("t-0"):
        with pytest.raises(pylog.StoreLockedError, match=r"t-0 for 0.7 s"), two.partition("t-0"):
            pass
        assert 0.7 <= clock.monotonic() < 0.71
        assert not two.partition("t-0").try_enter()
    with two.partition("t-0"):
        pass


def test_a_thread_that_waits_for_another_one_is_refused_after_the_same_time(locks: LockAs) -> None:
    lock = locks(timeout_ms=1).partition("t-0")
    refused: list[Exception] = []

    def enter() -> None:
        try:
            with lock:
                pass
        except pylog.StoreLockedError as error:
            refused.append(error)

    with lock:
        thread = threading.Thread(target=enter)
        thread.start()
        thread.join()
    assert len(refused) == 1


def test_an_exclusive_stores_partitions_need_no_lock_of_the_system_but_keep_threads_apart(locks: LockAs) -> None:
    lock = locks(exclusive=True).partition("t-0")
    with lock:
        assert not entered_by_another_thread(lock)
    assert lock.try_enter()


@pytest.mark.slow
def test_the_lock_of_a_process_that_dies_is_free_at_once(tmp_path: Path) -> None:
    with Neighbour() as other, pylog.open(tmp_path) as store:
        store.create_topic("t")
        other.run("store = pylog.open(path); lock = store._manager.locks.partition('t-0'); lock.__enter__()", path=str(tmp_path))
        assert manager_of(store).locks is not None
        assert not manager_of(store).locks.partition("t-0").try_enter()
        other.kill()
        assert manager_of(store).locks.partition("t-0").try_enter()


# ---- brokers ---------------------------------------------------------------------------------------------------------------

AS_A_BROKER = """
import fcntl
file = open(path, "a+b")
fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
"""


@pytest.mark.slow
def test_a_broker_keeps_pylog_from_writing_at_once_and_is_named(tmp_path: Path) -> None:
    with Neighbour() as broker:
        broker.run(AS_A_BROKER, path=str(tmp_path / KAFKA_LOCK))
        with pytest.raises(pylog.StoreLockedError, match=rf"a Kafka broker \(process {broker.pid}\)") as refused:
            pylog.open(tmp_path, lock_timeout_ms=60_000)  # it is not waited for
        assert refused.value.pid == broker.pid
        with pylog.open(tmp_path, mode="r") as store:
            assert store.topics() == {}
        broker.run("file.close()")
        pylog.open(tmp_path).close()


@pytest.mark.parametrize("exclusive", [False, True])
def test_pylog_keeps_a_broker_from_starting(tmp_path: Path, exclusive: bool) -> None:
    with Neighbour() as broker, pylog.open(tmp_path, exclusive=exclusive), pytest.raises(NeighbourError, match="unavailable"):
        broker.run(AS_A_BROKER, path=str(tmp_path / KAFKA_LOCK))


class UnlinkedOnce(OsFileSystem):
    """`.lock` goes right after it was opened for the first time: a broker unlinks it when it stops."""

    unlinked = False

    def open_locks(self, path: str) -> OsLockFile:
        file = super().open_locks(path)
        if path.endswith(KAFKA_LOCK) and not self.unlinked:
            os.unlink(path)
            self.unlinked = True
        return file


def test_a_lock_on_a_file_that_a_stopping_broker_unlinked_is_none(tmp_path: Path) -> None:
    with pylog.open(tmp_path, fs=UnlinkedOnce()):
        assert OsFileSystem().lock_owner(str(tmp_path / KAFKA_LOCK)) is not None
    assert OsFileSystem().lock_owner(str(tmp_path / KAFKA_LOCK)) is None


# ---- machines --------------------------------------------------------------------------------------------------------------


def test_a_store_alone_writes_its_boot_id_into_the_lock_file(locks: LockAs, tmp_path: Path) -> None:
    (tmp_path / PYLOG_LOCK).write_bytes(b"another machine's boot id, and a longer one than ours is")
    locks()
    assert (tmp_path / PYLOG_LOCK).read_bytes().rstrip(b"\0") == boot_id()


def test_a_directory_that_another_machine_has_open_for_writing_is_refused(locks: LockAs, tmp_path: Path) -> None:
    """The volume is shared, the locks are not one system's: what they say here proves nothing."""
    locks()
    (tmp_path / PYLOG_LOCK).write_bytes(b"6cd1aebc-0000-4000-8000-another-boot")
    with pytest.raises(pylog.StoreLockedError, match="another machine"):
        pylog.open(tmp_path)
    with pylog.open(tmp_path, mode="r") as store:
        assert store.topics() == {}
    (tmp_path / PYLOG_LOCK).write_bytes(boot_id())
    pylog.open(tmp_path).close()


def test_a_lock_file_that_is_a_link_is_refused_not_followed(tmp_path: Path) -> None:
    for name in (KAFKA_LOCK, PYLOG_LOCK):
        directory = tmp_path / f"with-{name.strip('.')}"
        directory.mkdir()
        (tmp_path / "elsewhere").write_bytes(b"not ours")
        (directory / name).symlink_to(tmp_path / "elsewhere")
        with pytest.raises(StorageFailedError):
            pylog.open(directory)
        assert (tmp_path / "elsewhere").read_bytes() == b"not ours"


def test_lock_files_are_made_once_and_stay(tmp_path: Path) -> None:
    pylog.open(tmp_path).close()
    inodes = {name: (tmp_path / name).stat().st_ino for name in (KAFKA_LOCK, PYLOG_LOCK)}
    fs = HookedFileSystem()
    with pylog.open(tmp_path, fs=fs) as store:
        store.create_topic("t")
        store.log("t").append(b"x")
        store.delete_topic("t")
    assert {name: (tmp_path / name).stat().st_ino for name in inodes} == inodes
    assert fs.count("remove", KAFKA_LOCK) == fs.count("remove", PYLOG_LOCK) == 0


def test_waiting_for_a_thread_and_then_for_a_process_takes_the_timeout_once(tmp_path: Path) -> None:
    """The thread before keeps the lock for most of the time; another process has the byte meanwhile."""
    clock = SystemClock()

    class Taken:
        def try_take(self) -> bool:
            return False

        def release(self) -> None:
            """Nothing was taken."""

    lock = ByteLock(Taken(), "t-0", clock, 0.6)
    held, leave = threading.Event(), threading.Event()

    def hold() -> None:
        with lock._mutex:
            held.set()
            leave.wait(0.4)

    thread = threading.Thread(target=hold)
    thread.start()
    held.wait()
    began = clock.monotonic()
    with pytest.raises(pylog.StoreLockedError):
        lock.__enter__()
    waited = clock.monotonic() - began
    thread.join()
    assert 0.55 <= waited < 0.95


@pytest.mark.slow
@pytest.mark.pair("second process", "truncation")
def test_threads_that_wait_for_each_other_and_then_for_a_process_are_refused_after_one_timeout(tmp_path: Path) -> None:
    """Those that another thread's append or flush made wait, too; one that came later waits as long as the first one did."""
    clock, waited, timeout = SystemClock(), list[float](), 2.0
    with pylog.open(tmp_path, lock_timeout_ms=int(1000 * timeout)) as one, pylog.open(tmp_path) as two:
        one.create_topic("t")
        log = one.log("t")
        log.append_many([b"x"] * 3)

        def refused(change: Callable[[], object]) -> None:
            began = clock.monotonic()
            with pytest.raises(pylog.StoreLockedError):
                change()
            waited.append(clock.monotonic() - began)

        changes = [
            lambda: log.append(b"y"),
            lambda: log.append(b"y"),
            lambda: log.truncate(1),
            lambda: log.append_many([b"y"] * 3),
        ]
        threads = [threading.Thread(target=refused, args=(change,)) for change in changes]
        with two.log("t").exclusively():
            for thread in threads:
                thread.start()
                clock.sleep(timeout / 8)
            for thread in threads:
                thread.join()
        assert log.end_offset == 3
    assert len(waited) == len(threads)
    assert all(0.95 * timeout <= each < 1.6 * timeout for each in waited), waited


# ---- turns -------------------------------------------------------------------------------------------------------------------


def _laps_until(waiting: ByteLock, held: ByteLock) -> int:
    """How often a lock is entered in a loop, as by a process that appends, before a waiting one has it."""
    done, begun = threading.Event(), threading.Event()

    def wait() -> None:
        begun.set()
        with waiting:
            done.set()

    with held:
        thread = threading.Thread(target=wait)
        thread.start()
        assert begun.wait(60)
        waiting._clock.sleep(0.002)  # it waits now
    laps = 0
    while not done.is_set() and laps < 10_000:
        with held:
            held._clock.sleep(0.00003)
        laps += 1
    thread.join(60)
    return laps


def test_a_process_that_appends_in_a_loop_lets_a_waiting_one_take_its_turn(locks: LockAs) -> None:
    one, two = (locks(timeout_ms=60_000, clock=SystemClock()).partition("t-0") for _ in range(2))
    assert sorted(_laps_until(one, two) for _ in range(9))[4] <= 20


def test_a_waiting_process_that_is_stopped_costs_the_others_little(locks: LockAs, tmp_path: Path) -> None:
    clock = ManualClock()
    lock = locks(clock=clock).partition("t-0")
    stopped = OsLockFile(str(tmp_path / PYLOG_LOCK))
    assert lock._queue is not None
    at = next(iter(_store_bytes(lock)))
    assert stopped.try_lock(at, 1, exclusive=True)
    assert lock._queue.is_held()
    slept = []
    sleep = clock.sleep
    clock.sleep = lambda seconds: (slept.append(seconds), sleep(seconds))[1]  # type: ignore[method-assign,func-returns-value]
    for _ in range(20_000):
        with lock:
            sleep(0.00003)
    assert 0 < sum(slept) <= 0.02 * 20_000 * 0.00003
    stopped.close()


def test_a_process_does_not_wait_for_those_that_wait_when_it_must_not_wait(locks: LockAs, tmp_path: Path) -> None:
    clock = ManualClock()
    lock = locks(clock=clock).partition("t-0")
    stopped = OsLockFile(str(tmp_path / PYLOG_LOCK))
    assert stopped.try_lock(next(iter(_store_bytes(lock))), 1, exclusive=True)
    before = clock.monotonic()
    with lock.entered_if_free() as free:
        assert free
    assert clock.monotonic() == before
    stopped.close()


def _store_bytes(lock: ByteLock) -> list[int]:
    """The place in `pylog.lock` of a lock's queue."""
    assert lock._queue is not None
    return [lock._queue.at]  # type: ignore[attr-defined]


# ---- close -------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("fs", [OsFileSystem(), None], ids=["disk", "memory"])
def test_a_lock_whose_store_was_closed_beneath_a_call_says_so_and_stays_usable_for_other_threads(
    tmp_path: Path, fs: OsFileSystem | None
) -> None:
    here, path = fs or MemoryFileSystem(), str(tmp_path) if fs else "/s"
    pylog.open(path, fs=here).close()
    locks = StoreLocks(here, path, ManualClock(), exclusive=False, timeout_ms=0)
    lock = locks.partition("t-0")
    with lock:
        locks.close()
        assert lock.depth == 1
    for _ in range(2):
        with pytest.raises(pylog.ClosedError, match="open the store again"), lock.entered():
            pass
    assert lock.depth == 0


@pytest.mark.pair("option change", "close")
def test_close_waits_for_a_change_of_options_that_has_reached_no_partition_yet(tmp_path: Path) -> None:
    with pylog.open(tmp_path) as other:
        store = pylog.open(tmp_path)
        store.create_topic("t")
        other.log("t").append(b"x")
        locks = manager_of(other).locks
        assert locks is not None
        answers: list[object] = []
        altering = threading.Thread(target=lambda: answers.append(store.alter_topic("t", retention_ms=1).config.retention_ms))
        closing = threading.Thread(target=store.close)
        with locks.partition("t-0"):
            altering.start()
            while other.topics()["t"].config.retention_ms != 1:
                pass
            closing.start()
            closing.join(0.05)
            assert closing.is_alive()
        altering.join()
        closing.join()
        assert answers == [1]
