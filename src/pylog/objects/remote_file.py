"""Reads the log of a segment from an object store: single ranges as they are requested, or a walk in blocks, read ahead.

A walk of a whole segment costs one request for each 8 MiB. Reading ahead begins with the second block in order, because a walk
that ends in its first block needs no other one.
"""

from __future__ import annotations

import errno
import threading
from collections import OrderedDict, deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import suppress
from typing import Final, NoReturn, Protocol
from weakref import ref

from pylog import limits
from pylog.errors import StorageFailedError
from pylog.fs import File, on_fork, process_id
from pylog.objects.ranges import RangeSource
from pylog.threads import started

LogBytes = memoryview | bytes


class _Readers:
    """The threads that read blocks, of this process. One is started where blocks wait, and ends some time after the last one.

    Where the processors are busy, the start of a thread takes as long as a small request, and a walk has a block for it soon.
    """

    def __init__(self) -> None:
        self.forked()
        on_fork(self)

    def forked(self) -> None:
        """Has the child start its own threads."""
        self._changed = threading.Condition(threading.Lock())
        self._waiting: deque[tuple[Future[LogBytes], Callable[[], LogBytes]]] = deque()
        self._threads: set[threading.Thread] = set()
        self._idle = 0  # threads that wait for a block

    def submit(self, call: Callable[[], LogBytes]) -> Future[LogBytes]:
        """Runs a call in one of the threads. Where none starts, this one reads."""
        future: Future[LogBytes] = Future()
        with self._changed:
            self._waiting.append((future, call))
            if self._idle >= len(self._waiting):
                self._changed.notify()
            elif len(self._threads) < limits.REMOTE_THREADS:
                self._begin_another()
            has_reader = bool(self._threads)
        if not has_reader:
            self._read()
        return future

    def _begin_another(self) -> None:
        thread = threading.Thread(target=self._read, name="pylog-objects")
        with suppress(StorageFailedError):  # those that run read the block, or the caller does
            started(thread)
            self._threads.add(thread)  # the thread needs the lock before it can end

    def _read(self) -> None:
        while (found := self._next()) is not None:
            future, call = found
            try:
                future.set_result(call())
            except BaseException as error:  # noqa: BLE001 - the reader that waits for the block raises it
                future.set_exception(error)
            del found, future, call  # a thread without work holds no block

    def _next(self) -> tuple[Future[LogBytes], Callable[[], LogBytes]] | None:
        """Returns what to read; None if this thread ends."""
        thread = threading.current_thread()
        with self._changed:
            if not self._waiting and thread in self._threads:
                self._idle += 1
                self._changed.wait_for(lambda: self._waiting, limits.REMOTE_IDLE_SECONDS)
                self._idle -= 1
            if self._waiting:
                return self._waiting.popleft()
            self._threads.discard(thread)
            return None


READERS: Final = _Readers()


class Block:
    """Some bytes of a log that a thread reads.

    Args:
        source: the log.
        start, end: the bytes.
    """

    def __init__(self, source: RangeSource, start: int, end: int) -> None:
        self.start = start
        self.end = end
        self._source = source
        self._process = process_id()
        self._future = READERS.submit(lambda: source.read(start, end))

    def data(self) -> LogBytes:
        """Waits for the bytes. A child that was forked meanwhile reads them itself."""
        if self._process != process_id():
            return self._source.read(self.start, self.end)
        return self._future.result()


