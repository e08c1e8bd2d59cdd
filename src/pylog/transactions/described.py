"""What an administrator sees of transactions: frozen values, with Kafka's terms."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

from pylog.record.types import TopicPartition
from pylog.transactions.metadata import NO_TIMESTAMP, TransactionMetadata, TransactionState

STATES: Final = tuple(state.kafka_name for state in TransactionState if state <= TransactionState.COMPLETE_ABORT)
Owner = Literal["alive", "dead", "broker", "unknown"]


@dataclass(frozen=True, slots=True)
class TransactionDescription:
    """A transactional id, with its open or last transaction. Times are milliseconds since 1970.

    Attributes:
        transactional_id: the id.
        producer_id, producer_epoch: the producer id and producer epoch of its batches.
        state: Kafka's name of it: "Empty", "Ongoing", "PrepareCommit", "PrepareAbort", "CompleteCommit" or "CompleteAbort".
        timeout_ms: how long a transaction of the id may stay open.
        start_timestamp_ms: when the open or last transaction began; None before the first one.
        last_update_timestamp_ms: when the state was written.
        duration_ms: how long the transaction has been open or prepared; None if there is none.
        partitions: the partitions that the open or prepared transaction writes to, sorted.
        owner: the owner of the open or prepared transaction: "alive" or "dead" for a process of pylog, "broker" for a client
            of a Kafka broker, "unknown" if the locks do not tell. None if no transaction is open.

    >>> import pylog, tempfile
    >>> with pylog.open(tempfile.mkdtemp()) as store:
    ...     _ = store.create_topic("orders")
    ...     with store.transaction("billing") as txn:
    ...         txn.append("orders", b"paid")
    ...         txn.flush()
    ...         found = store.transactions.describe("billing")
    >>> found.state, found.partitions, found.owner
    ('Ongoing', (TopicPartition(topic='orders', partition=0),), 'alive')
    """

    transactional_id: str
    producer_id: int
    producer_epoch: int
    state: str
    timeout_ms: int
    start_timestamp_ms: int | None
    last_update_timestamp_ms: int
    duration_ms: int | None
    partitions: tuple[TopicPartition, ...]
    owner: Owner | None


@dataclass(frozen=True, slots=True)
class OpenTransactionDescription:
    """A transaction that is open in a partition: it has records there, and no marker yet. Times are milliseconds since 1970.

    Attributes:
        topic_partition: where it is open.
        producer_id, producer_epoch: the producer id and producer epoch of its records.
        coordinator_epoch: the coordinator epoch of the producer's last marker in the partition; -1 if none is known.
        start_offset: the start offset of its first record. Readers with `read_committed` stop there.
        last_timestamp_ms: the timestamp of its producer's last batch in the partition.
        duration_ms: how long it has been open; for a hanging one, how long its producer has appended nothing.
        transactional_id: the id that has the producer id; None if no id has it.
        state: Kafka's name of the state of that id; None without one.
        owner: as of `TransactionDescription`; None if the transaction hangs.
        is_hanging: true if neither its id nor a coordinator will end it: no id has the producer, or the id is in another
            transaction, or its transaction does not name the partition.

    >>> import pylog, tempfile
    >>> with pylog.open(tempfile.mkdtemp()) as store:
    ...     _ = store.create_topic("orders")
    ...     with store.transaction("billing") as txn:
    ...         txn.append("orders", b"paid")
    ...         txn.flush()
    ...         (found,) = store.transactions.find_open("orders")
    >>> found.start_offset, found.transactional_id, found.is_hanging
    (0, 'billing', False)
    """

    topic_partition: TopicPartition
    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    start_offset: int
    last_timestamp_ms: int
    duration_ms: int
    transactional_id: str | None
    state: str | None
    owner: Owner | None
    is_hanging: bool


def described(state: TransactionMetadata, owner: Owner | None, now_ms: int) -> TransactionDescription:
    """Returns the description of a state.

    Args:
        state: an id's state.
        owner: the owner of its open or prepared transaction.
        now_ms: the wall clock.
    """
    start = None if state.start_timestamp_ms == NO_TIMESTAMP else state.start_timestamp_ms
    return TransactionDescription(
        state.transactional_id,
        *state.identity,
        state.state.kafka_name,
        state.timeout_ms,
        start,
        state.last_update_timestamp_ms,
        None if state.state.is_at_rest or start is None else max(0, now_ms - start),
        tuple(sorted(state.partitions)),
        owner,
    )
