"""aiokafka's errors: those that kafka-python has too are its layer's classes, the others are made from one table."""

from __future__ import annotations

from typing import Any, Final, NoReturn

from pylog import errors as native
from pylog.compat.kafka import errors as kafka
from pylog.compat.kafka.errors import BrokerResponseError, KafkaError
from pylog.compat.kafka.translation import Translating, translated

_SHARED: Final = (
    "AuthenticationFailedError AuthenticationMethodNotSupported BrokerNotAvailableError Cancelled",
    "ClusterAuthorizationFailedError CommitFailedError CoordinatorLoadInProgressError CoordinatorNotAvailableError",
    "CorrelationIdError CorruptRecordException GroupAuthorizationFailedError GroupCoordinatorNotAvailableError",
    "GroupLoadInProgressError IllegalArgumentError IllegalGenerationError IllegalSaslStateError IllegalStateError",
    "InconsistentGroupProtocolError InvalidCommitOffsetSizeError InvalidConfigurationError InvalidFetchRequestError",
    "InvalidGroupIdError InvalidMessageError InvalidPartitionsError InvalidReplicationAssignmentError",
    "InvalidReplicationFactorError InvalidRequestError InvalidRequiredAcksError InvalidSessionTimeoutError",
    "InvalidTimestampError InvalidTopicError KafkaConfigurationError KafkaConnectionError KafkaProtocolError",
    "KafkaStorageError KafkaUnavailableError LeaderNotAvailableError MessageSizeTooLargeError",
    "MetadataEmptyBrokerList NoBrokersAvailable NoError NoOffsetForPartitionError NodeNotReadyError",
    "NotControllerError NotCoordinatorError NotCoordinatorForGroupError NotEnoughReplicasAfterAppendError",
    "NotEnoughReplicasError NotLeaderForPartitionError OffsetMetadataTooLargeError OffsetOutOfRangeError",
    "PolicyViolationError QuotaViolationError RebalanceInProgressError RecordListTooLargeError RequestTimedOutError",
    "StaleControllerEpochError StaleMetadata TooManyInFlightRequests TopicAlreadyExistsError",
    "TopicAuthorizationFailedError UnknownError UnknownMemberIdError UnknownTopicOrPartitionError",
    "UnrecognizedBrokerVersion UnsupportedCodecError UnsupportedForMessageFormatError UnsupportedSaslMechanismError",
    "UnsupportedVersionError",
)
_OWN: Final = """
    9:ReplicaNotAvailableError 13:StaleLeaderEpochCodeError 45:OutOfOrderSequenceNumber 46:DuplicateSequenceNumber
    47:InvalidProducerEpoch 48:InvalidTxnState 49:InvalidProducerIdMapping 50:InvalidTransactionTimeout
    51:ConcurrentTransactions 52:TransactionCoordinatorFenced 53:TransactionalIdAuthorizationFailed
    54:SecurityDisabled 55:OperationNotAttempted 57:LogDirNotFound 58:SaslAuthenticationFailed 59:UnknownProducerId
    60:ReassignmentInProgress 61:DelegationTokenAuthDisabled 62:DelegationTokenNotFound
    63:DelegationTokenOwnerMismatch 64:DelegationTokenRequestNotAllowed 65:DelegationTokenAuthorizationFailed
    66:DelegationTokenExpired 67:InvalidPrincipalType 68:NonEmptyGroup 69:GroupIdNotFound 70:FetchSessionIdNotFound
    71:InvalidFetchSessionEpoch 72:ListenerNotFound 79:MemberIdRequired
"""


class ConsumerStoppedError(Exception):
    """The consumer is stopped. Raised by calls that read, also by those that were waiting."""


class IllegalOperation(Exception):  # noqa: N818 - aiokafka's name
    """The call does not fit the configuration: a commit without a group, for example."""


class ProducerClosed(KafkaError):  # noqa: N818 - aiokafka's name
    """The producer is stopped."""


class ProducerFenced(KafkaError):  # noqa: N818 - aiokafka's name
    """A newer producer has the same `transactional_id`; stop this one."""

    def __init__(self, *args: object) -> None:
        super().__init__(*(args or ("a newer producer has the same transactional_id",)))


class KafkaTimeoutError(KafkaError):
    """A call took too long."""


class IncompatibleBrokerVersion(KafkaError):  # noqa: N818 - aiokafka's name
    """The broker is too old. Nothing here raises it."""


class RecordTooLargeError(KafkaError):
    """A record is larger than a fetch. Nothing here raises it, because a fetch takes any record."""


def _made(number: int, name: str) -> type[BrokerResponseError]:
    return kafka.made(globals(), name, (BrokerResponseError,), number)


globals().update({name: getattr(kafka, name) for name in " ".join(_SHARED).split()})
kafka_errors: Final[dict[int, type[BrokerResponseError]]] = {
    number: kind for number, kind in kafka.kafka_errors.items() if globals().get(kind.__name__) is kind
} | {int(number): _made(int(number), name) for number, name in (each.split(":") for each in _OWN.split())}
_NAMED_OTHERWISE: Final[dict[str, type[KafkaError]]] = {  # kafka-python's name: aiokafka's class
    "KafkaTimeoutError": KafkaTimeoutError,
    "ProducerFencedError": ProducerFenced,
    "InvalidProducerEpochError": ProducerFenced,
}


def for_code(error_code: int) -> type[BrokerResponseError]:
    """Returns the class for one of Kafka's error numbers; UnknownError for a number that is not in the table.

    Args:
        error_code: the number.

    >>> for_code(3).__name__, for_code(12345).__name__
    ('UnknownTopicOrPartitionError', 'UnknownError')
    """
    return kafka_errors.get(error_code, kafka_errors[-1])


def of_aiokafka(error: BaseException | None) -> Any:
    """Returns aiokafka's error for one of pylog's or of kafka-python's layer; any other error unchanged.

    Args:
        error: the error; None stays None.

    >>> of_aiokafka(native.PylogTimeoutError("it took too long"))
    KafkaTimeoutError('it took too long')
    """
    found = translated(error)
    kind = type(found)
    if not isinstance(found, KafkaError) or globals().get(kind.__name__) is kind:
        return found
    mine = _NAMED_OTHERWISE.get(kind.__name__) or kafka_errors.get(getattr(found, "errno", None) or 0)
    if mine is None:
        return found
    made = mine(*found.args)
    made.__cause__ = error
    return made


class Raising(Translating):
    """Raises aiokafka's errors in place of pylog's and of kafka-python's layer.

    Args:
        closed: the class for calls of a closed client.
    """

    def __init__(self, closed: type[Exception]) -> None:
        super().__init__(ValueError)
        self._closed = closed

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: object) -> None:
        if isinstance(error, native.PylogError | KafkaError):
            self.reraise(error)

    def reraise(self, error: Exception) -> NoReturn:
        """Raises the translation of an error."""
        if isinstance(error, native.ClosedError):
            raise self._closed from error
        if isinstance(error, native.InvalidArgumentError):
            super().reraise(error)
        made = of_aiokafka(error)
        if made is error:
            raise error
        raise made from (None if made is error.__cause__ else error)


def __getattr__(name: str) -> Any:
    """Returns the classes of the tables as names of this module, which type checkers cannot see."""
    raise AttributeError(f"aiokafka has no error {name!r}")
