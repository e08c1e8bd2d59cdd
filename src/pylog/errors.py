"""Every error that pylog raises: one hierarchy under `PylogError`.

A message is a sentence that names the path, position and offset concerned and states what to do next. The same facts are
attributes, so that programs need not parse the sentence. Messages never contain record contents.

Three checks of bytes have three errors, in this order: `UnsupportedFormatError` for an unknown format, `CorruptionError` for
bytes that were altered, `DecompressionLimitError` for data that is too large to handle.
"""

from __future__ import annotations

import errno
import os

__all__ = [
    "ArchiveFencedError",
    "ClosedError",
    "CorruptionError",
    "DecompressionLimitError",
    "DirectoryReplacedError",
    "FencedMemberError",
    "GroupIdNotFoundError",
    "GroupSubscribedToTopicError",
    "IllegalStateError",
    "InconsistentGroupProtocolError",
    "InvalidArgumentError",
    "InvalidRecordError",
    "InvalidTimestampError",
    "InvalidTopicError",
    "InvalidTransactionStateError",
    "NoOffsetForPartitionError",
    "NonEmptyGroupError",
    "NotALogDirectoryError",
    "ObjectConflictError",
    "ObjectExistsError",
    "ObjectNotFoundError",
    "ObjectStoreError",
    "ObjectStoreUnavailableError",
    "OffsetOutOfRangeError",
    "OutOfOrderSequenceError",
    "ProducerError",
    "ProducerFencedError",
    "PylogError",
    "PylogTimeoutError",
    "ReadOnlyError",
    "RecordDeserializationError",
    "RecordTooLargeError",
    "StorageFailedError",
    "StoreLockedError",
    "SyncFailedError",
    "TopicAlreadyExistsError",
    "TransactionAbortedError",
    "UnknownTopicOrPartitionError",
    "UnreleasedInstanceIdError",
    "UnsupportedFormatError",
    "WakeupError",
]

NO_ROOM = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})  # temporary: succeeds once space has been freed
NO_DESCRIPTOR = frozenset({errno.EMFILE, errno.ENFILE})  # temporary: succeeds once files are closed; nothing was done
PathLike = str | os.PathLike[str]


class PylogError(Exception):
    """The root of all pylog errors.

    Args:
        message: one sentence for a human reader.
        path: the file or directory concerned, if any.
        position: the byte in that file, if any.
        offset: the record offset concerned, if any.

    Attributes:
        partition: topic and number of the partition whose records a consumer could not return; None for all other errors.
        next_offset: where reading can continue after records that cannot be read (`scan(start=next_offset)`); None if no records
            follow, and for all other errors.

    >>> error = PylogError("the disk is full", path="/data/orders-0")
    >>> str(error), error.path, error.offset
    ('the disk is full', '/data/orders-0', None)
    """

    def __init__(
        self,
        message: str,
        *,
        path: PathLike | None = None,
        position: int | None = None,
        offset: int | None = None,
    ) -> None:
        super().__init__(message)
        self.path = None if path is None else os.fspath(path)
        self.position = position
        self.offset = offset
        self.partition: tuple[str, int] | None = None
        self.next_offset: int | None = None

    def __reduce__(self) -> tuple[object, ...]:
        return _rebuild, (type(self), self.args, self.__dict__)


def _rebuild(kind: type[PylogError], arguments: tuple[object, ...], attributes: dict[str, object]) -> PylogError:
    """Unpickles an error: Spark sends errors from its workers to the driver."""
    error = kind.__new__(kind, *arguments)
    error.args = arguments
    error.__dict__.update(attributes)
    return error


class InvalidArgumentError(PylogError, ValueError):
    """An argument, option or configuration value is invalid; nothing was written."""


class InvalidTypeError(InvalidArgumentError, TypeError):
    """An argument has a type that the call does not accept; nothing was written."""


class InvalidTopicError(InvalidArgumentError):
    """A topic name breaks Kafka's naming rule, or names one of Kafka's internal topics, which only the store itself may write."""