class Windows:
    """The last small ranges that lookups have read, of all logs in the process.

    Args:
        most: how many are kept.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._kept: OrderedDict[str, tuple[int, LogBytes]] = OrderedDict()
        self._guard = threading.Lock()
        on_fork(self)

    def forked(self) -> None:
        """Starts empty in a child: another thread may have held the lock."""
        self._kept, self._guard = OrderedDict(), threading.Lock()

    def read(self, source: RangeSource, position: int, end: int, size: int) -> LogBytes:
        """Returns a range of a log. Reads a window from its start on, unless the last window of the log has it."""
        with self._guard:
            start, data = self._kept.get(source.url, (0, b""))
        if not start <= position or end > start + len(data):
            start = position
            data = source.read(start, max(end, min(start + limits.REMOTE_WINDOW_BYTES, size)))
            with self._guard:
                self._kept[source.url] = start, data
                self._kept.move_to_end(source.url)
                while len(self._kept) > self._most:
                    self._kept.popitem(last=False)
        return data[position - start : end - start]


WINDOWS: Final = Windows(32)


class NextLog(Protocol):
    """Tells a file about the ones after it in the log."""

    def prefetch(self, count: int) -> None:
        """Starts reading the first blocks of the files after this one: a walk is so near to the end of this one."""
        ...

    def taken(self) -> Sequence[Block]:
        """Returns the first blocks of this file that a walk of a file before has started to read."""
        ...


class RemoteFile:
    """A log in an object store, open for reading: a `File`.

    Args:
        path: its path in the file system.
        source: reads its bytes.
        size: in bytes.
        identity: differs for each object.
        neighbour: this file's neighbour; None for a file that is read alone.
    """

    def __init__(self, path: str, source: RangeSource, size: int, identity: int, neighbour: NextLog | None = None) -> None:
        self._path = path
        self._source = source
        self._size = size
        self._identity = identity
        self._neighbour = neighbour
        self._walk: ref[Walk] | None = None  # the last one, whose blocks serve other reads too
        self.is_closed = False

    @property
    def path(self) -> str:
        return self._path

    def size(self) -> int:
        return self._size

    def identity(self) -> tuple[int, int]:
        return 0, self._identity

    def next_data(self, position: int) -> int:
        return position

    def read(self, size: int, position: int) -> bytes:
        """Returns a range. Cost: one request. A small one also fetches the bytes after it, where a lookup often continues."""
        return bytes(self._range(position, position + size))

    def read_into(self, view: memoryview, position: int) -> int:
        """Reads a range into a buffer. Cost: one request."""
        data = self._range(position, position + len(view))
        view[: len(data)] = data
        return len(data)

    def _range(self, position: int, end: int) -> LogBytes:
        self.check()
        end = min(end, self._size)
        if position >= end:
            return b""
        walk = None if self._walk is None else self._walk()
        found = None if walk is None else walk.held(position, end)
        if found is not None:
            return found
        if end - position > limits.REMOTE_WINDOW_BYTES // 2:
            return self._source.read(position, end)
        return WINDOWS.read(self._source, position, end, self._size)

    def check(self) -> None:
        """Raises StorageFailedError if the file was closed."""
        if self.is_closed:
            raise StorageFailedError(f"cannot read {self._path}: it is closed", path=self._path, errno=errno.EBADF)

    def expect(self, position: int, end: int) -> File:
        """Returns a file that reads a range in blocks."""
        end = min(end, self._size)
        walk = Walk(self, self._source, position, end, self._neighbour if end == self._size else None)
        self._walk = ref(walk)
        return walk

    def close(self) -> None:
        self.is_closed = True

    def _refuse(self, *_: object) -> NoReturn:
        raise StorageFailedError(f"cannot change {self._path}: objects are read only", path=self._path, errno=errno.EROFS)

    write = write_back = set_mtime = truncate = _refuse

    def sync(self) -> None:
        self._refuse()


class Walk(RemoteFile):
    """A range of a log that is read in order. Other ranges of it are read one by one. Not thread-safe.

    Args:
        file: the whole log.
        source: reads its bytes.
        start, end: the range.
        neighbour: the file's neighbour, if the range ends with it.
    """

    def __init__(self, file: RemoteFile, source: RangeSource, start: int, end: int, neighbour: NextLog | None) -> None:
        super().__init__(file.path, source, file.size(), file.identity()[1], neighbour)
        self._file = file
        self._step = block_size(source.grain)
        self._start = start // source.grain * source.grain
        self._end = end
        self._blocks: dict[int, Block] = {}
        self._first = start // self._step  # the number of the first block
        self._is_long = False
        self._beyond = 0  # blocks of the files after this one that were started
        ahead = neighbour.taken() if neighbour is not None and start == 0 else []
        if ahead:  # a walk of the file before led here: go on with reading ahead
            self._is_long = True
            self._blocks |= enumerate(ahead)

    def check(self) -> None:
        self._file.check()

    def expect(self, position: int, end: int) -> File:
        return self._file.expect(position, end)

    def read(self, size: int, position: int) -> bytes:
        """Returns a range, from the blocks as far as it is in them."""
        buffer = bytearray(max(0, min(size, self._size - position)))
        self.read_into(memoryview(buffer), position)
        return bytes(buffer)

    def read_into(self, view: memoryview, position: int) -> int:
        """Reads a range into a buffer, from the blocks as far as it is in them."""
        end = min(position + len(view), self._size)
        if position < self._start or end > self._end:
            return super().read_into(view, position)
        self.check()
        done = 0
        while position + done < end:
            block = self._block((position + done) // self._step)
            at = position + done - block.start
            part = block.data()[at : at + end - position - done]
            view[done : done + len(part)] = part
            done += len(part)
        return done

    def held(self, position: int, end: int) -> LogBytes | None:
        """Returns a range that is in a block which this walk has; None if it is not."""
        block = self._blocks.get(position // self._step)
        if block is None or position < block.start or end > block.end:
            return None
        return block.data()[position - block.start : end - block.start]

    def _block(self, number: int) -> Block:
        """Returns a block, starts reading those after it, and drops those before."""
        self._is_long |= number > self._first
        last = (self._end - 1) // self._step
        wanted = range(number, min(number + limits.REMOTE_BLOCKS_AHEAD, last) + 1) if self._is_long else (number,)
        for each in wanted:
            if each not in self._blocks:
                start = max(each * self._step, self._start)
                self._blocks[each] = Block(self._source, start, min((each + 1) * self._step, self._end))
        for old in [each for each in self._blocks if each < number]:
            del self._blocks[old]
        beyond = number + limits.REMOTE_BLOCKS_AHEAD - last
        if self._is_long and beyond > self._beyond and self._neighbour is not None:
            self._neighbour.prefetch(beyond)
            self._beyond = beyond
        return self._blocks[number]


def block_size(grain: int) -> int:
    """Returns the size of blocks: about 8 MiB, and a multiple of the grain.

    >>> block_size(1) == 8 << 20, block_size(5 << 20) == 5 << 20, block_size(64 << 20) == 64 << 20
    (True, True, True)
    """
    return max(1, limits.REMOTE_BLOCK_BYTES // grain) * grain
