"""Every error pylog raises: one hierarchy under `PylogError`.

A message is a sentence that names the place (path, position, offset) and says what to do next. The same facts are
attributes, so that programs need not parse the sentence. Messages carry places, never record contents.

Three questions about bytes have three errors, asked in this order: is it a format we know (`UnsupportedFormatError`), is
it what was written (`CorruptionError`), is it small enough to be handled (`DecompressionLimitError`).
"""

from __future__ import annotations

import errno
import os

__all__ = [
    "ClosedError",
    "CorruptionError",
    "DecompressionLimitError",
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
    "UnknownTopicOrPartitionError",
    "UnreleasedInstanceIdError",
    "UnsupportedFormatError",
    "WakeupError",
]

NO_ROOM = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})  # what passes when somebody makes room
NO_DESCRIPTOR = frozenset({errno.EMFILE, errno.ENFILE})  # what passes when files are closed; nothing was done
PathLike = str | os.PathLike[str]


class PylogError(Exception):
    """The root of all pylog errors.

    Args:
        message: one sentence for a person.
        path: the file or directory concerned, if any.
        position: the byte in that file, if any.
        offset: the record offset concerned, if any.

    Attributes:
        partition: topic and number of the partition whose records a consumer could not hand out; None elsewhere.

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

    def __reduce__(self) -> tuple[object, ...]:
        return _rebuild, (type(self), self.args, self.__dict__)


def _rebuild(kind: type[PylogError], arguments: tuple[object, ...], attributes: dict[str, object]) -> PylogError:
    """Unpickles an error: Spark carries them from its workers to the driver."""
    error = kind.__new__(kind, *arguments)
    error.args = arguments
    error.__dict__.update(attributes)
    return error


class InvalidArgumentError(PylogError, ValueError):
    """An argument, option or configuration value is not one that pylog accepts; nothing was written."""


class InvalidTopicError(InvalidArgumentError):
    """A topic name breaks Kafka's rule for names, or names one of Kafka's internal topics, which only the store itself writes."""


class InvalidRecordError(InvalidArgumentError):
    """A record or a table of records cannot be written: wrong type, negative timestamp, null where none may be."""


class InvalidTimestampError(InvalidRecordError):
    """A record's timestamp is further from now than the topic's `message_timestamp_*_max_ms` allow; nothing was written."""


class RecordTooLargeError(InvalidArgumentError):
    """A record, with its batch around it, is larger than `max_message_bytes` or `segment_bytes`."""


class TopicAlreadyExistsError(InvalidArgumentError):
    """A topic of that name is there already."""


class UnknownTopicOrPartitionError(PylogError, LookupError):
    """There is no such topic, or no such partition of it, in this store."""


class GroupIdNotFoundError(PylogError, LookupError):
    """There is no such consumer group: nobody has joined it, and nothing is committed for it."""


class NonEmptyGroupError(PylogError):
    """The consumer group has members that are at work: close their consumers before it is reset or deleted."""


class GroupSubscribedToTopicError(PylogError):
    """Members of the consumer group read the topic, so what is committed for it stays; nothing was deleted."""


class OffsetOutOfRangeError(PylogError, LookupError):
    """The offset lies before the log's start or beyond its end."""


class NoOffsetForPartitionError(PylogError, LookupError):
    """A consumer's group has committed nothing for a partition, and `auto_offset_reset="none"` leaves it there."""


class RecordDeserializationError(PylogError):
    """A consumer's deserializer raised for the record at `offset`; what it raised is the cause. The position stays there."""


class IllegalStateError(PylogError):
    """The call does not fit in what was called before: a partition that is not assigned, a consumer that another thread uses."""


class NotALogDirectoryError(PylogError):
    """The path is missing, is not a directory, or may not be used as asked."""


class ReadOnlyError(PylogError):
    """The store, or this partition of it, is open for reading only."""


class ClosedError(PylogError):
    """The store or log was closed, or belongs to another process (after a fork)."""


class PylogTimeoutError(PylogError, TimeoutError):
    """What was waited for has not come in the time given. What was begun goes on."""


class WakeupError(PylogError):
    """`Consumer.wakeup` was called: the poll or iteration ends here. Nothing is lost; the next poll hands out the records."""


class StoreLockedError(PylogError):
    """Another process, a Kafka broker or pylog, has the directory open for writing.

    Attributes:
        pid: the process that holds the lock, where the system tells.
    """

    def __init__(self, message: str, *, path: PathLike | None = None, pid: int | None = None) -> None:
        super().__init__(message, path=path)
        self.pid = pid


class StorageFailedError(PylogError):
    """The operating system refused or failed a call; what the call should have written is not acknowledged.

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
        """Whether the call can be made again once there is room, or files are closed: nothing is in doubt meanwhile.

        >>> StorageFailedError("the disk is full", errno=28).passes, SyncFailedError("the disk is full", errno=28).passes
        (True, False)
        """
        return self.errno in NO_ROOM | NO_DESCRIPTOR


class SyncFailedError(StorageFailedError):
    """A sync failed, for whatever reason: what it should have made durable may be lost, whatever a later sync says."""

    @property
    def passes(self) -> bool:
        """Never."""
        return False


class ProducerError(PylogError):
    """A log refuses a batch because of what its producer wrote before; nothing was written.

    Attributes:
        producer_id, epoch, sequence: of the refused batch.
        expected: what the batch should have had; of what, the kind of error says.
    """

    def __init__(self, message: str, *, producer_id: int, epoch: int, sequence: int, expected: int) -> None:
        super().__init__(message)
        self.producer_id = producer_id
        self.epoch = epoch
        self.sequence = sequence
        self.expected = expected


class OutOfOrderSequenceError(ProducerError):
    """A batch does not follow on from its producer's last one: one between them is missing, or this one is from long ago.

    Attributes:
        expected: the sequence that the next batch begins with.
    """


class ProducerFencedError(ProducerError):
    """A producer of the same id and a higher epoch has taken over.

    Attributes:
        expected: that epoch; batches of lower ones are refused.
    """


class InvalidTransactionStateError(PylogError):
    """A batch outside any transaction comes from a producer that has a transaction open, which began at `offset`."""


class FencedMemberError(PylogError):
    """A member of a consumer group may not do what it asked: it was put out of the group, or the partition is not its own.

    Nothing was written. The consumer's next poll tells which partitions are lost, and joins the group again.
    """


class InconsistentGroupProtocolError(PylogError):
    """A consumer cannot join a group: none of its assignors is known to all members. Nothing was written."""


class UnreleasedInstanceIdError(PylogError):
    """A static member cannot join its group: one with the same `group_instance_id` is in it, and lives."""


class UnsupportedFormatError(PylogError):
    """A version or codec that this pylog does not know. It is never repaired, and never guessed at.

    An unknown magic byte of a batch is `CorruptionError`: no CRC covers that byte, so it is damage as likely as news.
    """


class DecompressionLimitError(PylogError):
    """A batch would decompress to more than `max_batch_decompressed_bytes`."""


class CorruptionError(PylogError):
    """Bytes are not what was written: they are kept, reported and not served; what lies around them stays readable.

    Attributes:
        next_offset: where reading can go on behind the damage (`scan(start=next_offset)`), or None when nothing follows.
    """

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
    """Takes the tracebacks off an error that is kept: their frames hold whatever was at work."""
    seen: BaseException | None = error
    while seen is not None:
        seen.__traceback__ = None
        seen = seen.__cause__ or seen.__context__
