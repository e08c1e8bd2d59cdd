"""An administrator's consumer groups."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import SimpleNamespace
from typing import Any

from pylog.compat.clusters import Cluster
from pylog.compat.kafka import errors
from pylog.compat.kafka.admin_types import MemberToRemove, OffsetTimestamp
from pylog.compat.kafka.answers import offsets_of
from pylog.compat.kafka.enums import GroupState, GroupType
from pylog.compat.kafka.structs import GroupInformation, MemberInformation, OffsetAndMetadata, OffsetSpec
from pylog.compat.kafka.translation import Translating, translated
from pylog.errors import GroupIdNotFoundError, PylogError
from pylog.groups.description import GroupDescription, MemberDescription
from pylog.offsets.offset_manager import CommitLogs
from pylog.offsets.store import offset_manager_of
from pylog.record.types import OffsetAndMetadata as NativeOffset
from pylog.record.types import TopicPartition

_ALLOWED = ("READ", "DELETE", "DESCRIBE", "DESCRIBE_CONFIGS", "ALTER_CONFIGS")  # as a broker without an authorizer answers
Coordinator = int | None  # the broker that a group belongs to; there is one


class GroupsOfAdmin:
    """The calls of `KafkaAdminClient` for groups.

    They raise kafka-python's errors: CorruptRecordError for damaged offsets, NoBrokersAvailable for a lock that another process
    keeps. Once the administrator is closed, each of them raises IllegalStateError.
    """

    _cluster: Cluster

    # ---- reading -------------------------------------------------------------------------------------------------------------

    def list_groups(
        self, broker_ids: Any = None, states_filter: Iterable[Any] | None = None, types_filter: Iterable[Any] | None = None
    ) -> list[dict[str, str]]:
        """Returns all groups, or those with some states and types.

        Args:
            broker_ids: ignored; there is one broker.
            states_filter: `GroupState` or Kafka's names of states; by default all.
            types_filter: `GroupType` or its names; all groups are classic.
        """
        states = {GroupState.value_for(each) for each in states_filter or ()}
        types = {GroupType.value_for(each) for each in types_filter or ()}
        found = []
        with Translating():
            for name in self._cluster.store.groups():
                group = self._cluster.store.group(name).describe()
                if (not states or group.state in states) and (not types or GroupType.CLASSIC in types):
                    found.append(_listed(group))
        return found

    def describe_groups(
        self, group_ids: Iterable[str], group_coordinator_id: Coordinator = None, include_authorized_operations: bool = False
    ) -> dict[str, dict[str, Any]]:
        """Returns groups with their members. A group that does not exist is dead, and has an error.

        Args:
            group_ids: names of groups.
            group_coordinator_id: ignored; there is one broker.
            include_authorized_operations: ignored; they are always in the answer.
        """
        with Translating():
            return {name: self._described(name) for name in group_ids}

    def _described(self, name: str) -> dict[str, Any]:
        try:
            group = self._cluster.store.group(name).describe()
        except GroupIdNotFoundError as error:
            message = str(translated(error))
            return {
                "error": message,
                "group_id": name,
                "group_state": "Dead",
                "protocol_type": "",
                "protocol_data": "",
                "members": [],
                "authorized_operations": None,
            }
        return {
            "error": None,
            "group_id": name,
            "group_state": group.state,
            "protocol_type": group.protocol_type or "consumer",
            "protocol_data": group.assignor if group.members else "",
            "members": list(map(_member, group.members)),
            "authorized_operations": list(_ALLOWED),
        }

    def list_group_offsets(
        self, group_specs: str | Iterable[str] | Mapping[str, Iterable[TopicPartition] | None]
    ) -> dict[str, dict[TopicPartition, OffsetAndMetadata]]:
        """Returns committed offsets by group and partition. A requested partition without a commit has the offset -1.

        Args:
            group_specs: a group, groups, or partitions by group.
        """
        specs = {group_specs: None} if isinstance(group_specs, str) else group_specs
        specs = specs if isinstance(specs, Mapping) else dict.fromkeys(specs)
        if not specs:
            raise ValueError("there is no group in group_specs")
        with Translating(ValueError):
            return {name: self._offsets(name, partitions) for name, partitions in specs.items()}

    def _offsets(self, name: str, partitions: Iterable[TopicPartition] | None) -> dict[TopicPartition, OffsetAndMetadata]:
        found = offsets_of(self._cluster.store.offsets.fetch(name))
        if partitions is None:
            return found
        return {partition: found.get(partition, OffsetAndMetadata(-1)) for partition in partitions}

    # ---- changing ------------------------------------------------------------------------------------------------------------

    def alter_group_offsets(
        self, group_id: str, offsets: Mapping[TopicPartition, OffsetAndMetadata], group_coordinator_id: Coordinator = None
    ) -> dict[TopicPartition, Any]:
        """Commits offsets for a group without active members. Returns the class of an error by partition, NoError for none."""
        return self._commit_for(group_id, offsets, None)

    def _commit_for(
        self, group_id: str, offsets: Mapping[TopicPartition, OffsetAndMetadata], logs: CommitLogs | None
    ) -> dict[TopicPartition, Any]:
        given: Any = {
            partition: NativeOffset(new.offset, new.metadata or "", new.leader_epoch if (new.leader_epoch or -1) >= 0 else None)
            for partition, new in (offsets or {}).items()
        }
        try:
            offset_manager_of(self._cluster.store.offsets).commit(group_id, given, logs=logs)
        except PylogError as error:
            made: Any = errors.UnknownMemberIdError if _has_members(error) else type(translated(error))
            return dict.fromkeys(offsets or (), made)
        return dict.fromkeys(offsets or (), errors.NoError)

    def reset_group_offsets(
        self, group_id: str, offset_specs: Mapping[TopicPartition, Any], group_coordinator_id: Coordinator = None
    ) -> dict[TopicPartition, dict[str, Any]]:
        """Sets a group's offsets to an `OffsetSpec`, an `OffsetTimestamp` or an offset, within each log's ends.

        Returns:
            By partition, the class of the error, NoError for none, and the offset.
        """
        with Translating(ValueError):
            logs = offset_manager_of(self._cluster.store.offsets).logs_of(offset_specs)  # before their ends are read
            targets = {partition: self._target(partition, spec) for partition, spec in offset_specs.items()}
            old = offsets_of(self._cluster.store.offsets.fetch(group_id))
        none = OffsetAndMetadata(0)
        new = {partition: old.get(partition, none)._replace(offset=offset) for partition, offset in targets.items()}
        done = self._commit_for(group_id, new, logs)
        return {partition: {"error": done[partition], "offset": targets[partition]} for partition in targets}

    def _target(self, partition: TopicPartition, spec: Any) -> int:
        log = self._cluster.store.log(*partition)
        start, end = log.start_offset, log.end_offset
        if isinstance(spec, OffsetSpec | OffsetTimestamp):
            offset: int = self.list_partition_offsets({partition: spec})[partition].offset  # type: ignore[attr-defined]  # of another part
        elif isinstance(spec, int) and not isinstance(spec, bool):
            offset = spec
        else:
            raise TypeError(f"{spec!r} is not an OffsetSpec, an OffsetTimestamp or an offset")
        return end if offset < 0 or offset > end else max(offset, start)

    def delete_group_offsets(
        self, group_id: str, partitions: Iterable[TopicPartition], group_coordinator_id: Coordinator = None
    ) -> dict[TopicPartition, Any]:
        """Deletes a group's offsets for partitions. Returns the class of an error by partition, NoError for none.

        Raises:
            GroupIdNotFoundError: there is no such group.
        """
        wanted = list(partitions)
        found: dict[TopicPartition, Any] = {}
        with Translating(ValueError):
            for partition in wanted:
                try:
                    self._cluster.store.group(group_id).delete_offsets([partition])
                except GroupIdNotFoundError:
                    raise
                except PylogError as error:
                    found[partition] = type(translated(error))
                else:
                    found[partition] = errors.NoError
        return found

    def delete_groups(self, group_ids: Iterable[str], group_coordinator_id: Coordinator = None) -> dict[str, str]:
        """Deletes groups. Returns by group "OK" or the name of the error."""
        return {name: "OK" if error is errors.NoError else error.__name__ for name, error in self._deleted(group_ids)}

    def _deleted(self, group_ids: Iterable[str]) -> list[tuple[str, Any]]:
        found: list[tuple[str, Any]] = []
        for name in group_ids:
            try:
                self._cluster.store.group(name).delete()
            except PylogError as error:
                found.append((name, type(translated(error))))
            else:
                found.append((name, errors.NoError))
        return found

    def remove_group_members(
        self, group_id: str, members: Iterable[MemberToRemove], group_coordinator_id: Coordinator = None
    ) -> dict[str | None, Any]:
        """Returns the class of an error by member: pylog removes no member that is running, and none that is not there.

        Raises:
            GroupIdNotFoundError: there is no such group.
        """
        with Translating(ValueError):
            group = self._cluster.store.group(group_id).describe()
        known = {each.member_id for each in group.members} | {each.instance_id for each in group.members}
        found: dict[str | None, Any] = {}
        for each in members:
            name = each.member_id or each.group_instance_id
            found[name] = errors.NonEmptyGroupError if name in known else errors.UnknownMemberIdError
        return found

    # ---- version 2 -----------------------------------------------------------------------------------------------------------

    def list_consumer_groups(self, broker_ids: Any = None) -> list[tuple[str, str]]:
        """Returns the names of the groups with their protocol, as version 2 does."""
        return [(each["group_id"], each["protocol_type"]) for each in self.list_groups()]

    def describe_consumer_groups(
        self, group_ids: Iterable[str], group_coordinator_id: Coordinator = None, include_authorized_operations: bool = False
    ) -> list[GroupInformation]:
        """Returns groups as version 2 does."""
        return [_information(each) for each in self.describe_groups(group_ids).values()]

    def list_consumer_group_offsets(
        self, group_id: str, group_coordinator_id: Coordinator = None, partitions: Iterable[TopicPartition] | None = None
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """Returns a group's committed offsets by partition, as version 2 does."""
        return self.list_group_offsets({group_id: partitions})[group_id]

    def delete_consumer_groups(self, group_ids: Iterable[str], group_coordinator_id: Coordinator = None) -> list[tuple[str, Any]]:
        """Deletes groups. Returns pairs of a group and the class of its error, as version 2 does."""
        return self._deleted(group_ids)


