"""Group commit: appends of several threads that wait for each other become one write, one sync, one publication.

A thread puts its request into the queue. The first one leads: it commits what is waiting, wakes those whose requests are settled,
and hands over to one that has come meanwhile. So a request waits for one commit, or two, and no thread takes a lock only to find
its work done. Small requests of plain records become one batch together, as a producer's `linger` would make of them.
"""

from __future__ import annotations

import copy
import errno
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple, Protocol

from pylog import limits
from pylog.config import Durability
from pylog.errors import PylogError, StorageFailedError
from pylog.record.builder import BatchEncoder, Encoded
from pylog.record.few import EncodedFew, Piece, joined_rows
from pylog.record.types import Acknowledgement, ProducerBatch


class Encoder(Protocol):
    """What makes batches of a request's pieces: of records, or of batches that were finished elsewhere (`splicing`)."""

    def encode(
        self, piece: Any, base_offset: int, leader_epoch: int, producer: ProducerBatch | None = None, *, whole: bool = False
    ) -> Iterable[Encoded | EncodedFew]: ...


class Request:
    """One call to append.

    Args:
        pieces: its records, as the encoder takes them.
        encoder: makes batches of them.
        level: the durability asked for.
        producer: who sends it and in which order, None without idempotence.
        whole: its records are one batch, and so there all or not at all; a producer's are.

    Attributes:
        count, size: records, and at least the bytes of their batches.
        acknowledgement: once it is done.
        error: why it failed.
        done: whether one of the two is there, or its thread does not wait any more.
        signal: released once for its thread to go on. By whoever noted why, with nothing in between that an interrupt could come
            before: not even the call of a function of our own.
    """

    __slots__ = (
        "acknowledgement",
        "count",
        "done",
        "encoder",
        "error",
        "level",
        "pieces",
        "producer",
        "signal",
        "size",
        "whole",
    )

    def __init__(
        self,
        pieces: Sequence[Any],
        encoder: Encoder,
        level: Durability,
        producer: ProducerBatch | None = None,
        whole: bool = False,
    ) -> None:
        self.pieces = pieces
        self.encoder = encoder
        self.level = level
        self.producer = producer
        self.whole = whole or producer is not None
        self.count = sum(map(len, pieces))
        self.size: int = sum([piece.size_bound for piece in pieces])
        self.acknowledgement: Acknowledgement | None = None
        self.error: Exception | None = None
        self.done = False
        self.signal = threading.Lock()  # held until then
        self.signal.acquire()

    def wait(self) -> None:
        """Waits until the request is settled, or it is its thread's turn to lead."""
        self.signal.acquire()

    def acknowledge(self, offsets: range, level: Durability, *, duplicate: bool = False) -> None:
        """It is in the log."""
        self.acknowledgement = Acknowledgement(offsets, level, duplicate)
        self._settled()

    def refuse(self, error: BaseException) -> None:
        """It is not. What interrupts the thread that commits for others is theirs only as a failure."""
        told = "the thread that wrote these records together with its own was interrupted: not acknowledged, they may be there"
        self.error = error if isinstance(error, Exception) else StorageFailedError(told, errno=errno.EINTR)
        self._settled()

    def _settled(self) -> None:
        self.done = True
        self.signal.release()

    def result(self) -> Acknowledgement:
        """The acknowledgement, or the error: a copy, because other threads raise it too."""
        if self.error is not None:
            raise copy.copy(self.error) if isinstance(self.error, PylogError) else self.error
        assert self.acknowledgement is not None
        return self.acknowledgement


class Requests:
    """The requests that wait to be committed, and whose thread does it."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._waiting: deque[Request] = deque()
        self._taken: list[Request] = []
        self._leader: Request | None = None

    def add(self, request: Request) -> bool:
        """Takes a request; whether its thread is to lead."""
        with self._guard:
            self._waiting.append(request)
            if self._leader is None:
                self._leader = request
            return self._leader is request

    def take(self) -> list[Request]:
        """Those to commit together: in order, of one call's size at most, with nobody waiting for those left out."""
        group: list[Request] = []
        self._taken = group
        size = 0
        with self._guard:
            while self._waiting and (not group or size + self._waiting[0].size <= limits.APPEND_CHUNK_BYTES):
                request = self._waiting[0]
                if not request.done:
                    group.append(request)
                    size += request.size
                self._waiting.popleft()
        return group

    def leave(self, request: Request) -> None:
        """Its thread does not wait any more; if it led, the next one does, and what it took and did not settle is refused."""
        with self._guard:
            request.done = True
            if self._leader is not request:
                return
            for taken in self._taken:
                if not taken.done:
                    taken.refuse(KeyboardInterrupt())
            while self._waiting and self._waiting[0].done:
                self._waiting.popleft()
            self._leader = self._waiting[0] if self._waiting else None
            if self._leader is not None:
                self._leader.signal.release()


