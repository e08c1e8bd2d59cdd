"""The calls of `Producer` for transactions, under the names of Kafka's clients."""

from __future__ import annotations

from pylog.errors import InvalidTransactionStateError
from pylog.offsets.group_metadata import ConsumerGroupMetadata
from pylog.producer.buffer import RecordAccumulator
from pylog.producer.transactions import ProducerTransactions
from pylog.transactions.group_consumer import GroupConsumer, Offsets


class TransactionCalls:
    """The transactional calls of a producer that was created with a `transactional_id`.

    Without one, each of them raises `InvalidTransactionStateError`; once the producer is closed, `ClosedError`.
    """

    _buffer: RecordAccumulator
    _transactions: ProducerTransactions | None

    def init_transactions(self) -> None:
        """Fences older producers with the same transactional id, in any process, and aborts what they have open.

        Call it once, before the first transaction; later calls do nothing. After an error, call it again.

        Raises:
            InvalidTransactionStateError: the producer has no `transactional_id`.
            IllegalStateError: a broker's directory that has no transactions yet.
            CorruptionError, StorageFailedError, StoreLockedError: it may be called again.

        Kafka source: KafkaProducer.initTransactions.

        >>> import pylog, tempfile
        >>> store = pylog.open(tempfile.mkdtemp())
        >>> _ = store.create_topic("invoices")
        >>> with store.producer(transactional_id="billing") as producer:
        ...     producer.init_transactions()
        ...     producer.begin_transaction()
        ...     future = producer.send("invoices", b"9.50", key=b"42")
        ...     producer.commit_transaction()
        ...     future.result().offset
        0
        >>> store.close()
        """
        self._of_transactions().init()

    def begin_transaction(self) -> None:
        """Begins a transaction: the records and offsets that are sent from now on belong to it.

        Raises:
            InvalidTransactionStateError: `init_transactions` was not called, or a transaction is open: commit or abort it.

        Kafka source: KafkaProducer.beginTransaction.
        """
        self._of_transactions().begin()

    def send_offsets_to_transaction(self, offsets: Offsets, group_metadata: str | ConsumerGroupMetadata | GroupConsumer) -> None:
        """Adds offsets of a consumer group, which are committed if, and only if, the transaction is.

        Args:
            offsets: by partition, the offset of the next record that the group will read.
            group_metadata: `consumer.group_metadata()`: the commit fails if the consumer has lost one of the partitions. Or the
                name of a group without active members.

        Raises:
            InvalidTransactionStateError: no transaction is open, or an earlier call has failed: abort it.
            OffsetOutOfRangeError, UnknownTopicOrPartitionError, InvalidArgumentError: nothing was added.

        Kafka source: KafkaProducer.sendOffsetsToTransaction.
        """
        self._of_transactions().send_offsets(offsets, group_metadata)

    def commit_transaction(self) -> None:
        """Writes what was sent, and commits. When it returns, `read_committed` readers see all of the transaction.

        Raises:
            ProducerFencedError: a newer producer has the id. Give up: close this producer.
            FencedMemberError: the consumer has lost a partition whose offset was sent. Abort, poll, and begin again.
            NonEmptyGroupError: offsets were sent for a group's name, and the group has active members. Abort.
            InvalidTransactionStateError: no transaction is open, or an earlier call has failed. Abort.
            TransactionAbortedError: the transaction has timed out, or an administrator has aborted it. Abort, and begin again.
            SyncFailedError: the outcome is unknown until the store is opened again.
            PylogError: as `Log.append`, such as StoreLockedError. Abort, and begin again.

        Cost: as `Transaction.commit`.

        Kafka source: KafkaProducer.commitTransaction.
        """
        self._of_transactions().commit()

    def abort_transaction(self) -> None:
        """Drops what was not written, and aborts the transaction. Futures of records that were not written fail.

        Raises:
            InvalidTransactionStateError: no transaction is open, or its outcome is committed or unknown.
            ProducerFencedError: a newer producer has the id. Give up: close this producer.
            StorageFailedError, StoreLockedError: the abort could not be written. The next transaction of the id aborts this one.

        Kafka source: KafkaProducer.abortTransaction.
        """
        self._of_transactions().abort()

    def _of_transactions(self) -> ProducerTransactions:
        if self._transactions is None:
            self._buffer.check_open()
            message = "the producer has no transactional id, so it has no transactions"
            raise InvalidTransactionStateError(f"{message}; create it with transactional_id=")
        return self._transactions
