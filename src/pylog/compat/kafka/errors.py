"""kafka-python's errors, made from one table: error numbers, names, and the bases that `except` clauses rely on."""

from __future__ import annotations

import re
from typing import Any, Final


class KafkaError(RuntimeError):
    """The root of kafka-python's errors. `RuntimeError` is its base in version 2; version 3 has `Exception`.

    Attributes:
        retriable: true if the same call may succeed later.
        invalid_metadata: true if a client would refresh what it knows of the topics.
    """

    retriable = False
    invalid_metadata = False

    def __str__(self) -> str:
        name = type(self).__name__
        return f"{name}: {super().__str__()}" if self.args else name

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and self.args == getattr(other, "args", None)

    def __hash__(self) -> int:
        return hash(type(self))


class RetriableError(KafkaError):
    """The same call may succeed later."""

    retriable = True


class InvalidMetadataError(RetriableError):
    """The client has old metadata."""

    invalid_metadata = True


class BrokerResponseError(KafkaError):
    """An error that a broker would answer.

    Attributes:
        errno: Kafka's number of the error.
        message: Kafka's name of it, such as `OFFSET_OUT_OF_RANGE`.
        description: the same in words.
    """

    errno: int | None = None
    message: str | None = None
    description: str | None = None

    def __str__(self) -> str:
        return f"[Error {self.errno}] {super().__str__()}"


class AuthorizationError(BrokerResponseError):
    """The client may not do this."""


class KafkaProtocolError(KafkaError):
    """An answer could not be understood."""


class CorrelationIdError(RetriableError, KafkaProtocolError):
    """An answer belongs to another request."""


class InvalidReceiveError(KafkaProtocolError):
    """An answer has an impossible size."""


class CommitFailedError(KafkaError):
    """The consumer is no longer a member of its group, or no longer owns the partitions that it commits."""

    def __init__(self, *args: object) -> None:
        super().__init__(*(args or ("the group was rebalanced, and the partitions belong to another member now",)))


class LogTruncationError(KafkaError):
    """A log was truncated below a consumer's position.

    Attributes:
        divergent_offsets: by partition, the position up to which the log is unchanged; None if it is unknown.
    """

    def __init__(self, divergent_offsets: Any, *args: object) -> None:
        self.divergent_offsets = divergent_offsets
        super().__init__(*(args or (f"partitions were truncated: {divergent_offsets}",)))