class Group(NamedTuple):
    """Requests that are committed together.

    Attributes:
        requests: with the offset that each begins at.
        level: the highest one asked for: what all get.
        size: at least the bytes of their batches.
    """

    requests: list[tuple[Request, int]]
    level: Durability
    size: int

    @property
    def end_offset(self) -> int:
        """The offset behind the last record."""
        last, first_offset = self.requests[-1]
        return first_offset + last.count

    def settle(self, end_offset: int, error: BaseException | None) -> None:
        """Acknowledges what lies below the log's end, and refuses the rest."""
        for request, first in self.requests:
            if first + request.count <= end_offset:
                request.acknowledge(range(first, first + request.count), self.level)
            elif error is not None:
                request.refuse(error)


def grouped(requests: Sequence[Request], end_offset: int) -> Group:
    """A group whose first record gets `end_offset`."""
    if len(requests) == 1:
        return Group([(requests[0], end_offset)], requests[0].level, requests[0].size)
    placed = []
    for request in requests:
        placed.append((request, end_offset))
        end_offset += request.count
    return Group(placed, max((request.level for request in requests), key=_strength), sum(request.size for request in requests))


def _strength(level: Durability) -> tuple[int, int]:
    return ("OS", "INTERVAL", "SYNC").index(level.name), -(level.interval_ms or 0)


def encoded_group(group: Group, leader_epoch: int, stamp: Callable[[Piece], Piece]) -> Iterable[Encoded | EncodedFew]:
    """The batches of all requests, with consecutive offsets; `stamp` gives each piece its time of append where that is wanted."""
    if len(group.requests) > 1:
        return _encoded_together(group, leader_epoch, stamp)
    return _encoded(*group.requests[0], leader_epoch, stamp)


def _encoded_together(group: Group, leader_epoch: int, stamp: Callable[[Piece], Piece]) -> Iterator[Encoded | EncodedFew]:
    """The same of several requests: neighbours that are small share batches."""
    together: list[Piece] = []
    for at, (request, first_offset) in enumerate(group.requests):
        if _is_small(request):
            together += request.pieces
            following = group.requests[at + 1][0] if at + 1 < len(group.requests) else None
            if following is not None and _is_small(following) and following.encoder is request.encoder:
                continue
            rows = joined_rows(together)
            yield from request.encoder.encode(stamp(rows), first_offset + request.count - len(rows), leader_epoch)
            together = []
        else:
            yield from _encoded(request, first_offset, leader_epoch, stamp)


def _is_small(request: Request) -> bool:
    """Whether its records may share batches with those of others: a single one is never parted."""
    if request.producer is not None or not isinstance(request.encoder, BatchEncoder) or (request.whole and request.count > 1):
        return False
    return len(request.pieces) == 1 and request.count <= limits.FEW_RECORDS


def _encoded(request: Request, offset: int, leader_epoch: int, stamp: Callable[[Piece], Piece]) -> Iterable[Encoded | EncodedFew]:
    """The batches of one request."""
    if len(request.pieces) > 1:
        return _encoded_pieces(request, offset, leader_epoch, stamp)
    return request.encoder.encode(stamp(request.pieces[0]), offset, leader_epoch, request.producer, whole=request.whole)


def _encoded_pieces(
    request: Request, offset: int, leader_epoch: int, stamp: Callable[[Piece], Piece]
) -> Iterator[Encoded | EncodedFew]:
    for rows in request.pieces:
        yield from request.encoder.encode(stamp(rows), offset, leader_epoch, request.producer, whole=request.whole)
        offset += len(rows)


def append_in_turn(requests: Requests, request: Request, lock: Any, commit: Callable[[list[Request]], None]) -> Acknowledgement:
    """Adds a request and waits until it is committed, by this thread or by another one.

    Args:
        requests, lock: the log's.
        request: the new one.
        commit: settles some requests; called under the lock.
    """
    try:
        if not requests.add(request):
            request.wait()
        if not request.done:
            with lock:
                while not request.done:
                    commit(requests.take())
    finally:  # also when it was interrupted while it waited: nobody is to write it later
        try:
            requests.leave(request)
        except BaseException:  # interrupted as it began: all others would wait for this thread for ever
            requests.leave(request)
            raise
    return request.result()
