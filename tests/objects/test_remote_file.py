"""Logs in an object store are read with as few requests as promised, and ahead only where a walk is long."""

from __future__ import annotations

import os
import threading
from dataclasses import dataclass, field

import pytest

from pylog import limits
from pylog.archive.archived_segments import OnePartition
from pylog.errors import StorageFailedError
from pylog.objects import remote_file
from pylog.objects.remote_file import WINDOWS, RemoteFile
from pylog.objects.remote_files import RemoteEntry, RemoteFileSystem
from pylog.segment.names import LOG, file_name
from pylog.threads import started

MIB = 1 << 20
BLOCK = limits.REMOTE_BLOCK_BYTES


@dataclass
class Counted:
    """A log whose requests are counted. Byte n of it is n % 251."""

    size: int
    grain: int = 1
    url: str = "memory://log"
    ranges: list[tuple[int, int]] = field(default_factory=list)
    pattern: bytes = bytes(range(251)) * (2 * BLOCK // 251 + 2)

    def read(self, position: int, end: int) -> bytes:
        assert 0 <= position < end <= self.size
        self.ranges.append((position, end))
        shift = position % 251
        return self.pattern[shift : shift + end - position]


def of(position: int, size: int) -> bytes:
    return bytes(number % 251 for number in range(position, position + size))


def remote(source: Counted) -> RemoteFile:
    return RemoteFile("/archive/orders-0/0.log", source, source.size, 1)


@pytest.fixture(autouse=True)
def _no_windows() -> None:
    WINDOWS.forked()


def test_a_large_read_is_one_request_of_exactly_its_bytes() -> None:
    source = Counted(100 * MIB)
    assert remote(source).read(MIB, 5 * MIB + 7) == of(5 * MIB + 7, MIB)
    assert source.ranges == [(5 * MIB + 7, 6 * MIB + 7)]


def test_a_lookup_that_goes_on_in_the_following_batches_is_one_request() -> None:
    source = Counted(100 * MIB)
    for size, position in ((34 << 10, 5 * MIB + 7), (136 << 10, 5 * MIB + 7), (61, 5 * MIB + (400 << 10))):
        assert remote(source).read(size, position) == of(position, size)
    assert source.ranges == [(5 * MIB + 7, 5 * MIB + 7 + limits.REMOTE_WINDOW_BYTES)]


def test_windows_of_many_logs_have_a_bound() -> None:
    for number in range(100):
        remote(Counted(10 * MIB, url=f"memory://{number}")).read(10, 0)
    assert len(WINDOWS._kept) == 32


def test_a_small_file_is_never_read_from_a_window_of_another_store_at_the_same_path() -> None:
    """A topic that was created again, or a segment that was archived again, has other indexes under the same names."""
    for data in (b"of the old topic", b"of the new topic", b"new"):
        fs = RemoteFileSystem("/shop", OnePartition({"0.index": RemoteEntry(0, small=lambda data=data: data)}))
        file = fs.open("/shop/orders-0/0.index")
        assert (file.read(100, 0), file.read(3, len(data) - 3)) == (data, data[-3:])


def test_a_read_in_a_block_of_a_walk_is_no_request() -> None:
    source = Counted(100 * MIB)
    file = remote(source)
    walk = file.expect(0, source.size)
    walk.read(10, 0)
    assert file.read(61, 5 * MIB) == of(5 * MIB, 61)
    assert source.ranges == [(0, BLOCK)]


def test_a_read_beyond_the_end_is_shorter_and_costs_nothing_if_it_is_empty() -> None:
    source = Counted(100)
    assert (remote(source).read(50, 80), remote(source).read(50, 100), remote(source).read(50, 300)) == (of(80, 20), b"", b"")
    assert source.ranges == [(80, 100)]


def test_a_walk_costs_one_request_for_each_block() -> None:
    source = Counted(5 * BLOCK + 3)
    walk = remote(source).expect(0, source.size)
    position, buffer = 0, bytearray(3 * MIB)
    while got := walk.read_into(memoryview(buffer), position):
        assert bytes(buffer[:9]) == of(position, min(got, 9))
        position += got
    assert position == source.size
    assert sorted(source.ranges) == [(start, min(start + BLOCK, source.size)) for start in range(0, source.size, BLOCK)]


def test_a_walk_that_ends_in_its_first_block_reads_nothing_ahead() -> None:
    source = Counted(100 * MIB)
    walk = remote(source).expect(3 * BLOCK + 5, source.size)
    for position in range(3 * BLOCK + 5, 3 * BLOCK + 5 + MIB, 64 << 10):
        assert walk.read(61, position) == of(position, 61)
    assert source.ranges == [(3 * BLOCK + 5, 4 * BLOCK)]


def test_reading_ahead_begins_with_the_second_block_and_has_a_bound() -> None:
    source = Counted(100 * BLOCK)
    walk = remote(source).expect(0, source.size)
    walk.read(10, 0)
    assert len(source.ranges) == 1
    walk.read(10, BLOCK)
    for _ in range(100):
        if len(source.ranges) == 2 + limits.REMOTE_BLOCKS_AHEAD:
            break
        threading.Event().wait(0.05)
    assert max(source.ranges) == ((1 + limits.REMOTE_BLOCKS_AHEAD) * BLOCK, (2 + limits.REMOTE_BLOCKS_AHEAD) * BLOCK)


def logs_in_a_row(*sizes: int) -> tuple[RemoteFileSystem, list[tuple[str, Counted]]]:
    """Returns a partition with a log for each size, of one offset for each byte."""
    bases = [sum(sizes[:number]) for number in range(len(sizes) + 1)]
    logs = {file_name(base, LOG): Counted(size, url=f"memory://{base}") for base, size in zip(bases, sizes, strict=False)}
    after = dict(zip(logs, bases[1:], strict=True))
    files = {name: RemoteEntry(log.size, log=log, next_base=after[name]) for name, log in logs.items()}
    return RemoteFileSystem("/shop", OnePartition(files)), [(f"/shop/orders-0/{name}", log) for name, log in logs.items()]


def begun(log: Counted, count: int) -> bool:
    """Waits until a log was asked for some blocks."""
    return any(len(log.ranges) >= count or threading.Event().wait(0.05) for _ in range(100))


def test_requests_are_in_flight_across_the_borders_of_segments() -> None:
    """At the last block of a segment, as many blocks of those after it are on their way as in its middle."""
    fs, ((path, first), (_, second), (_, third)) = logs_in_a_row(10 * BLOCK, 3 * BLOCK + 5, 100 * BLOCK)
    walk = fs.open(path).expect(0, first.size)
    walk.read(10, 0)
    walk.read(10, BLOCK)
    assert not second.ranges
    walk.read(10, 5 * BLOCK)
    assert begun(second, 3)
    walk.read(10, 9 * BLOCK)
    assert begun(second, 4)
    assert begun(third, limits.REMOTE_BLOCKS_AHEAD - 4)
    assert len(second.ranges) + len(third.ranges) == limits.REMOTE_BLOCKS_AHEAD


def test_a_scan_of_many_segments_asks_for_each_block_once() -> None:
    fs, logs = logs_in_a_row(3 * BLOCK, 100, 2 * BLOCK + 7, 12 * BLOCK, BLOCK)
    for path, log in logs:
        walk = fs.open(path).expect(0, log.size)
        for position in range(0, log.size, MIB):
            assert walk.read(5, position) == of(position, 5)
    for _, log in logs:
        assert sorted(log.ranges) == [(start, min(start + BLOCK, log.size)) for start in range(0, log.size, BLOCK)]


def test_what_walks_that_do_not_go_on_have_begun_has_a_bound() -> None:
    walks = []
    fs, logs = logs_in_a_row(*[2 * BLOCK, 9 * BLOCK] * 5)
    for path, log in logs[::2]:
        walks.append(fs.open(path).expect(0, log.size))
        walks[-1].read(10, 0)
        walks[-1].read(10, BLOCK)
    assert 0 < sum(map(len, fs._ahead.values())) <= 2 * limits.REMOTE_BLOCKS_AHEAD


def test_a_walk_reads_nothing_after_its_end() -> None:
    source = Counted(100 * BLOCK)
    walk = remote(source).expect(0, BLOCK + 10)
    assert walk.read(20, BLOCK - 10) == of(BLOCK - 10, 20)
    assert sorted(source.ranges) == [(0, BLOCK), (BLOCK, BLOCK + 10)]


def test_two_walks_of_a_file_do_not_disturb_each_other() -> None:
    source = Counted(3 * BLOCK)
    file = remote(source)
    one, other = file.expect(0, source.size), file.expect(0, source.size)
    for position in range(0, source.size, MIB):
        assert one.read(5, position) == of(position, 5)
        assert other.read(5, position // 2) == of(position // 2, 5)
    assert len([each for each in source.ranges if each[0] == 0]) == 2


def test_blocks_are_whole_chunks_where_a_log_is_stored_in_chunks() -> None:
    source = Counted(20 * MIB, grain=3 * MIB)
    walk = remote(source).expect(4 * MIB, source.size)
    walk.read(10, 4 * MIB)
    assert source.ranges == [(3 * MIB, 6 * MIB)]


def test_a_walk_starts_few_threads_and_leaves_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the processors are busy, the start of a thread takes as long as a block."""
    begun: list[threading.Thread] = []
    readers = remote_file._Readers()
    monkeypatch.setattr(remote_file, "READERS", readers)
    monkeypatch.setattr(limits, "REMOTE_IDLE_SECONDS", 2.0)  # of a busy machine

    def start(thread: threading.Thread) -> None:
        begun.append(thread)
        started(thread)

    monkeypatch.setattr(remote_file, "started", start)
    source = Counted(60 * BLOCK)
    walk = remote(source).expect(0, source.size)
    for position in range(0, source.size, BLOCK):
        walk.read(10, position)
    assert len(source.ranges) == 60
    assert 0 < len(begun) <= limits.REMOTE_THREADS
    for thread in begun:
        thread.join(60)
    assert not readers._threads


def test_a_closed_file_refuses_its_walks_too() -> None:
    file = remote(Counted(100))
    walk = file.expect(0, 100)
    walk.read(10, 0)
    file.close()
    for each in (file, walk):
        with pytest.raises(StorageFailedError, match="closed"):
            each.read(10, 0)


def test_a_file_of_an_object_store_cannot_be_changed() -> None:
    file = remote(Counted(100))
    for change in (lambda: file.write(memoryview(b"x"), 0), lambda: file.truncate(0), file.sync, lambda: file.set_mtime(0)):
        with pytest.raises(StorageFailedError, match="read only"):
            change()


def test_a_forked_child_reads_by_itself() -> None:
    source = Counted(4 * BLOCK)
    walk = remote(source).expect(0, source.size)
    walk.read(10, 0)
    walk.read(10, BLOCK)
    child = os.fork()
    if child == 0:
        good = walk.read(10, 2 * BLOCK) == of(2 * BLOCK, 10) and walk.read(10, 3 * BLOCK) == of(3 * BLOCK, 10)
        os._exit(0 if good else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
