"""The values that pylog returns: plain and frozen, and cheap enough to create by the million."""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, NamedTuple, Self

import msgspec

from pylog import limits
from pylog.arguments import is_int
from pylog.config import Durability
from pylog.errors import InvalidArgumentError
from pylog.record.format import CONTROL_BIT, TRANSACTIONAL_BIT

Header = tuple[str, bytes | None]

if TYPE_CHECKING:  # their defaults are the types without a (de)serializer; `typing` has such type variables from Python 3.13 on
    from typing_extensions import TypeVar

    K = TypeVar("K", default=bytes | None)
    V = TypeVar("V", default=bytes | None)
    K_co = TypeVar("K_co", covariant=True, default=bytes | None)
    V_co = TypeVar("V_co", covariant=True, default=bytes | None)
else:  # the bound is the type that msgspec decodes to
    from typing import TypeVar

    K = TypeVar("K", bound=bytes | None)
    V = TypeVar("V", bound=bytes | None)
    K_co = TypeVar("K_co", covariant=True, bound=bytes | None)
    V_co = TypeVar("V_co", covariant=True, bound=bytes | None)


class Record(msgspec.Struct, Generic[K_co, V_co], frozen=True, gc=False):
    """One record of a log.

    Attributes:
        topic: the name of its topic.
        partition: the number of its partition.
        offset: its number in the partition.
        timestamp: milliseconds since 1970; -1 if it has none.
        key: bytes, or None. With `key_deserializer`, a consumer puts the object there.
        value: bytes, or None for a tombstone. With `value_deserializer`, a consumer puts the object there.
        headers: pairs of a name and bytes or None.

    For type checkers, `Record` is a record of bytes, and `Record[str, Order]` has a text as its key and an `Order` as its value.

    `gc=False` spares the garbage collector millions of records that cannot form cycles; creating one takes about 80 ns instead
    of 400.

    >>> Record("orders", 0, 7, 1_700_000_000_000, b"42", b"paid").offset
    7
    """

    topic: str
    partition: int
    offset: int
    timestamp: int
    key: K_co
    value: V_co
    headers: tuple[Header, ...] = ()

    @property
    def topic_partition(self) -> TopicPartition:
        """The topic and the partition as one value."""
        return TopicPartition(self.topic, self.partition)


class _Found(NamedTuple):
    offset: int
    timestamp: int


class OffsetAndTimestamp(_Found):
    """The result of a search by time: a pair of a record's offset and its timestamp in milliseconds.

    Attributes:
        offset: the first item of the pair.
        timestamp: the second item, in milliseconds since 1970.
        leader_epoch: leader epoch of the record's batch; None if the format has none (magic 0 and 1). Not an item of the pair.

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
    """A partition's full name: topic and partition number.

    Attributes:
        topic: the topic's name.
        partition: the partition's number.

    >>> TopicPartition("orders", 0) == ("orders", 0)
    True
    """

    topic: str
    partition: int


class OffsetAndMetadata(NamedTuple):
    """A consumer group's commit for a partition.

    Attributes:
        offset: offset of the next record that the group will read.
        metadata: text of the application, at most 4096 UTF-16 code units.
        leader_epoch: leader epoch of the batch of the last record read; None if unknown.
        commit_timestamp: time of the commit, in milliseconds. The store sets it; a given value is ignored.

    >>> OffsetAndMetadata(7, "worker 3").offset
    7
    """

    offset: int
    metadata: str = ""
    leader_epoch: int | None = None
    commit_timestamp: int | None = None


class ProducerBatch(NamedTuple):
    """The numbers of an idempotent producer's batch, so that a log appends it once even if it is sent again.

    Attributes:
        producer_id: the producer's id, 0 or more.
        epoch: rises by one when the producer's numbering restarts at 0; the log then refuses batches of lower epochs.
        sequence: number of the batch's first record: how many records preceded it in this epoch. It wraps from 2^31 - 1 to 0.

    >>> ProducerBatch(producer_id=2**48, epoch=0, sequence=17).sequence
    17
    """

    producer_id: int
    epoch: int
    sequence: int


class TransactionalBatch(ProducerBatch):
    """The numbers of a batch in a transaction. The producer's next marker decides whether it counts."""

    __slots__ = ()