class InvalidRecordError(InvalidArgumentError):
    """A record or a table of records cannot be written: a wrong type, a negative timestamp, or an invalid null."""


class InvalidTimestampError(InvalidRecordError):
    """A record's timestamp is further from now than the topic's `message_timestamp_*_max_ms` allow; nothing was written."""


class RecordTooLargeError(InvalidArgumentError):
    """A record with its batch is larger than `max_message_bytes` or `segment_bytes`."""


class TopicAlreadyExistsError(InvalidArgumentError):
    """A topic of that name exists already."""


class UnknownTopicOrPartitionError(PylogError, LookupError):
    """The store has no such topic, or the topic no such partition."""


class GroupIdNotFoundError(PylogError, LookupError):
    """The consumer group does not exist: it has no members and no committed offsets."""


class TransactionalIdNotFoundError(PylogError, LookupError):
    """The transactional id does not exist: it has no record, or its record has expired."""


class NonEmptyGroupError(PylogError):
    """The consumer group has active members: close their consumers before you reset or delete it."""


class GroupSubscribedToTopicError(PylogError):
    """Members of the consumer group subscribe to the topic, so its committed offsets stay; nothing was deleted."""


class OffsetOutOfRangeError(PylogError, LookupError):
    """The offset is before the log's start or beyond its end."""


class NoOffsetForPartitionError(PylogError, LookupError):
    """A group has no committed offset for a partition, and `auto_offset_reset="none"` sets no other position."""


class RecordDeserializationError(PylogError):
    """A consumer's deserializer raised for the record at `offset`; its error is the cause. The position stays at the record."""


class IllegalStateError(PylogError):
    """The object is not in a state for this call: the partition is not assigned, say, or another thread uses the consumer."""


class ArchiveFencedError(IllegalStateError):
    """The archive belongs to another directory of the same store: this one is a copy, was moved, or was restored."""


class NotALogDirectoryError(PylogError):
    """The path is missing, is not a directory, or its permissions do not allow the requested use."""


class ReadOnlyError(PylogError):
    """The store or the partition is open for reading only."""


class ClosedError(PylogError):
    """The store or log is closed, or belongs to another process (after a fork)."""


class PylogTimeoutError(PylogError, TimeoutError):
    """The awaited event did not happen in the given time. Work that has begun continues."""


class WakeupError(PylogError):
    """`Consumer.wakeup` was called: the poll or iteration ends. No record is lost; the next poll returns them."""


class StoreLockedError(PylogError):
    """Another process, a Kafka broker or pylog, has opened the directory for writing.

    Attributes:
        pid: the process that holds the lock, if the system reports it.
    """

    def __init__(self, message: str, *, path: PathLike | None = None, pid: int | None = None) -> None:
        super().__init__(message, path=path)
        self.pid = pid


class StorageFailedError(PylogError):
    """The operating system refused or failed a call; the data that the call should have written is not acknowledged.

    Attributes:
        errno: the system's error number.
    """

    def __init__(
        self,
        message: str,
        *,
        path: PathLike | None = None,
        position: int | None = None,
        offset: int | None = None,
        errno: int | None = None,
    ) -> None:
        super().__init__(message, path=path, position=position, offset=offset)
        self.errno = errno

    @property
    def passes(self) -> bool:
        """Whether the call can be repeated once space is freed or files are closed: nothing is in doubt meanwhile.

        >>> StorageFailedError("the disk is full", errno=28).passes, SyncFailedError("the disk is full", errno=28).passes
        (True, False)
        """
        return self.errno in NO_ROOM | NO_DESCRIPTOR


class DirectoryReplacedError(StorageFailedError):
    """The directory, or a file of it, was removed, moved or replaced while it was open; nothing more is written to it.

    A name leads to another file than the open one, as after a backup was restored. Close the store and open it again. Records
    that were acknowledged before are in the removed files.
    """


class SyncFailedError(StorageFailedError):
    """A sync failed. Data that it should have made durable may be lost, even if a later sync succeeds."""

    @property
    def passes(self) -> bool:
        """Always false."""
        return False


