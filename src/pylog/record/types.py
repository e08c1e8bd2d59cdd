"""The values that pylog hands out: plain, frozen, cheap to make by the million."""

from __future__ import annotations

from typing import NamedTuple, Self

import msgspec

from pylog import limits
from pylog.config import Durability
from pylog.errors import InvalidArgumentError

Header = tuple[str, bytes | None]


class Record(msgspec.Struct, frozen=True, gc=False):
    """One record of a log.

    `gc=False` keeps the garbage collector from walking millions of records that cannot form cycles; building one takes
    about 80 ns instead of 400.

    >>> Record("orders", 0, 7, 1_700_000_000_000, b"42", b"paid").offset
    7
    """

    topic: str
    partition: int
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[Header, ...] = ()


class _Found(NamedTuple):
    offset: int
    timestamp: int


class OffsetAndTimestamp(_Found):
    """An answer to a search by time: the pair of a record's offset and its timestamp in milliseconds.

    Attributes:
        offset, timestamp: the pair.
        leader_epoch: of the record's batch; None where the format has none (magic 0 and 1). Not part of the pair.

    >>> offset, timestamp = OffsetAndTimestamp(7, 1_700_000_000_000, leader_epoch=2)
    >>> offset, OffsetAndTimestamp(7, timestamp) == (7, timestamp)
    (7, True)
    """

    leader_epoch: int | None

    def __new__(cls, offset: int, timestamp: int, leader_epoch: int | None = None) -> Self:
        found = tuple.__new__(cls, (offset, timestamp))  # a µs less than through two classes' `__new__`
        found.leader_epoch = leader_epoch
        return found


class TopicPartition(NamedTuple):
    """A partition's full name."""

    topic: str
    partition: int


class OffsetAndMetadata(NamedTuple):
    """What a consumer group has committed for a partition.

    Attributes:
        offset: of the next record that the group will read.
        metadata: text of the application, of 4096 UTF-16 code units at most.
        leader_epoch: of the batch of the last record read; None where that is not known.
        commit_timestamp: when it was committed, in milliseconds; set by the store, and not looked at when it is given.
    """

    offset: int
    metadata: str = ""
    leader_epoch: int | None = None
    commit_timestamp: int | None = None


class ProducerBatch(NamedTuple):
    """What an idempotent producer numbers a batch with, so that a log takes it once however often it is sent.

    Attributes:
        producer_id: of the producer, 0 or more.
        epoch: raised by one when the producer's numbering begins again at 0; the log then refuses batches of lower ones.
        sequence: of the batch's first record: the number of records before it in this epoch; it wraps to 0 behind 2^31 - 1.
    """

    producer_id: int
    epoch: int
    sequence: int


_PRODUCER_LIMITS = {"producer_id": limits.INT64_MAX, "epoch": 2**15 - 1, "sequence": limits.INT32_MAX}


def check_producer_batch(batch: object) -> ProducerBatch:
    """A producer's numbers, checked.

    Args:
        batch: a `ProducerBatch`.

    Raises:
        InvalidArgumentError: it is something else, or one of the numbers does not fit its field of a batch's header.

    Spec: storage-format 1.7.1.

    >>> check_producer_batch(ProducerBatch(2**48, 0, 17))
    ProducerBatch(producer_id=281474976710656, epoch=0, sequence=17)
    """
    if not isinstance(batch, ProducerBatch):
        raise InvalidArgumentError(f"producer={batch!r} is not a pylog.ProducerBatch")
    for name, limit in _PRODUCER_LIMITS.items():
        value = getattr(batch, name)
        if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= limit:
            raise InvalidArgumentError(f"the producer's {name}={value!r} is not an int from 0 to {limit}")
    return batch


class Acknowledgement(NamedTuple):
    """What an append of one batch answers.

    Attributes:
        offsets: of its records.
        durability: the level that the answer waited for.
        duplicate: the log had the batch already, at these offsets; nothing was written.
    """

    offsets: range
    durability: Durability
    duplicate: bool