class OpenTransaction(NamedTuple):
    """A transaction that has batches in a log, and no marker yet: its producer, the epoch, and the offset of its first record."""

    producer_id: int
    epoch: int
    first_offset: int


class MarkerBatch(ProducerBatch):
    """The numbers of a batch that ends a transaction: its only record is a control record, and it has no sequence.

    >>> MarkerBatch(producer_id=2**48, epoch=1, sequence=-1).sequence
    -1
    """

    __slots__ = ()


def attributes_of(producer: ProducerBatch) -> int:
    """Returns the attributes that a producer's batch has for its kind (storage-format 1.6).

    >>> attributes_of(ProducerBatch(7, 0, 0)), attributes_of(TransactionalBatch(7, 0, 0)), attributes_of(MarkerBatch(7, 1, -1))
    (0, 16, 48)
    """
    kind = type(producer)
    if kind is TransactionalBatch:
        return TRANSACTIONAL_BIT
    return TRANSACTIONAL_BIT | CONTROL_BIT if kind is MarkerBatch else 0


_PRODUCER_LIMITS = {"producer_id": limits.INT64_MAX, "epoch": 2**15 - 1, "sequence": limits.INT32_MAX}


def check_producer_batch(batch: object) -> ProducerBatch:
    """Checks and returns a producer's numbers.

    Args:
        batch: a `ProducerBatch`.

    Raises:
        InvalidArgumentError: the argument is not one, or a number does not fit its field of a batch's header.

    Spec: storage-format 1.7.1.

    >>> check_producer_batch(ProducerBatch(2**48, 0, 17))
    ProducerBatch(producer_id=281474976710656, epoch=0, sequence=17)
    """
    if not isinstance(batch, ProducerBatch):
        raise InvalidArgumentError(f"producer={batch!r} is not a pylog.ProducerBatch")
    for name, limit in _PRODUCER_LIMITS.items():
        value = getattr(batch, name)
        if not is_int(value) or not 0 <= value <= limit:
            raise InvalidArgumentError(f"the producer's {name}={value!r} is not an int from 0 to {limit}")
    return batch if all(type(value) is int for value in batch) else ProducerBatch(*map(int, batch))


class BatchMetadata(NamedTuple):
    """The place of records that were appended in one call, or as one batch of a table.

    Attributes:
        topic: the records' topic.
        partition: the number of their partition.
        offsets: their offsets, in the order in which they were given.
        durability: the level that the acknowledgement waited for. It may be higher than the requested one, because appends that
            are committed together wait for the highest.
        duplicate: whether the log already had the batch, at these offsets; then nothing was written.

    >>> BatchMetadata("orders", 0, range(7, 9), Durability.SYNC).topic_partition
    TopicPartition(topic='orders', partition=0)
    """

    topic: str
    partition: int
    offsets: range
    durability: Durability
    duplicate: bool = False

    @property
    def topic_partition(self) -> TopicPartition:
        """The topic and the partition as one value."""
        return TopicPartition(self.topic, self.partition)


class Acknowledgement(msgspec.Struct, frozen=True):
    """The result of an append to a partition, inside the engine; `BatchMetadata` is what users get.

    Attributes:
        offsets: the records' offsets.
        durability: the durability level that the append waited for.
        duplicate: whether the log already had the batch, at these offsets; then nothing was written.

    >>> Acknowledgement(range(0, 2), Durability.SYNC, duplicate=False).offsets
    range(0, 2)
    """

    offsets: range
    durability: Durability
    duplicate: bool
