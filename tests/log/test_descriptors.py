"""However many partitions a process writes and reads, its open files are bounded (reliability 13)."""

from __future__ import annotations

import gc
import os
import re
import resource
import subprocess
import sys
import textwrap
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

import pylog
from pylog import limits
from pylog.fs import FILES, OpenFiles, OsFileSystem
from support import warm

PARTITIONS = 40
BOUND = 4


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "OPEN_WRITERS", BOUND)


@pytest.fixture
def memory(tmp_path: Path) -> Iterator[Path]:
    """A directory in memory, if there is one: hundreds of logs that close their writers sync thousands of small files."""
    shared = Path("/dev/shm")
    directory = shared / f"pylog-{os.getpid()}-{tmp_path.name}"
    if not os.access(shared, os.W_OK):
        yield tmp_path
        return
    directory.mkdir()
    yield directory
    subprocess.run(["rm", "-r", directory], check=True)


def in_child(limit: int, program: str, *arguments: object) -> str:
    """Runs a program in a process with so many descriptors, and returns what it prints."""
    begin = f"import itertools, os, resource, sys, pylog\nresource.setrlimit(resource.RLIMIT_NOFILE, ({limit}, {limit}))\n"
    return warm.run(["-c", begin + textwrap.dedent(program), *arguments], timeout=600, check=True).stdout


def open_files() -> int:
    return len(os.listdir("/dev/fd" if sys.platform == "darwin" else "/proc/self/fd"))


@pytest.mark.slow
@pytest.mark.usefixtures("few")
@pytest.mark.parametrize("level", [pylog.Durability.SYNC, pylog.Durability.OS])
def test_more_partitions_than_may_be_ready_for_writing_take_appends_in_turn(tmp_path: Path, level: pylog.Durability) -> None:
    before = open_files()
    with pylog.open(tmp_path, durability=level) as store:
        store.create_topic("t", partition_count=PARTITIONS)
        logs = [store.log("t", number) for number in range(PARTITIONS)]
        for turn in range(3):
            for number, log in enumerate(logs):
                assert log.append(b"%d of %d" % (turn, number)) == turn
                assert log.end_offset == turn + 1
        for number, log in enumerate(logs):
            assert [record.value for record in log.records()] == [b"%d of %d" % (turn, number) for turn in range(3)]
        assert open_files() - before < 2 * BOUND + limits.OPEN_FILES + 10
        assert store.check().ok, str(store.check())
    assert (tmp_path / ".kafka_cleanshutdown").exists()
    with pylog.open(tmp_path, mode="r") as store:
        assert all(store.log("t", number).end_offset == 3 for number in range(PARTITIONS))


@pytest.mark.usefixtures("few")
def test_records_of_others_are_taken_once_however_often_writers_rest(tmp_path: Path) -> None:
    """Taken twice it would look as if the file held it twice: damage where there is none."""
    with pylog.open(tmp_path) as one, pylog.open(tmp_path) as two:
        one.create_topic("t", index_interval_bytes=100)
        one.create_topic("u", partition_count=BOUND + 1)
        ones, twos = one.log("t"), two.log("t")

        def rest() -> None:
            for number in range(BOUND + 1):
                two.log("u", number).append(b"in the way")

        for log in (ones, twos, twos, ones):
            log.append(b"x" * 60)
        rest()
        ones.append(b"x" * 60)
        for _ in range(2):
            twos.append_many([b"y" * 60] * 50)
        rest()
        assert twos.end_offset == 105
        assert twos.append(b"z") == 105
        assert two.check().ok, str(two.check())


@pytest.mark.slow
@pytest.mark.usefixtures("few")
def test_a_log_whose_writer_was_closed_still_sees_what_others_append_and_goes_on(tmp_path: Path) -> None:
    with pylog.open(tmp_path) as store, pylog.open(tmp_path) as other:
        store.create_topic("t", partition_count=PARTITIONS)
        log = store.log("t", 0)
        log.append(b"a")
        for number in range(1, PARTITIONS):
            store.log("t", number).append(b"in the way")
        assert log.end_offset == 1
        assert other.log("t", 0).append(b"b") == 1
        assert log.end_offset == 2
        assert log.append(b"c") == 2
        assert [record.value for record in log.records()] == [b"a", b"b", b"c"]
        assert [record.value for record in other.log("t", 0).records()] == [b"a", b"b", b"c"]


# ---- the process's limit -----------------------------------------------------------------------------------------------------

IN_TURN = """
    store = pylog.open(sys.argv[1], durability=pylog.Durability.OS)
    numbers = range(int(sys.argv[2]))
    store.create_topic("t", partition_count=len(numbers))
    for turn in range(2):
        for number in numbers:
            assert store.log("t", number).append(b"%d of %d" % (turn, number)) == turn
    for number in numbers:
        assert [record.value for record in store.log("t", number).records()] == [b"0 of %d" % number, b"1 of %d" % number]
    with store.consumer("t", auto_offset_reset="earliest", consumer_timeout_ms=120_000) as consumer:
        found = {(record.partition, record.offset) for record in itertools.islice(consumer, 2 * len(numbers))}
    assert found == {(number, offset) for number in numbers for offset in range(2)}
    print(len(os.listdir("/dev/fd")))
    store.close()
    reader = pylog.open(sys.argv[1], mode="r")
    assert all(reader.log("t", number).end_offset == 2 for number in numbers)
"""