_PLAIN: Final = """
    AsyncProducerQueueFull AuthenticationFailedError AuthenticationMethodNotSupported FailedPayloadsError
    IllegalArgumentError IllegalStateError KafkaConfigurationError KafkaUnavailableError NoOffsetForPartitionError
    QuotaViolationError TransactionAbortedError UnknownBrokerIdError UnrecognizedBrokerVersion UnsupportedCodecError
"""
_RETRIABLE: Final = """
    Cancelled KafkaTimeoutError MetadataEmptyBrokerList NodeNotReadyError TooManyInFlightRequests
"""
_METADATA: Final = """
    KafkaConnectionError StaleMetadata
"""
_AUTHORIZATION: Final = """
    29:TopicAuthorizationFailedError 30:GroupAuthorizationFailedError 31:ClusterAuthorizationFailedError
    53:TransactionalIdAuthorizationFailedError 65:DelegationTokenAuthorizationFailedError
"""
_RETRIABLE_ANSWERS: Final = """
    7:RequestTimedOutError 14:CoordinatorLoadInProgressError 15:CoordinatorNotAvailableError 16:NotCoordinatorError
    19:NotEnoughReplicasError 20:NotEnoughReplicasAfterAppendError 41:NotControllerError 51:ConcurrentTransactionsError
    70:FetchSessionIdNotFoundError 71:InvalidFetchSessionEpochError 78:OffsetNotAvailableError
    88:UnstableOffsetCommitError 89:ThrottlingQuotaExceededError 106:FetchSessionTopicIdError
    122:ShareSessionNotFoundError 123:InvalidShareSessionEpochError
"""
_METADATA_ANSWERS: Final = """
    3:UnknownTopicOrPartitionError 5:LeaderNotAvailableError 6:NotLeaderForPartitionError 9:ReplicaNotAvailableError
    13:NetworkExceptionError 56:KafkaStorageError 72:ListenerNotFoundError 74:FencedLeaderEpochError
    75:UnknownLeaderEpochError 80:PreferredLeaderNotAvailableError 83:EligibleLeadersNotAvailableError
    84:ElectionNotNeededError 100:UnknownTopicIdError 103:InconsistentTopicIdError
"""
_ANSWERS: Final = """
    -1:UnknownError 0:NoError 1:OffsetOutOfRangeError 2:CorruptRecordError 4:InvalidFetchRequestError
    8:BrokerNotAvailableError 10:MessageSizeTooLargeError 11:StaleControllerEpochError 12:OffsetMetadataTooLargeError
    17:InvalidTopicError 18:RecordListTooLargeError 21:InvalidRequiredAcksError 22:IllegalGenerationError
    23:InconsistentGroupProtocolError 24:InvalidGroupIdError 25:UnknownMemberIdError 26:InvalidSessionTimeoutError
    27:RebalanceInProgressError 28:InvalidCommitOffsetSizeError 32:InvalidTimestampError
    33:UnsupportedSaslMechanismError 34:IllegalSaslStateError 35:UnsupportedVersionError 36:TopicAlreadyExistsError
    37:InvalidPartitionsError 38:InvalidReplicationFactorError 39:InvalidReplicationAssignmentError
    40:InvalidConfigurationError 42:InvalidRequestError 43:UnsupportedForMessageFormatError 44:PolicyViolationError
    45:OutOfOrderSequenceNumberError 46:DuplicateSequenceNumberError 47:InvalidProducerEpochError
    48:InvalidTxnStateError 49:InvalidProducerIdMappingError 50:InvalidTransactionTimeoutError
    52:TransactionCoordinatorFencedError 54:SecurityDisabledError 55:OperationNotAttemptedError 57:LogDirNotFoundError
    58:SaslAuthenticationFailedError 59:UnknownProducerIdError 60:ReassignmentInProgressError
    61:DelegationTokenAuthDisabledError 62:DelegationTokenNotFoundError 63:DelegationTokenOwnerMismatchError
    64:DelegationTokenRequestNotAllowedError 66:DelegationTokenExpiredError 67:InvalidPrincipalTypeError
    68:NonEmptyGroupError 69:GroupIdNotFoundError 73:TopicDeletionDisabledError 76:UnsupportedCompressionTypeError
    77:StaleBrokerEpochError 79:MemberIdRequiredError 81:GroupMaxSizeReachedError 82:FencedInstanceIdError
    85:NoReassignmentInProgressError 86:GroupSubscribedToTopicError 87:InvalidRecordError 90:ProducerFencedError
    91:ResourceNotFoundError 92:DuplicateResourceError 93:UnacceptableCredentialError 94:InconsistentVoterSetError
    95:InvalidUpdateVersionError 96:FeatureUpdateFailedError 97:PrincipalDeserializationFailureError
    98:SnapshotNotFoundError 99:PositionOutOfRangeError 101:DuplicateBrokerRegistrationError
    102:BrokerIdNotRegisteredError 104:InconsistentClusterIdError 105:TransactionalIdNotFoundError
    107:IneligibleReplicaError 108:NewLeaderElectedError 109:OffsetMovedToTieredStorageError 110:FencedMemberEpochError
    111:UnreleasedInstanceIdError 112:UnsupportedAssignorError 113:StaleMemberEpochError
    114:MismatchedEndpointTypeError 115:UnsupportedEndpointTypeError 116:UnknownControllerIdError
    117:UnknownSubscriptionIdError 118:TelemetryTooLargeError 119:InvalidRegistrationError
    120:TransactionAbortableError 121:InvalidRecordStateError 124:FencedStateEpochError 125:InvalidVoterKeyError
    126:DuplicateVoterError 127:VoterNotFoundError
"""
_KINDS: Final[dict[str, tuple[type[KafkaError], ...]]] = {
    _PLAIN: (KafkaError,),
    _RETRIABLE: (RetriableError,),
    _METADATA: (InvalidMetadataError,),
    _AUTHORIZATION: (AuthorizationError,),
    _RETRIABLE_ANSWERS: (RetriableError, BrokerResponseError),
    _METADATA_ANSWERS: (InvalidMetadataError, BrokerResponseError),
    _ANSWERS: (BrokerResponseError,),
}
_SAME: Final = {  # other names of the same classes
    "CorruptRecordException": "CorruptRecordError",
    "GroupCoordinatorNotAvailableError": "CoordinatorNotAvailableError",
    "GroupLoadInProgressError": "CoordinatorLoadInProgressError",
    "InvalidMessageError": "CorruptRecordError",
    "NotCoordinatorForGroupError": "NotCoordinatorError",
    "ProtocolError": "KafkaProtocolError",
    "StaleLeaderEpochCodeError": "NetworkExceptionError",
}
_IRREGULAR: Final = {  # Kafka's names that do not follow from the class's
    "NoError": "NO_ERROR",
    "CorruptRecordError": "CORRUPT_MESSAGE",
    "InvalidFetchRequestError": "INVALID_FETCH_SIZE",
    "InvalidConfigurationError": "INVALID_CONFIG",
    "KafkaStorageError": "KAFKA_STORAGE_ERROR",
    "FetchSessionTopicIdError": "FETCH_SESSION_TOPIC_ID_ERROR",
}


