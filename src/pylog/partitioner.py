"""Chooses the partition of each record, for whole columns of keys at a time.

A producer uses the first of these that applies (groups-and-transactions 4.1): the partition given to `send`, the user's callable,
the partitioner here. The default partitioner sends equal keys to the same partition as Kafka's clients, and records without a
key to one partition until a batch is full.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any, Final, Protocol

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from pylog import limits
from pylog.arguments import is_int
from pylog.awaitables import refuse_awaitable
from pylog.errors import InvalidArgumentError
from pylog.record.kernel import kernel, work_of
from pylog.record.kernels import OK
from pylog.record.memory import address, i64, load8, u64
from pylog.record.rows import NO_BYTES, read_only
from pylog.record.signatures import BYTES, INT64, OUT_INTS, READ_INTS

Indexes = NDArray[np.int64]
PartitionFunction = Callable[
    [bytes | None, list[int], list[int]], int
]  # (key, all partitions, available partitions), as in kafka-python

_M: Final = 0x5BD1E995
_SEED: Final = 0x9747B28C
_WORD: Final = 0xFFFFFFFF
_POSITIVE: Final = 0x7FFFFFFF
OUT_OF_BOUNDS: Final = 1  # status of the kernel: a key reaches outside the given bytes


class Partitioner(Protocol):
    """Chooses partitions for the records of one topic. Only one thread at a time calls it."""

    def choose(self, keys: pa.BinaryArray, sizes: Indexes, count: int) -> Indexes:
        """Returns the partition of each record, as an index from 0 to `count - 1`.

        Args:
            keys: the records' keys, in the order in which they were sent.
            sizes: the records' sizes, in bytes.
            count: the number of partitions.
        """
        ...


class DefaultPartitioner:
    """Kafka's partitioner: by the key's hash; without a key, a random partition, chosen again after `batch_size` bytes.

    Args:
        batch_size: bytes of records without keys that go to one partition before another is chosen.
        seed: seed of the random choice, for tests.

    Spec: groups-and-transactions 4.1 (3) and (4), 4.4.

    >>> DefaultPartitioner(1 << 14).choose(pa.array([b"foobar", b"kafka"], pa.binary()), np.array([6, 5]), 10).tolist()
    [6, 0]
    """

    def __init__(self, batch_size: int, seed: int | None = None) -> None:
        self._batch_size = batch_size
        self._random = np.random.default_rng(seed)
        self._current: int | None = None
        self._filled = 0  # bytes sent to it so far

    def choose(self, keys: pa.BinaryArray, sizes: Indexes, count: int) -> Indexes:
        """See `Partitioner`. Cost: about 10 ns a key."""
        if keys.null_count == len(keys):
            return self._stick(sizes, count)
        chosen = hashes(keys) % count
        if keys.null_count:
            without = keys.is_null().to_numpy(zero_copy_only=False)
            chosen[without] = self._stick(sizes[without], count)
        return chosen

    def _stick(self, sizes: Indexes, count: int) -> Indexes:
        """Returns a partition for each run of `batch_size` bytes."""
        if self._current is None or self._current >= count:
            self._current = int(self._random.integers(count))
        filled = self._filled + np.cumsum(sizes)
        run_of = (filled - sizes) // self._batch_size
        changes = np.flatnonzero(np.diff(run_of)) + 1  # records that begin another run: few
        starts = np.concatenate(([0], changes))
        partitions = self._random.integers(count, size=len(starts))
        if run_of[0] == 0:
            partitions[0] = self._current
        self._current = int(partitions[-1])
        self._filled = int(filled[-1]) - int(run_of[-1]) * self._batch_size
        return np.repeat(partitions, np.diff(starts, append=len(sizes)))


class RoundRobinPartitioner:
    """Sends each record to the next partition in turn, whatever its key (groups-and-transactions 4.4).

    >>> RoundRobinPartitioner().choose(pa.array([b"a"] * 5, pa.binary()), np.ones(5, np.int64), 3).tolist()
    [0, 1, 2, 0, 1]
    """

    def __init__(self) -> None:
        self._next = 0

    def choose(self, keys: pa.BinaryArray, sizes: Indexes, count: int) -> Indexes:  # noqa: ARG002 - as `Partitioner` has it
        """See `Partitioner`."""
        chosen = np.arange(self._next, self._next + len(keys)) % count
        self._next = (self._next + len(keys)) % count
        return chosen


def partition_called(ask: PartitionFunction, key: bytes | None, partitions: Sequence[int]) -> int:
    """Returns the partition that the user's callable chooses for one record.

    Raises:
        InvalidArgumentError: the topic has no such partition. Errors of the callable pass through.
    """
    chosen = ask(key, list(partitions), list(partitions))
    refuse_awaitable(chosen)
    if not is_int(chosen) or chosen not in partitions:
        raise InvalidArgumentError(f"the partitioner chose {chosen!r}; the topic's partitions are {list(partitions)[:20]}")
    return int(chosen)


# ---- murmur2 (groups-and-transactions 4.2) ---------------------------------------------------------------------------------


def murmur2(key: bytes) -> int:
    """Returns Kafka's hash of a key as a signed 32-bit number, like Java's `Utils.murmur2`.

    >>> murmur2(b"foobar"), murmur2(b"")
    (-790332482, 275646681)
    """
    mixed = _SEED ^ len(key)
    whole = len(key) & ~3
    for at in range(0, whole, 4):
        word = int.from_bytes(key[at : at + 4], "little") * _M & _WORD
        mixed = (mixed * _M & _WORD) ^ ((word ^ word >> 24) * _M & _WORD)
    if whole < len(key):
        mixed = (mixed ^ int.from_bytes(key[whole:], "little")) * _M & _WORD
    mixed = (mixed ^ mixed >> 13) * _M & _WORD
    mixed ^= mixed >> 15
    return mixed - (1 << 32) if mixed > _POSITIVE else mixed


def hashes(keys: pa.BinaryArray) -> Indexes:
    """Returns each key's hash without its sign, ready to be divided by the number of partitions. A null counts as an empty key.

    Cost: about 6 ns a key of 8 bytes; a few keys need no kernel.

    >>> hashes(pa.array([b"foobar", None], pa.binary())).tolist()
    [1357151166, 275646681]
    """
    if len(keys) <= limits.FEW_RECORDS:
        return np.array([murmur2(key or b"") & _POSITIVE for key in keys.to_pylist()], np.int64)
    _, ends, data = keys.buffers()
    found = np.empty(len(keys), np.int32)
    given = NO_BYTES if data is None else np.frombuffer(data, np.uint8)
    status = hash_keys(read_only(given), read_only(np.frombuffer(ends, np.int32, len(keys) + 1, keys.offset * 4)), found)
    assert status == OK, "Arrow's own offsets lie within its buffer"
    return found.astype(np.int64) & _POSITIVE


def _hash_keys(data: Any, ends: Any, found: Any) -> int:
    """Hashes adjacent keys: key i has the bytes from `ends[i]` up to, but not including, `ends[i + 1]`.

    Returns:
        OK, or OUT_OF_BOUNDS at the first key that reaches outside `data`.
    """
    start = address(data)
    m = u64(_M)
    word = u64(_WORD)  # products have 64 bits: each is truncated to 32
    for key in range(min(ends.size - 1, found.size)):
        first = i64(ends[key])
        size = i64(ends[key + 1]) - first
        if first < 0 or size < 0 or first + size > data.size:
            return OUT_OF_BOUNDS
        at = start + first
        mixed = u64(_SEED) ^ u64(size)
        for _ in range(size >> 2):
            k = (load8(at) | load8(at + 1) << u64(8) | load8(at + 2) << u64(16) | load8(at + 3) << u64(24)) * m & word
            mixed = (mixed * m & word) ^ ((k ^ (k >> u64(24))) * m & word)
            at += 4
        rest = size & 3
        if rest > 2:
            mixed ^= load8(at + 2) << u64(16)
        if rest > 1:
            mixed ^= load8(at + 1) << u64(8)
        if rest > 0:
            mixed = (mixed ^ load8(at)) * m & word
        mixed = (mixed ^ (mixed >> u64(13))) * m & word
        mixed ^= mixed >> u64(15)
        found[key] = i64(mixed) - (i64(mixed >> u64(31)) << 32)
    return OK


@work_of(lambda data, ends, found: max(1, int(found.size)))  # noqa: ARG005 - as the kernel
def hash_keys_plainly(data: Any, ends: Any, found: Any) -> int:
    """Does the same as `_hash_keys`, without a compiler. Cost: about 1 µs a key of 8 bytes."""
    edges, whole, hashed, status = ends.tolist(), memoryview(data), [], OK  # of a slice, `data` has the bytes of all keys
    for first, end in itertools.pairwise(edges[: found.size + 1]):
        if first < 0 or end < first or end > len(whole):
            status = OUT_OF_BOUNDS
            break
        hashed.append(murmur2(bytes(whole[first:end])))
    found[: len(hashed)] = hashed
    return status


hash_keys = kernel(INT64(BYTES, READ_INTS, OUT_INTS), pure="pylog.partitioner:hash_keys_plainly")(_hash_keys)