@pytest.mark.slow
def test_ten_times_as_many_partitions_as_descriptors_are_written_and_read_in_turn(memory: Path) -> None:
    assert int(in_child(256, IN_TURN, memory / "d", 2560)) < 160


@pytest.mark.slow
def test_open_files_are_counted_over_all_stores_of_a_process(memory: Path) -> None:
    program = """
        stores = [pylog.open(f"{sys.argv[1]}-{number}", durability=pylog.Durability.OS) for number in range(10)]
        for store in stores:
            store.create_topic("t", partition_count=30)
            for number in range(30):
                store.log("t", number).append(b"x")
        for store in stores:
            assert all(len(list(store.log("t", number).records())) == 1 for number in range(30))
        readers = [pylog.open(f"{sys.argv[1]}-{number}", mode="r") for number in range(10)]
        assert all(reader.log("t", number).end_offset == 1 for reader in readers for number in range(30))
        print(len(os.listdir("/dev/fd")))
        for store in stores:
            assert all(store.log("t", number).append(b"y") == 1 for number in range(30))
            store.close()
    """
    assert int(in_child(256, program, memory / "d")) < 180


def test_sealed_segments_of_a_store_open_for_writing_need_no_descriptor(tmp_path: Path) -> None:
    with pylog.open(tmp_path, durability=pylog.Durability.OS) as store:
        store.create_topic("t", segment_bytes=200)
        log = store.log("t")
        for _ in range(30):
            log.append(b"x" * 100)
        before = open_files()
        assert len(log.segments) == 30
        assert [log.read(offset).offset for offset in range(30)] == list(range(30))
        assert log.offset_for_timestamp(0) is not None
        assert open_files() <= before + 1  # the active segment's


@pytest.mark.skipif(sys.platform == "darwin", reason="macOS has no list of a process's mappings in a file")
def test_mappings_of_segments_and_their_indexes_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "OPEN_FILES", 5)
    with pylog.open(tmp_path, durability=pylog.Durability.OS) as store:
        store.create_topic("t", segment_bytes=200)
        log = store.log("t")
        for _ in range(30):
            log.append(b"x" * 100)
    with pylog.open(tmp_path) as store:
        log = store.log("t")
        assert [log.read(offset).offset for offset in range(30)] == list(range(30))
        mapped = [line for line in Path("/proc/self/maps").read_text().splitlines() if str(tmp_path) in line]
        assert 0 < len(mapped) <= 3 * 5
        assert [log.read(offset).offset for offset in range(30)] == list(range(30))


HOG = """
    def hogged():
        taken = []
        try:
            while True:
                taken.append(os.open("/dev/null", os.O_RDONLY))
        except OSError:
            return taken
    def freed(taken):
        while taken:
            os.close(taken.pop())
"""


@pytest.mark.slow
def test_a_call_that_finds_no_descriptor_left_has_other_logs_release_theirs(tmp_path: Path) -> None:
    program = (
        HOG
        + """
    store = pylog.open(sys.argv[1], durability=pylog.Durability.OS)
    store.create_topic("t", partition_count=40)
    logs = [store.log("t", number) for number in range(20)]
    for log in logs:
        log.append(b"x")
        assert log.read(0).value == b"x"
    taken = hogged()
    for number in range(40):
        log = store.log("t", number)
        assert log.append(b"y") == (1 if number < 20 else 0)
        assert len(list(log.records())) == log.end_offset
    assert store.topics()["t"].partition_ids == tuple(range(40))
    store.tick()
    freed(taken)
    assert store.check().ok, str(store.check())
    store.close()
    """
    )
    in_child(128, program, tmp_path / "d")


@pytest.mark.slow
def test_without_any_descriptor_the_error_names_ulimit_and_the_store_goes_on_when_there_are_some_again(tmp_path: Path) -> None:
    program = (
        HOG
        + """
    store = pylog.open(sys.argv[1])
    store.create_topic("t", partition_count=8)
    store.log("t", 0).append(b"x")
    told, taken = [], []
    for call in (
        lambda: pylog.open(sys.argv[1] + "-other"),
        lambda: store.log("t", 1).append(b"x"),
        lambda: store.log("t", 0).append(b"x"),
        lambda: list(store.log("t", 0).records()),
        lambda: store.create_topic("u"),
        lambda: store.offsets.commit("g", {("t", 0): 1}),
        store.verify,
    ):
        while more := hogged():  # what the calls before have released
            taken += more
        try:
            call()
        except pylog.PylogError as error:
            told.append(str(error))
        freed(taken)
    assert told and all("ulimit -n" in text for text in told), told
    assert store.log("t", 1).append(b"y") in (0, 1)
    end = store.log("t", 0).end_offset
    assert store.log("t", 0).append(b"z") == end
    assert store.check().ok, str(store.check())
    store.close()
    """
    )
    in_child(128, program, tmp_path / "d")