def made(names: dict[str, Any], name: str, bases: tuple[type[KafkaError], ...], errno: int | None = None) -> Any:
    """Returns a new class, which becomes a name of a module.

    Args:
        names: the module's.
        name: the name of the class.
        bases: the bases of the class.
        errno: Kafka's number of the error.
    """
    words = re.sub("(?<=[a-z])(?=[A-Z])", " ", name.removesuffix("Error"))
    members: dict[str, Any] = {"__module__": names["__name__"], "__doc__": f"Kafka's error {words.lower()!r}."}
    if errno is not None:
        members |= {
            "errno": errno,
            "message": _IRREGULAR.get(name, words.upper().replace(" ", "_")),
            "description": f"{words.capitalize()}.",
        }
    names[name] = type(name, bases, members)
    return names[name]


def _made(name: str, bases: tuple[type[KafkaError], ...], errno: int | None = None) -> type[KafkaError]:
    kind: type[KafkaError] = made(globals(), name, bases, errno)
    return kind


def _classes() -> dict[int, type[BrokerResponseError]]:
    """Makes the classes of the table. Returns those with a number."""
    numbered: dict[int, Any] = {}
    for names, bases in _KINDS.items():
        for entry in names.split():
            number, _, name = entry.rpartition(":")
            kind = _made(name, bases, int(number) if number else None)
            if number:
                numbered[int(number)] = kind
    return numbered


kafka_errors: Final = _classes()
_made("IncompatibleBrokerVersion", (kafka_errors[35],), 35)
_made("NoBrokersAvailable", (globals()["KafkaTimeoutError"],))  # version 3 raises the one, version 2 the other
globals().update({name: globals()[same] for name, same in _SAME.items()})


def for_code(error_code: int) -> type[BrokerResponseError]:
    """Returns the class for one of Kafka's error numbers; a new subclass of UnknownError for a number that is not in the table.

    Args:
        error_code: the number.

    >>> for_code(3).__name__, for_code(12345).errno
    ('UnknownTopicOrPartitionError', 12345)
    """
    unknown: Any = kafka_errors[-1]
    found: Any = kafka_errors.get(error_code)
    return found or type("UnrecognizedBrokerError", (unknown,), {"errno": error_code})


def __getattr__(name: str) -> Any:
    """Returns the classes of the table as names of this module, which type checkers cannot see."""
    raise AttributeError(f"kafka-python has no error {name!r}")
