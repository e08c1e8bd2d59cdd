"""kafka-python's enumerations of topics, options, groups and transactions."""

from __future__ import annotations

from enum import IntEnum, StrEnum
from typing import Any, Self


class Buildable:
    """The two class methods that kafka-python's enumerations have."""

    @classmethod
    def build_from(cls, val: Any) -> Self:
        """Returns a member for itself, its value or its name in any case.

        Args:
            val: one of these.

        Raises:
            ValueError: there is none.

        >>> GroupState.build_from("preparing-rebalance").value
        'PreparingRebalance'
        """
        kind: Any = cls
        for each in kind:
            if val is each or (val == each.value and not isinstance(val, bool)):
                return each
        name = str(val).strip().upper().replace("-", "_")
        if name not in kind.__members__:
            raise ValueError(f"{val!r} is not one of {', '.join(kind.__members__)}")
        return kind[name]

    @classmethod
    def value_for(cls, val: Any) -> Any:
        """Returns the value of the member that `build_from` returns.

        Args:
            val: as for `build_from`.

        Raises:
            ValueError: there is none.
        """
        found: Any = cls.build_from(val)
        return found.value


class AlterConfigOp(Buildable, IntEnum):
    """What `alter_configs` does with an option."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


class ConfigFilterType(Buildable, IntEnum):
    """Which options `describe_configs` returns."""

    ALL = 0
    DYNAMIC = 1
    MODIFIED = 2
    DEFAULT = 3
    STATIC = 4


class ConfigResourceType(Buildable, IntEnum):
    """The kinds of things that have options."""

    UNKNOWN = 0
    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32


class ConfigSourceType(Buildable, IntEnum):
    """Where an option's value comes from."""

    UNKNOWN = 0
    DYNAMIC_TOPIC_CONFIG = 1
    DYNAMIC_BROKER_CONFIG = 2
    DYNAMIC_DEFAULT_BROKER_CONFIG = 3
    STATIC_BROKER_CONFIG = 4
    DEFAULT_CONFIG = 5
    DYNAMIC_BROKER_LOGGER_CONFIG = 6
    DYNAMIC_CLIENT_METRICS_CONFIG = 7
    DYNAMIC_GROUP_CONFIG = 8


class ConfigType(Buildable, IntEnum):
    """The types of options."""

    UNKNOWN = 0
    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7
    CLASS = 8
    PASSWORD = 9


class GroupState(Buildable, StrEnum):
    """The states of a group."""

    UNKNOWN = "Unknown"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"
    EMPTY = "Empty"
    ASSIGNING = "Assigning"
    RECONCILING = "Reconciling"


class GroupType(Buildable, StrEnum):
    """The protocols of groups."""

    UNKNOWN = "Unknown"
    CLASSIC = "classic"
    CONSUMER = "consumer"
    SHARE = "share"


class UpdateFeatureType(Buildable, IntEnum):
    """How a broker's feature changes."""

    UNKNOWN = 0
    UPGRADE = 1
    SAFE_DOWNGRADE = 2
    UNSAFE_DOWNGRADE = 3


class TransactionState(Buildable, StrEnum):
    """The states of a transaction."""

    EMPTY = "Empty"
    ONGOING = "Ongoing"
    PREPARE_COMMIT = "PrepareCommit"
    PREPARE_ABORT = "PrepareAbort"
    COMPLETE_COMMIT = "CompleteCommit"
    COMPLETE_ABORT = "CompleteAbort"
    DEAD = "Dead"
    PREPARE_EPOCH_FENCE = "PrepareEpochFence"
    UNKNOWN = "Unknown"
