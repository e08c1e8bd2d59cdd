"""The state of a transactional id, as the last of its records in `__transaction_state` gives it (transactions 3.2 to 3.4)."""

from __future__ import annotations

from enum import IntEnum
from typing import Final, NamedTuple

import msgspec

from pylog.config import Durability
from pylog.record.types import TopicPartition

TRANSACTION_STATE_TOPIC: Final = "__transaction_state"
NO_PRODUCER_ID: Final = -1
NO_PRODUCER_EPOCH: Final = -1
NO_TIMESTAMP: Final = -1
LAST_DATA_EPOCH: Final = 2**15 - 2  # of a producer id: the marker takes the next epoch, which is the last one of an int16
CURRENT_VERSION: Final = 2  # of clients' transactions (KIP-890): each transaction has an epoch of its own
_LEVELS: Final = ("OS", "INTERVAL", "SYNC")


class TransactionState(IntEnum):
    """Kafka's states of a transactional id, with Kafka's numbers (groups-and-transactions 6.2).

    `DEAD` and `PREPARE_EPOCH_FENCE` are in a coordinator's memory only; no record has them.

    >>> TransactionState(2).kafka_name, TransactionState.ONGOING.is_prepared
    ('PrepareCommit', False)
    """

    EMPTY = 0
    ONGOING = 1
    PREPARE_COMMIT = 2
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4
    COMPLETE_ABORT = 5
    DEAD = 6
    PREPARE_EPOCH_FENCE = 7

    @property
    def kafka_name(self) -> str:
        """The name in the output of Kafka's tools."""
        return "".join(word.capitalize() for word in self.name.split("_"))

    @property
    def is_prepared(self) -> bool:
        """Whether the transaction is decided, and some of its markers may be missing."""
        return self in (TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT)

    @property
    def is_complete(self) -> bool:
        """Whether all markers of the last transaction are written."""
        return self in (TransactionState.COMPLETE_COMMIT, TransactionState.COMPLETE_ABORT)

    @property
    def is_at_rest(self) -> bool:
        """Whether the id has no transaction, so that one may begin."""
        return self is TransactionState.EMPTY or self.is_complete

    @property
    def is_commit(self) -> bool:
        """Whether the last transaction is decided, and committed."""
        return self in (TransactionState.PREPARE_COMMIT, TransactionState.COMPLETE_COMMIT)


class ProducerIdAndEpoch(NamedTuple):
    """The numbers of a producer's batches. An incarnation of a transactional id owns one such pair at a time."""

    producer_id: int
    producer_epoch: int


class TransactionOwner(msgspec.Struct, frozen=True):
    """What pylog adds to the records of a transaction that is open or prepared (transactions 3.4). Brokers ignore and drop it.

    Attributes:
        byte: the byte of `pylog.lock` that the owner keeps locked as long as it lives.
        level: durability of the transaction: 0 for `OS`, 1 for `INTERVAL`, 2 for `SYNC`; others are of a later pylog.
        end_offsets: for each partition of the record, in their order, the offset after the last data of the transaction. Empty if
            the record does not have them: an open transaction may get more data.
        is_single: true if the transaction is one plain batch, in the record's only partition: the batch commits it.

    >>> TransactionOwner.of(5, Durability.SYNC)
    TransactionOwner(byte=5, level=2, end_offsets=(), is_single=False)
    """

    byte: int
    level: int
    end_offsets: tuple[int, ...] = ()
    is_single: bool = False

    @classmethod
    def of(cls, byte: int, durability: Durability, *, is_single: bool = False) -> TransactionOwner:
        """Returns the owner of a transaction with a durability."""
        return cls(byte, _LEVELS.index(durability.name), is_single=is_single)

    @property
    def is_synced(self) -> bool:
        """Whether the transaction is durable when its commit returns."""
        return self.level == _LEVELS.index("SYNC")


class TransactionMetadata(msgspec.Struct, frozen=True):
    """The state of a transactional id. Times in milliseconds.

    Attributes:
        transactional_id: the id.
        producer_id: the producer id of the id's batches.
        producer_epoch: the epoch of the next batches, or, of a prepared transaction, of the markers. -1 for none.
        timeout_ms: how long a transaction may stay open.
        state: the id's state.
        partitions: those that the transaction may have batches in; once it is prepared, those that need a marker.
        last_update_timestamp_ms: time of the record.
        start_timestamp_ms: when the last transaction began; -1 before the first one.
        previous_producer_id: the producer id before this one, -1 for none. Brokers from 4.0 repeat the current one.
        next_producer_id: the producer id after a prepared transaction whose epoch is the last one. -1 for none.
        next_producer_epoch: a field of Kafka 4.3, which it leaves at -1.
        client_transaction_version: 2 if each transaction has an epoch of its own, else 0 or 1 (KIP-890).
        owner: the owner of an open or prepared transaction of pylog; None for a broker's, and for all other states.
    """

    transactional_id: str
    producer_id: int
    producer_epoch: int
    timeout_ms: int
    state: TransactionState
    partitions: tuple[TopicPartition, ...]
    last_update_timestamp_ms: int
    start_timestamp_ms: int = NO_TIMESTAMP
    previous_producer_id: int = NO_PRODUCER_ID
    next_producer_id: int = NO_PRODUCER_ID
    next_producer_epoch: int = NO_PRODUCER_EPOCH
    client_transaction_version: int = CURRENT_VERSION
    owner: TransactionOwner | None = None

    @property
    def is_single(self) -> bool:
        """Whether an open transaction is one plain batch, which decides it."""
        return self.state is TransactionState.ONGOING and self.owner is not None and self.owner.is_single

    @property
    def identity(self) -> ProducerIdAndEpoch:
        """The producer id and epoch of the state."""
        return ProducerIdAndEpoch(self.producer_id, self.producer_epoch)

    @property
    def has_own_epochs(self) -> bool:
        """Whether each transaction of the id has an epoch of its own, and its markers the next one."""
        return self.client_transaction_version >= CURRENT_VERSION
