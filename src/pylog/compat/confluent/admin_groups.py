"""The groups of confluent-kafka's administrator."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from concurrent.futures import Future
from typing import Any, Final

from pylog.compat.confluent.admin_types import (
    AclOperation,
    ConsumerGroupDescription,
    ConsumerGroupListing,
    GroupMember,
    GroupMetadata,
    ListConsumerGroupsResult,
    MemberAssignment,
    MemberDescription,
)
from pylog.compat.confluent.errors import KafkaError, KafkaException, answered, failed
from pylog.compat.confluent.futures import check_list, check_timeouts, each_settled, settled
from pylog.compat.confluent.metadata import BrokerMetadata
from pylog.compat.confluent.model import BROKER, ConsumerGroupState, ConsumerGroupTopicPartitions, ConsumerGroupType
from pylog.compat.confluent.native_admin import NativeAdmin
from pylog.compat.confluent.structs import OFFSET_INVALID, TopicPartition
from pylog.compat.kafka import errors
from pylog.compat.kafka.structs import OffsetAndMetadata
from pylog.record.types import TopicPartition as NativePartition

_STATES: Final = {
    "Empty": ConsumerGroupState.EMPTY,
    "Stable": ConsumerGroupState.STABLE,
    "Dead": ConsumerGroupState.DEAD,
    "PreparingRebalance": ConsumerGroupState.PREPARING_REBALANCING,
    "Assigning": ConsumerGroupState.PREPARING_REBALANCING,
    "CompletingRebalance": ConsumerGroupState.COMPLETING_REBALANCING,
    "Reconciling": ConsumerGroupState.COMPLETING_REBALANCING,
}


class GroupsOfAdmin:
    """The calls of `AdminClient` for groups."""

    _admin: NativeAdmin

    def list_consumer_groups(
        self,
        *,
        states: set[ConsumerGroupState] | None = None,
        types: set[ConsumerGroupType] | None = None,
        request_timeout: float | None = None,
    ) -> Future[ListConsumerGroupsResult]:
        """Returns all groups, or those with some states and types.

        Args:
            states: the requested states; None for all.
            types: the requested types; None for all.
            request_timeout: seconds; not needed.

        Returns:
            A future of a `ListConsumerGroupsResult`.
        """
        check_timeouts(request_timeout=request_timeout)
        for name, kind, given in (("states", ConsumerGroupState, states), ("types", ConsumerGroupType, types)):
            if given is not None and (not isinstance(given, set) or not all(isinstance(each, kind) for each in given)):
                raise TypeError(f"{name} is not a set of {kind.__name__}")
        if types and ConsumerGroupType.UNKNOWN in types:
            raise ValueError("groups of the type UNKNOWN cannot be listed")

        def listed() -> ListConsumerGroupsResult:
            found = [_listing(each) for each in self._admin.list_groups()]
            return ListConsumerGroupsResult(
                [each for each in found if (not states or each.state in states) and (not types or each.type in types)]
            )

        return settled(listed)

    def describe_consumer_groups(
        self, group_ids: list[str], *, include_authorized_operations: bool = False, request_timeout: float | None = None
    ) -> dict[str, Future[ConsumerGroupDescription]]:
        """Returns groups with their members. One that does not exist is dead.

        Args:
            group_ids: the groups.
            include_authorized_operations: true for the rights of the program.
            request_timeout: seconds; not needed.

        Returns:
            A future of a `ConsumerGroupDescription` by group.
        """
        check_timeouts(request_timeout=request_timeout)

        def described(name: str) -> ConsumerGroupDescription:
            return _description(self._admin.describe_groups([name])[name], with_rights=include_authorized_operations)

        return each_settled(check_list(group_ids, str), described)

    def delete_consumer_groups(self, group_ids: list[str], *, request_timeout: float | None = None) -> dict[str, Future[None]]:
        """Deletes groups.

        Args:
            group_ids: the groups.
            request_timeout: seconds; not needed.

        Returns:
            A future of None by group.
        """
        check_timeouts(request_timeout=request_timeout)

        def delete(name: str) -> None:
            ((_, kind),) = self._admin.delete_consumer_groups([name])
            if kind is not errors.NoError:
                raise KafkaException(answered(kind(f"the group {name!r} cannot be deleted: {kind.description or kind.__name__}")))

        return each_settled(check_list(group_ids, str, wrong=ValueError), delete, twins=KafkaError._INVALID_ARG)

    def list_consumer_group_offsets(
        self,
        list_consumer_group_offsets_request: list[ConsumerGroupTopicPartitions],
        *,
        require_stable: bool = False,  # noqa: ARG002
        request_timeout: float | None = None,
    ) -> dict[str, Future[ConsumerGroupTopicPartitions]]:
        """Returns the committed offsets of a group. A partition without a commit has `OFFSET_INVALID`.

        Args:
            list_consumer_group_offsets_request: one group, with partitions or without.
            require_stable: accepted: a transaction's offsets count when it is committed.
            request_timeout: seconds; not needed.

        Returns:
            A future of `ConsumerGroupTopicPartitions` by group.
        """
        check_timeouts(request_timeout=request_timeout)
        request = _one_group(list_consumer_group_offsets_request)
        wanted = request.topic_partitions
        if wanted is not None:
            _check_offsets(wanted, with_offsets=False)

        def listed(name: str) -> ConsumerGroupTopicPartitions:
            partitions = None if wanted is None else [each.native for each in wanted]
            found = self._admin.list_group_offsets({name: partitions})[name]
            return ConsumerGroupTopicPartitions(name, [_committed(each, at) for each, at in found.items()])

        return each_settled([request.group_id], listed)

    def alter_consumer_group_offsets(
        self, alter_consumer_group_offsets_request: list[ConsumerGroupTopicPartitions], *, request_timeout: float | None = None
    ) -> dict[str, Future[ConsumerGroupTopicPartitions]]:
        """Commits offsets for a group without active members.

        Args:
            alter_consumer_group_offsets_request: one group, with partitions that have offsets.
            request_timeout: seconds; not needed.

        Returns:
            A future of `ConsumerGroupTopicPartitions` by group. A partition that failed has an error.
        """
        check_timeouts(request_timeout=request_timeout)
        request = _one_group(alter_consumer_group_offsets_request)
        wanted = request.topic_partitions
        if wanted is None:
            raise ValueError("topic_partitions is None; give partitions with offsets")
        _check_offsets(wanted, with_offsets=True)

        def altered(name: str) -> ConsumerGroupTopicPartitions:
            new = {each.native: OffsetAndMetadata(each.offset, each.metadata or "", each.leader_epoch or -1) for each in wanted}
            if len(new) < len(wanted):
                raise failed(KafkaError._INVALID_ARG, "a partition stands twice in the call")
            done = self._admin.alter_group_offsets(name, new)
            return ConsumerGroupTopicPartitions(name, [_altered(each, done[each.native]) for each in wanted])

        return each_settled([request.group_id], altered)

    def list_groups(self, group: str | None = None, timeout: float = -1) -> list[GroupMetadata]:  # noqa: ARG002
        """Returns groups, as confluent-kafka's older call.

        Args:
            group: one group; None for all.
            timeout: seconds; not needed.
        """
        warnings.warn(
            "list_groups is deprecated; use list_consumer_groups and describe_consumer_groups", DeprecationWarning, stacklevel=2
        )
        names = [each["group_id"] for each in self._admin.list_groups()]
        return [_older(found) for name, found in self._admin.describe_groups(names).items() if group in (None, name)]


def _one_group(given: Any) -> ConsumerGroupTopicPartitions:
    request = check_list(given, ConsumerGroupTopicPartitions, may_be_empty=True)
    if len(request) != 1:
        raise ValueError("give one group: confluent-kafka answers for one at a time")
    found: ConsumerGroupTopicPartitions = request[0]
    if not isinstance(found.group_id, str):
        raise TypeError(f"group_id={found.group_id!r} is no text")
    if not found.group_id:
        raise ValueError("group_id is empty")
    return found


def _check_offsets(given: Any, *, with_offsets: bool) -> None:
    for each in check_list(given, TopicPartition):
        if not each.topic or each.partition < 0:
            raise ValueError(f"{each!r} has no topic, or a negative partition")
        if with_offsets and each.offset < 0:
            raise ValueError(f"the offset {each.offset} of {each.topic}-{each.partition} is negative")
        if not with_offsets and each.offset != OFFSET_INVALID:
            raise ValueError(f"{each.topic}-{each.partition} has an offset; leave it out")


def _listing(found: Mapping[str, Any]) -> ConsumerGroupListing:
    state = _STATES.get(found["group_state"], ConsumerGroupState.UNKNOWN)
    return ConsumerGroupListing(found["group_id"], found["protocol_type"] == "", state, ConsumerGroupType.of(found["group_type"]))


def _description(found: Mapping[str, Any], *, with_rights: bool) -> ConsumerGroupDescription:
    return ConsumerGroupDescription(
        found["group_id"],
        False,
        [_member(each) for each in found["members"]],
        found["protocol_data"],
        _STATES.get(found["group_state"], ConsumerGroupState.UNKNOWN),
        BROKER,
        [AclOperation[each] for each in found["authorized_operations"] or ()] if with_rights else None,
        ConsumerGroupType.CLASSIC,
    )


def _member(found: Mapping[str, Any]) -> MemberDescription:
    topics = found["member_assignment"]["assigned_partitions"]
    partitions = [TopicPartition(each["topic"], number) for each in topics for number in each["partitions"]]
    return MemberDescription(
        found["member_id"], found["client_id"], found["client_host"], MemberAssignment(partitions), found["group_instance_id"]
    )


def _committed(partition: NativePartition, found: OffsetAndMetadata) -> TopicPartition:
    if found.offset < 0:
        return TopicPartition(*partition)
    epoch = found.leader_epoch if (found.leader_epoch or -1) >= 0 else None
    return TopicPartition(partition.topic, partition.partition, found.offset, found.metadata or None, epoch)


def _altered(given: TopicPartition, kind: Any) -> TopicPartition:
    found = TopicPartition(given.topic, given.partition, given.offset, given.metadata, given.leader_epoch)
    if kind is not errors.NoError:
        reason = f"the offset of {given.topic}-{given.partition} was not committed: {kind.description or kind.__name__}"
        found.error = answered(kind(reason))
    return found


def _older(found: Mapping[str, Any]) -> GroupMetadata:
    group, broker = GroupMetadata(), BrokerMetadata()
    broker.id, broker.host, broker.port = BROKER.id, BROKER.host, BROKER.port
    group.broker, group.id, group.state = broker, found["group_id"], found["group_state"]
    group.protocol_type, group.protocol = found["protocol_type"], found["protocol_data"]
    for each in found["members"]:
        member = GroupMember()
        member.id, member.client_id, member.client_host = each["member_id"], each["client_id"], each["client_host"]
        group.members.append(member)
    return group
