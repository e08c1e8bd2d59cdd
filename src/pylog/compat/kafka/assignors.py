"""The names of kafka-python's assignors. Their work is done by pylog's assignors of the same names."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, ClassVar

from pylog.compat.kafka import errors
from pylog.groups.assignors import ASSIGNORS


class AbstractPartitionAssignor:
    """The base of kafka-python's assignors. Assignors of your own are refused: the members of a group decide together.

    Attributes:
        name: the assignor's name in Kafka's protocol.
    """

    name: ClassVar[str] = ""


class RangePartitionAssignor(AbstractPartitionAssignor):
    """Gives each member a range of each topic's partitions."""

    name = "range"


class RoundRobinPartitionAssignor(AbstractPartitionAssignor):
    """Gives the partitions of all topics to the members in turn."""

    name = "roundrobin"


class StickyPartitionAssignor(AbstractPartitionAssignor):
    """Balances, and leaves partitions where they are as far as it can."""

    name = "sticky"


class CooperativeStickyAssignor(AbstractPartitionAssignor):
    """The same, under the name of Kafka's cooperative protocol."""

    name = "cooperative-sticky"


_OWN = (RangePartitionAssignor, RoundRobinPartitionAssignor, StickyPartitionAssignor, CooperativeStickyAssignor)


def assignor_names(given: Any) -> tuple[str, ...]:
    """Returns the names of pylog's assignors for `partition_assignment_strategy`.

    Args:
        given: classes, objects or names of assignors; one of them, or several.

    Raises:
        KafkaConfigurationError: one is not known.
    """
    several = [given] if isinstance(given, str | type) or not isinstance(given, Iterable) else list(given)
    names = tuple(map(_name, several))
    if not names:
        raise errors.KafkaConfigurationError("partition_assignment_strategy is empty; name an assignor, such as range")
    return names


def _name(given: Any) -> str:
    kind = given if isinstance(given, type) else type(given)
    if isinstance(given, str) and given in ASSIGNORS:
        return given
    if kind in _OWN:
        return str(kind.name)
    raise errors.KafkaConfigurationError(
        f"assignor {given!r} is not one of {', '.join(ASSIGNORS)}, nor a class of kafka-python's"
    )