class _Owner:
    def __init__(self, *, busy: bool = False) -> None:
        self.busy = busy
        self.is_open = True

    def release(self) -> bool:
        self.is_open = self.busy
        return not self.busy


def test_an_owner_that_cannot_release_its_file_stays_counted_and_another_one_is_asked() -> None:
    files = OpenFiles(lambda: 2)
    owners = [_Owner(busy=True), _Owner(), _Owner(), _Owner()]
    for owner in owners:
        files.opened(owner)
    assert [owner.is_open for owner in owners] == [True, False, False, True]
    assert len(files) == 2
    owners[0].busy = False
    files.release()
    assert not any(owner.is_open for owner in owners)
    assert len(files) == 0


def test_the_bound_follows_the_limit_of_the_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (64, 64))
    owners = [_Owner() for _ in range(40)]
    before = len(FILES)
    for owner in owners:
        FILES.opened(owner)
    assert sum(owner.is_open for owner in owners) == 16
    assert len(FILES) <= max(before, 16)
    FILES.release()


@pytest.mark.slow
def test_threads_that_release_each_other_s_files_read_and_write_on(memory: Path) -> None:
    program = """
        import threading
        store = pylog.open(sys.argv[1], durability=pylog.Durability.OS)
        store.create_topic("t", partition_count=64)
        failed = []

        def work(first):
            try:
                for turn in range(4):
                    for number in [*range(first, 64), *range(first)]:
                        log = store.log("t", number)
                        offset = log.append(b"%d" % number)
                        assert log.read(offset).value == b"%d" % number
                        assert {record.value for record in log.records()} == {b"%d" % number}
            except BaseException as error:
                failed.append(error)
                raise

        threads = [threading.Thread(target=work, args=(8 * number,)) for number in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not failed, failed
        assert all(store.log("t", number).end_offset == 32 for number in range(64))
        store.close()
    """
    in_child(96, program, memory / "d")


def test_a_forked_child_opens_files_while_another_thread_of_the_parent_does(tmp_path: Path) -> None:
    """A lock that the other thread held at the fork would stop the child."""
    with pylog.open(tmp_path / "d", durability=pylog.Durability.OS) as store:
        store.create_topic("t", segment_bytes=200)
        log = store.log("t")
        for _ in range(5):
            log.append(b"x" * 100)
        held, go = threading.Event(), threading.Event()

        def hold() -> None:
            with FILES._guard:
                held.set()
                go.wait()

        thread = threading.Thread(target=hold)
        thread.start()
        held.wait()
        child = os.fork()
        if child == 0:
            try:
                with pylog.open(tmp_path / "d", mode="r") as reader:
                    os._exit(reader.log("t").end_offset)
            except BaseException:  # noqa: BLE001 - the child must end here
                os._exit(99)
        go.set()
        thread.join()
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 5


@pytest.mark.slow
def test_without_a_descriptor_no_process_is_taken_for_dead_and_no_lock_for_free(tmp_path: Path) -> None:
    program = (
        HOG
        + """
    from pylog.fs import OsFileSystem, parent_process
    fs = OsFileSystem()
    open(sys.argv[1], "w").close()
    locks = fs.open_locks(sys.argv[1])
    assert locks.try_lock(0, 0, exclusive=True)
    boot, told = fs.boot_id(), []
    name = parent_process(boot)
    taken = hogged()
    for call in (lambda: name.is_alive(boot), lambda: fs.lock_owner(sys.argv[1])):
        try:
            print(call())
        except pylog.StorageFailedError as error:
            told.append(str(error))
    freed(taken)
    assert all("ulimit -n" in text for text in told) and len(told) == (1 if sys.platform == "darwin" else 2), told
    assert name.is_alive(boot)
    assert fs.lock_owner(sys.argv[1]) is not None
    """
    )
    in_child(64, program, tmp_path / "lock")


def test_each_descriptor_of_the_file_system_is_opened_where_others_are_released_for_it() -> None:
    found = [
        f"{path.name}: {line.strip()}"
        for path in sorted((Path(pylog.__file__).parent / "fs").glob("*.py"))
        for line in path.read_text().splitlines()
        if re.search(r"\bos\.(open|scandir|dup)\(|\bmmap\.mmap\(", line)
        and "opened = os.open(os.sep" not in line  # closing does without it, and must not release others
    ]
    assert not found, "call these through `pylog.fs.open_files.opening`"


def test_an_interrupt_as_a_lock_file_closes_does_not_keep_its_locks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The store would stay locked for every process until this one ends."""
    interrupted: list[int] = []

    def interrupt(_: int) -> bool:
        interrupted.append(1)
        raise KeyboardInterrupt

    file = OsFileSystem().open_locks(str(tmp_path / "lock"))
    byte = file.byte(0)
    assert byte.try_take()
    monkeypatch.setattr("pylog.fs.descriptors._nowhere.lead", interrupt)
    try:
        file.close()
    except KeyboardInterrupt:
        del file, byte
    gc.collect()
    assert interrupted
    assert OsFileSystem().open_locks(str(tmp_path / "lock")).byte(0).try_take()