class ObjectStoreError(StorageFailedError):
    """An object store refused or failed a request. The message and the attributes never contain a credential.

    Attributes:
        url: URL of the store, with the prefix of the archive.
        key: key of the object, relative to the URL; empty for a request that names no object.
    """

    def __init__(self, message: str, *, url: str = "", key: str = "") -> None:
        super().__init__(message, path=f"{url}/{key}" if key else url)
        self.url = url
        self.key = key


class ObjectNotFoundError(ObjectStoreError, LookupError):
    """The object store has no object of that key."""


class ObjectExistsError(ObjectStoreError):
    """An object of that key exists already, and the request creates objects only; nothing was written."""


class ObjectConflictError(ObjectStoreError):
    """The object was changed since it was read, so it was not replaced; nothing was written."""


class ObjectStoreUnavailableError(ObjectStoreError):
    """The object store did not answer, or answered with a part of the data. The request may or may not have been carried out."""


class ProducerError(PylogError):
    """A log refused a batch because of its producer's earlier batches; nothing was written.

    Attributes:
        producer_id: that of the refused batch.
        epoch: the producer epoch of the refused batch.
        sequence: the first sequence of the refused batch.
        expected: the value that the batch should have had; each subclass defines which value.
    """

    def __init__(self, message: str, *, producer_id: int, epoch: int, sequence: int, expected: int) -> None:
        super().__init__(message)
        self.producer_id = producer_id
        self.epoch = epoch
        self.sequence = sequence
        self.expected = expected


class OutOfOrderSequenceError(ProducerError):
    """A batch does not continue its producer's last batch: a batch between them is missing, or this one is old.

    Attributes:
        expected: the first sequence of the next batch.
    """


class ProducerFencedError(ProducerError):
    """A producer with the same id, or the same transactional id, and a higher epoch has taken over.

    Attributes:
        expected: that epoch; batches of lower epochs are refused.
        sequence: the first sequence of the refused batch; -1 if no batch was involved.
    """


class InvalidTransactionStateError(PylogError):
    """The producer's transaction is not in a state for this call, as a commit with no open transaction; nothing was written.

    A batch outside any transaction is refused if its producer has an open transaction, which began at `offset`.
    """


class TransactionAbortedError(PylogError):
    """The transaction was aborted by another call, also of this process: its timeout was over, an administrator aborted it, or a
    topic that it writes to was deleted with `force=True`.

    None of its records become visible to `read_committed` readers. The producer can begin the transaction again.
    """


class FencedMemberError(PylogError):
    """The group refuses a member's request: the member was removed from the group, or the partition is not assigned to it.

    Nothing was written. The consumer's next poll reports the lost partitions and joins the group again.
    """


class InconsistentGroupProtocolError(PylogError):
    """A consumer cannot join a group: no assignor of its list is supported by all members. Nothing was written."""


class UnreleasedInstanceIdError(PylogError):
    """A static member cannot join its group: the group has a live member with the same `group_instance_id`."""


class UnsupportedFormatError(PylogError):
    """This pylog does not support the version or codec. Such data is never repaired and never guessed at.

    An unknown magic byte of a batch raises `CorruptionError` instead: no CRC covers that byte, so it may as well be damage.
    """


class DecompressionLimitError(PylogError):
    """A batch would take too much memory: it decompresses to more than 64 MiB, or has more than a million headers."""


class CorruptionError(PylogError):
    """Bytes are damaged: they are kept, reported and never returned; the data around them stays readable."""

    def __init__(
        self,
        message: str,
        *,
        path: PathLike | None = None,
        position: int | None = None,
        offset: int | None = None,
        next_offset: int | None = None,
    ) -> None:
        super().__init__(message, path=path, position=position, offset=offset)
        self.next_offset = next_offset


def without_frames(error: BaseException) -> None:
    """Removes the tracebacks from an error that is kept: their frames keep arbitrary objects alive."""
    seen: BaseException | None = error
    while seen is not None:
        seen.__traceback__ = None
        seen = seen.__cause__ or seen.__context__
