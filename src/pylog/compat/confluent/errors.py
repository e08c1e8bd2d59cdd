"""confluent-kafka's errors for pylog's. Each `KafkaException` is raised from the original one, which has path and offset."""

from __future__ import annotations

import builtins
from types import TracebackType
from typing import Any, Final

from pylog import errors as native
from pylog.compat.confluent.codes import NAMES, Codes
from pylog.compat.kafka import errors as answers


class KafkaError(Codes):
    """One error: a code, a message, and what the program should do.

    Args:
        code: Kafka's number, or a negative one of librdkafka.
        reason: the message; by default the name of the code in words.
        fatal: whether the producer cannot be used any more.
        retriable: whether the call may be repeated.
        txn_requires_abort: whether the transaction must be aborted before the next one.

    >>> error = KafkaError(KafkaError._FENCED, "a newer producer has the id", fatal=True)
    >>> error.code() == KafkaError._FENCED, error.name(), error.fatal(), error.retriable()
    (True, '_FENCED', True, False)
    """

    def __init__(
        self,
        code: int,
        reason: builtins.str | None = None,
        fatal: bool = False,
        retriable: bool = False,
        txn_requires_abort: bool = False,
    ) -> None:
        self._code = code
        self._reason = _in_words(code) if reason is None else reason
        self._flags = fatal, retriable, txn_requires_abort

    def code(self) -> int:
        """Returns the number."""
        return self._code

    def name(self) -> builtins.str:
        """Returns the name of the number."""
        return NAMES.get(self._code, f"ERR_{self._code}?")

    def str(self) -> builtins.str:
        """Returns the message."""
        return self._reason

    def fatal(self) -> bool:
        """Returns whether the producer cannot be used any more: close it."""
        return self._flags[0]

    def retriable(self) -> bool:
        """Returns whether the call may be repeated."""
        return self._flags[1]

    def txn_requires_abort(self) -> bool:
        """Returns whether the transaction must be aborted before the next one."""
        return self._flags[2]

    def __eq__(self, other: object) -> bool:
        return self._code == (other._code if isinstance(other, KafkaError) else other)

    def __hash__(self) -> int:
        return hash(self._code)

    def __repr__(self) -> builtins.str:
        flags = "FATAL," if self.fatal() else ""
        return f'KafkaError{{{flags}code={self.name()},val={self._code},str="{self._reason}"}}'


def _in_words(code: int) -> str:
    """Returns the name of a code in words, as librdkafka: its own codes are local, the others a broker's."""
    name = NAMES.get(code, f"error {code}").strip("_").replace("_", " ").capitalize()
    return f"{'Local' if code < 0 else 'Broker'}: {name}"


class KafkaException(Exception):  # noqa: N818 - confluent-kafka's name
    """Raised by the calls of this layer. Its first argument is a `KafkaError`."""


_CODES: Final[tuple[tuple[type[native.PylogError], int], ...]] = (  # the first that fits counts
    (native.ProducerFencedError, KafkaError._FENCED),
    (native.FencedMemberError, KafkaError.ILLEGAL_GENERATION),
    (native.NonEmptyGroupError, KafkaError.NON_EMPTY_GROUP),
    (native.GroupIdNotFoundError, KafkaError.GROUP_ID_NOT_FOUND),
    (native.GroupSubscribedToTopicError, KafkaError.GROUP_SUBSCRIBED_TO_TOPIC),
    (native.NoOffsetForPartitionError, KafkaError._AUTO_OFFSET_RESET),
    (native.TopicAlreadyExistsError, KafkaError.TOPIC_ALREADY_EXISTS),
    (native.InvalidTopicError, KafkaError.TOPIC_EXCEPTION),
    (native.ReadOnlyError, KafkaError.TOPIC_AUTHORIZATION_FAILED),
    (native.CorruptionError, KafkaError.INVALID_MSG),
    (native.TransactionAbortedError, KafkaError.TRANSACTION_ABORTABLE),
    (native.InvalidTransactionStateError, KafkaError._STATE),
    (native.RecordTooLargeError, KafkaError.MSG_SIZE_TOO_LARGE),
    (native.InvalidRecordError, KafkaError.INVALID_RECORD),
    (native.OffsetOutOfRangeError, KafkaError.OFFSET_OUT_OF_RANGE),
    (native.UnknownTopicOrPartitionError, KafkaError.UNKNOWN_TOPIC_OR_PART),
    (native.StorageFailedError, KafkaError.KAFKA_STORAGE_ERROR),
    (native.StoreLockedError, KafkaError._TIMED_OUT),
    (native.PylogTimeoutError, KafkaError._TIMED_OUT),
    (native.InvalidArgumentError, KafkaError._INVALID_ARG),
    (native.ClosedError, KafkaError._STATE),
    (native.IllegalStateError, KafkaError._STATE),
)
_FATAL: Final = (native.ProducerFencedError, native.SyncFailedError)
_NOT_ABORTABLE: Final = (native.InvalidTransactionStateError, native.ClosedError, native.IllegalStateError)


def error_of(error: BaseException, *, in_transaction: bool = False) -> KafkaError:
    """Returns the error for one of pylog's.

    Args:
        error: an error.
        in_transaction: true if the call belongs to an open transaction, which then must be aborted; false if the call may be
            repeated after an error that may pass.
    """
    code = next((number for kind, number in _CODES if isinstance(error, kind)), KafkaError._FAIL)
    fatal = isinstance(error, _FATAL)
    passes = code == KafkaError._TIMED_OUT and not in_transaction
    return KafkaError(code, str(error), fatal, passes, in_transaction and not fatal and not isinstance(error, _NOT_ABORTABLE))


def answered(error: Exception) -> KafkaError:
    """Returns the error for one of kafka-python's layer, which has Kafka's number if a broker answers so.

    Args:
        error: an error of `pylog.compat.kafka.errors`, or one of pylog's.
    """
    code = getattr(error, "errno", None)
    if isinstance(error, answers.KafkaError) and code is not None:
        return KafkaError(code, " ".join(map(str, error.args)), retriable=bool(error.retriable))
    return error_of(error.__cause__ if isinstance(error.__cause__, native.PylogError) else error)


class Translating:
    """Raises `KafkaException` for pylog's errors, and RuntimeError for a call of a closed client. Args: as for `error_of`."""

    def __init__(self, *, in_transaction: bool = False) -> None:
        self._in_transaction = in_transaction

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        if isinstance(error, native.ClosedError):
            raise RuntimeError(str(error)) from error  # noqa: TRY004 - as confluent-kafka
        if isinstance(error, native.PylogError):
            raise KafkaException(error_of(error, in_transaction=self._in_transaction)) from error


def failed(code: int, reason: str, **flags: Any) -> KafkaException:
    """Returns an exception with a new error."""
    return KafkaException(KafkaError(code, reason, **flags))
