"""The options of a consumer, checked on construction. Names, defaults and meanings are kafka-python's."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Generic, TypedDict

import numpy as np

from pylog import limits
from pylog.arguments import check_option_names, is_int
from pylog.awaitables import refuse_coroutine_function
from pylog.errors import InvalidArgumentError
from pylog.groups.member_options import MemberOptions
from pylog.log.arguments import ISOLATIONS
from pylog.offsets.arguments import checked_group
from pylog.record.types import K, V
from pylog.serializers import DeserializesRecords, RecordHeaders, calls_of, conversion_of
from pylog.times import milliseconds_of

Deserializer = Callable[..., Any] | DeserializesRecords[Any]

_INSTEAD: Final = {
    "bootstrap_servers": "a consumer belongs to an open store; leave it out. pylog.compat.kafka runs programs for kafka-python"
}
_LOWEST: Final = {
    "auto_commit_interval_ms": 0,
    "max_poll_records": 1,
    "max_poll_interval_ms": 1,
    "session_timeout_ms": 1,
    "heartbeat_interval_ms": 1,
    "fetch_max_bytes": 0,
    "max_partition_fetch_bytes": 0,
}
_BY_DURATION: Final = "by_duration:"


@dataclass(frozen=True)
class ResetPolicy:
    """`auto_offset_reset`: where reading begins without a committed offset.

    Attributes:
        kind: "latest", "earliest", "none" or "by_duration".
        duration_ms: with "by_duration", the milliseconds before now.

    >>> ResetPolicy.of("by_duration:PT1H30M")
    ResetPolicy(kind='by_duration', duration_ms=5400000)
    """

    kind: str
    duration_ms: int = 0

    @classmethod
    def of(cls, text: object) -> ResetPolicy:
        """Returns the policy of a text such as "latest" or "by_duration:PT24H" (groups-and-transactions 2.5).

        Raises:
            InvalidArgumentError: the text is not a policy.
        """
        if isinstance(text, str) and text in ("latest", "earliest", "none"):
            return cls(text)
        duration_ms = _duration_of(text)
        if duration_ms < 0:
            raise InvalidArgumentError(
                f"auto_offset_reset={text!r} is not latest, earliest, none or by_duration:PT24H (an ISO-8601 duration)"
            )
        return cls("by_duration", duration_ms)


def _duration_of(text: object) -> int:
    """Returns the milliseconds of "by_duration:PT24H"; -1 for any other text."""
    if not isinstance(text, str) or not text.startswith(_BY_DURATION):
        return -1
    try:
        return milliseconds_of(text.removeprefix(_BY_DURATION))
    except InvalidArgumentError:
        return -1


@dataclass(frozen=True, kw_only=True)
class ConsumerOptions:
    """The options of `Store.consumer`. Times in milliseconds, sizes in bytes.

    Attributes:
        group_id: the name of the consumer group; None for a consumer without a group, which commits nothing.
        auto_offset_reset: where to begin if there is no committed offset, or the position is no longer in the log: "latest",
            "earliest", "none" (an error) or "by_duration:PT24H" (the first record of the last 24 hours).
        enable_auto_commit: commit, in `poll`, the records that earlier polls returned. Default: true if there is a group.
        auto_commit_interval_ms: the least time between two automatic commits.
        isolation_level: "read_committed" hides aborted transactions and waits for open ones.
        max_poll_records: the largest number of records that one `poll` returns.
        key_deserializer: turns the key's bytes into an object: a function of the bytes, a function of (bytes, topic, headers), or
            an object with `deserialize(topic, headers, data)`. Null stays None; only the object is called for it, too.
        value_deserializer: the same for the value.
        consumer_timeout_ms: iteration ends if no record arrives for this time; None never ends it.
        fetch_max_bytes: the size up to which records are read ahead, of all partitions together.
        max_partition_fetch_bytes: the same for one partition. Either may be exceeded by one Arrow batch.
        exclude_internal_topics: true if patterns do not match Kafka's internal topics.
        partition_assignment_strategy: names of assignors, the preferred one first.
        client_id: the name of the program, for `describe` of the group.
        group_instance_id: the name of a static member, which may restart within its session without a rebalance.
        max_poll_interval_ms: the longest time between two polls; after it the member leaves the group.
        session_timeout_ms: how long a member may be silent before the others take its partitions.
        heartbeat_interval_ms: the time between two heartbeats. At each, a consumer checks for new topics and partitions.

    Raises:
        InvalidArgumentError: a value is out of its range.

    >>> ConsumerOptions(group_id="billing").auto_commits, ConsumerOptions().auto_commits
    (True, False)
    """

    group_id: str | None = None
    auto_offset_reset: str = "latest"
    enable_auto_commit: bool | None = None
    auto_commit_interval_ms: int = 5_000
    isolation_level: str = "read_uncommitted"
    max_poll_records: int = 500
    key_deserializer: Deserializer | None = None
    value_deserializer: Deserializer | None = None
    consumer_timeout_ms: float | None = None
    fetch_max_bytes: int = 50 << 20
    max_partition_fetch_bytes: int = 1 << 20
    exclude_internal_topics: bool = True
    partition_assignment_strategy: str | tuple[str, ...] = ("range", "cooperative-sticky")
    client_id: str = "pylog"
    group_instance_id: str | None = None
    max_poll_interval_ms: int = 300_000
    session_timeout_ms: int = 45_000
    heartbeat_interval_ms: int = 3_000

    def __post_init__(self) -> None:
        for name, low in _LOWEST.items():
            object.__setattr__(self, name, check_int(name, getattr(self, name), low))  # converts NumPy's integers
        object.__setattr__(self, "partition_assignment_strategy", _checked_names(self.partition_assignment_strategy))
        if self.isolation_level not in ISOLATIONS:
            raise InvalidArgumentError(f"isolation_level={self.isolation_level!r} is not one of {', '.join(ISOLATIONS)}")
        for name in ("key_deserializer", "value_deserializer"):
            conversion_of(name, getattr(self, name), "deserialize")
            refuse_coroutine_function(name, calls_of(getattr(self, name), "deserialize"), "pass a plain function")
        if self.enable_auto_commit not in (None, True, False):
            raise InvalidArgumentError(f"enable_auto_commit={self.enable_auto_commit!r} is not True or False")
        if self.group_id is None and self.enable_auto_commit:
            raise InvalidArgumentError("enable_auto_commit=True requires a group; set group_id, or leave automatic commits off")
        if self.consumer_timeout_ms is not None:
            object.__setattr__(self, "consumer_timeout_ms", checked_timeout("consumer_timeout_ms", self.consumer_timeout_ms))
        ResetPolicy.of(self.auto_offset_reset)
        if self.group_id is not None:
            checked_group(self.group_id)
        _ = self.member  # a member's options are refused here too, before anything is opened for them

    @classmethod
    def of(cls, options: Mapping[str, Any]) -> ConsumerOptions:
        """Returns options from a mapping by name.

        Raises:
            InvalidArgumentError: an option does not exist; the message lists the known ones.
        """
        check_option_names("consumer", options, [field.name for field in dataclasses.fields(cls)], _INSTEAD)
        return cls(**options)

    @property
    def auto_commits(self) -> bool:
        """True if `poll` commits automatically."""
        return self.group_id is not None if self.enable_auto_commit is None else self.enable_auto_commit

    @property
    def committed_only(self) -> bool:
        """True if the isolation level is `read_committed`."""
        return self.isolation_level == "read_committed"

    @property
    def assignors(self) -> tuple[str, ...]:
        """The names in `partition_assignment_strategy`."""
        given = self.partition_assignment_strategy
        return (given,) if isinstance(given, str) else given

    @property
    def member(self) -> MemberOptions:
        """How the consumer takes part in its group."""
        return MemberOptions(
            client_id=self.client_id,
            group_instance_id=self.group_instance_id,
            session_timeout_ms=self.session_timeout_ms,
            max_poll_interval_ms=self.max_poll_interval_ms,
            heartbeat_interval_ms=self.heartbeat_interval_ms,
            assignors=self.assignors,
            commits_new_partitions=self.auto_offset_reset == "latest",
        )


class ConsumerArguments(TypedDict, Generic[K, V], total=False):
    """The options of `Store.consumer`, for type checkers and editors: the fields of `ConsumerOptions`.

    K and V are what the deserializers return. Without a deserializer they are bytes or None.
    """

    group_id: str | None
    auto_offset_reset: str
    enable_auto_commit: bool | None
    auto_commit_interval_ms: int
    isolation_level: str
    max_poll_records: int
    key_deserializer: Callable[[bytes], K] | Callable[[bytes, str, RecordHeaders], K] | DeserializesRecords[K] | None
    value_deserializer: Callable[[bytes], V] | Callable[[bytes, str, RecordHeaders], V] | DeserializesRecords[V] | None
    consumer_timeout_ms: float | None
    fetch_max_bytes: int
    max_partition_fetch_bytes: int
    exclude_internal_topics: bool
    partition_assignment_strategy: str | tuple[str, ...] | list[str]
    client_id: str
    group_instance_id: str | None
    max_poll_interval_ms: int
    session_timeout_ms: int
    heartbeat_interval_ms: int


def _checked_names(given: object) -> str | tuple[str, ...]:
    """Returns the names of assignors. Does not check that they exist."""
    if isinstance(given, str):
        return given
    if not isinstance(given, list | tuple) or not all(isinstance(each, str) for each in given):
        raise InvalidArgumentError(f"partition_assignment_strategy={given!r} is not a list of assignor names")
    return tuple(given)


def check_int(name: str, value: object, low: int) -> int:
    """Returns an argument as an int; raises if it is less than `low` or not an integer."""
    if not is_int(value) or not low <= value <= limits.INT64_MAX:
        raise InvalidArgumentError(f"{name}={value!r} is not an int of at least {low}")
    return int(value)


def checked_timeout(name: str, value: object) -> float:
    """Returns a timeout argument in milliseconds; infinity waits indefinitely."""
    if isinstance(value, bool) or not isinstance(value, int | float | np.integer | np.floating) or not value >= 0:
        raise InvalidArgumentError(f"{name}={value!r} is not a number of milliseconds of at least 0")
    return float(value) if value <= limits.INT64_MAX else math.inf
