"""Turns pylog's errors into kafka-python's. Each is raised from the original one, which has the path, position and offset."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, Final, NoReturn

from pylog import errors as native
from pylog.compat.kafka import errors
from pylog.record.types import TopicPartition

_CLASSES: Final[tuple[tuple[type[native.PylogError], str], ...]] = (  # the first that fits counts
    (native.InvalidTimestampError, "InvalidTimestampError"),
    (native.InvalidRecordError, "InvalidRecordError"),
    (native.InvalidTopicError, "InvalidTopicError"),
    (native.RecordTooLargeError, "MessageSizeTooLargeError"),
    (native.TopicAlreadyExistsError, "TopicAlreadyExistsError"),
    (native.UnknownTopicOrPartitionError, "UnknownTopicOrPartitionError"),
    (native.GroupIdNotFoundError, "GroupIdNotFoundError"),
    (native.TransactionalIdNotFoundError, "TransactionalIdNotFoundError"),
    (native.NonEmptyGroupError, "NonEmptyGroupError"),
    (native.GroupSubscribedToTopicError, "GroupSubscribedToTopicError"),
    (native.FencedMemberError, "CommitFailedError"),
    (native.UnreleasedInstanceIdError, "UnreleasedInstanceIdError"),
    (native.InconsistentGroupProtocolError, "InconsistentGroupProtocolError"),
    (native.OutOfOrderSequenceError, "OutOfOrderSequenceNumberError"),
    (native.ProducerFencedError, "ProducerFencedError"),
    (native.InvalidTransactionStateError, "InvalidTxnStateError"),
    (native.TransactionAbortedError, "TransactionAbortableError"),
    (native.CorruptionError, "CorruptRecordError"),
    (native.DecompressionLimitError, "CorruptRecordError"),
    (native.PylogTimeoutError, "KafkaTimeoutError"),
    (native.ClosedError, "IllegalStateError"),
    (native.IllegalStateError, "IllegalStateError"),
    (native.ReadOnlyError, "TopicAuthorizationFailedError"),
    (native.StoreLockedError, "NoBrokersAvailable"),
    (native.NotALogDirectoryError, "KafkaConfigurationError"),
    (native.UnsupportedFormatError, "KafkaConfigurationError"),
    (native.StorageFailedError, "KafkaStorageError"),
    (native.InvalidArgumentError, "IllegalArgumentError"),
)


def translated(error: BaseException | None) -> Any:
    """Returns kafka-python's error for one of pylog's; any other error unchanged.

    Args:
        error: the error; None stays None.

    >>> translated(native.PylogTimeoutError("it took too long"))
    KafkaTimeoutError('it took too long')
    """
    if not isinstance(error, native.PylogError):
        return error
    if isinstance(error, native.RecordDeserializationError) and error.__cause__ is not None:
        return error.__cause__
    made = _made(error)
    made.__cause__ = error
    return made


def _made(error: native.PylogError) -> Exception:
    partition = None if error.partition is None else TopicPartition(*error.partition)
    if isinstance(error, native.OffsetOutOfRangeError):
        return errors.OffsetOutOfRangeError({partition: error.offset} if partition is not None else str(error))
    if isinstance(error, native.NoOffsetForPartitionError):
        return errors.NoOffsetForPartitionError([partition] if partition is not None else str(error))
    name = next((name for kind, name in _CLASSES if isinstance(error, kind)), "KafkaError")
    made: Exception = getattr(errors, name)(str(error))
    return made


class Translating(AbstractContextManager[None]):
    """Raises kafka-python's errors in place of pylog's, and TypeError for arguments of a wrong type.

    Args:
        arguments: the class for wrong arguments; by default IllegalArgumentError. Classes other than ValueError stand for wrong
            types, too.
    """

    def __init__(self, arguments: Callable[[str], Exception] | None = None) -> None:
        self._arguments = arguments

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: object) -> None:
        if isinstance(error, native.PylogError):
            self.reraise(error)

    def reraise(self, error: native.PylogError) -> NoReturn:
        """Raises the translation of an error."""
        if isinstance(error, native.InvalidTypeError) and self._arguments in (None, ValueError):
            raise TypeError(str(error)) from error
        if self._arguments is not None and type(error) in (native.InvalidArgumentError, native.InvalidTypeError):
            raise self._arguments(str(error)) from error
        made: Exception = translated(error)
        if made is error.__cause__:
            raise made  # a deserializer's own error
        raise made from error


def reconfigured(message: str) -> Exception:
    """Returns the error of a constructor for an option that is wrong."""
    made: Exception = errors.KafkaConfigurationError(message)
    return made