def _listed(group: GroupDescription) -> dict[str, str]:
    return {
        "group_id": group.group_id,
        "protocol_type": group.protocol_type or "consumer",
        "group_state": group.state,
        "group_type": GroupType.CLASSIC.value,  # kafka-python's consumers have no other
    }


def _member(member: MemberDescription) -> dict[str, Any]:
    numbers: dict[str, list[int]] = {}
    for partition in member.assignment:
        numbers.setdefault(partition.topic, []).append(partition.partition)
    assigned = [{"topic": topic, "partitions": sorted(some)} for topic, some in sorted(numbers.items())]
    return {
        "member_id": member.member_id,
        "group_instance_id": member.instance_id,
        "client_id": member.client_id,
        "client_host": member.host,
        "member_metadata": {"topics": sorted(numbers)},
        "member_assignment": {"assigned_partitions": assigned, "user_data": None},
    }


def _information(found: Mapping[str, Any]) -> GroupInformation:
    members = [
        MemberInformation(
            each["member_id"],
            each["client_id"],
            each["client_host"],
            SimpleNamespace(subscription=each["member_metadata"]["topics"], version=0, user_data=None),
            SimpleNamespace(
                assignment=[(some["topic"], some["partitions"]) for some in each["member_assignment"]["assigned_partitions"]],
                version=0,
                user_data=None,
            ),
        )
        for each in found["members"]
    ]
    code = 0 if found["error"] is None else 69
    return GroupInformation(
        code, found["group_id"], found["group_state"], found["protocol_type"], found["protocol_data"], members, None
    )


def _has_members(error: PylogError) -> bool:
    return isinstance(translated(error), errors.NonEmptyGroupError)
