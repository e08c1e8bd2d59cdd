"""Takes observations of a store: its topics, partitions and groups, each refreshed once."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Final

from pylog.directory.locks import KAFKA_LOCK
from pylog.errors import ClosedError, PylogError
from pylog.fs import join
from pylog.fs.system_info import room_at
from pylog.groups.observer import GroupObserver
from pylog.log.partition_log import PartitionLog
from pylog.log.reading.counting import HeaderTally
from pylog.log.state import LogState
from pylog.log_manager import LogManager
from pylog.offsets.offset_manager import OffsetManager
from pylog.offsets.schema import OFFSETS_TOPIC
from pylog.record.types import TopicPartition
from pylog.topics.topic import Topic
from pylog.ui.observation import THIS_PROCESS, GroupSeen, Observation, PartitionSeen, SegmentSeen, TierSeen, TopicSeen
from pylog.ui.tallies import Tallies
from pylog.urls import is_url

RATES: Final = 60  # of a topic that are kept


def take(
    manager: LogManager, offsets: OffsetManager, observer: GroupObserver, tallies: Tallies, before: Observation | None
) -> Observation:
    """Takes an observation.

    Args:
        manager, offsets: the store's manager and offsets.
        observer: the observer of its groups when an observation begins.
        tallies: the tallies of its segments.
        before: the observation before, for rates.

    Raises:
        ClosedError: the store is closed. PylogError: the directory cannot be listed.
    """
    groups = {}
    names, faults = offsets.known_groups()  # before the logs: a commit is never past the end then
    for name in names:
        found = group_seen(observer, name)
        if found is not None:
            groups[name] = found
    tallies.begin(observer.topics)
    topics = {name: topic_seen(observer, topic, tallies, before) for name, topic in sorted(observer.topics.items())}
    return observed(manager, observer, topics, groups, names, faults)


def observed(
    manager: LogManager,
    observer: GroupObserver,
    topics: Mapping[str, TopicSeen],
    groups: Mapping[str, GroupSeen],
    names: Iterable[str],
    faults: Mapping[int, PylogError],
) -> Observation:
    """Returns the observation of topics and groups. A group whose name is known and which is not there cannot be read.

    Args:
        manager, observer, topics, groups: what was observed.
        names: the groups that are known.
        faults: why the groups in a partition of `__consumer_offsets` are not known.
    """
    topics = _with_faults(topics, faults)
    free = room_at(manager.path)
    unreadable = tuple(name for name in names if name not in groups)
    holder = _holder(manager)
    return Observation(manager.path, observer.now_ms, topics, groups, unreadable, free and free[0], {}, holder)


def _with_faults(topics: Mapping[str, TopicSeen], faults: Mapping[int, PylogError]) -> Mapping[str, TopicSeen]:
    """Returns the topics, with the faults of the committed offsets: damage in a record is found only when it is read."""
    known = topics.get(OFFSETS_TOPIC)
    if known is None or not faults:
        return topics
    found = {each: faults.get(each.partition.partition) for each in known.partitions}
    seen = tuple(each if each.trouble or error is None else replace(each, loss=str(error)) for each, error in found.items())
    return {**topics, OFFSETS_TOPIC: replace(known, partitions=seen)}


def _holder(manager: LogManager) -> str:
    """Returns what has the directory open for writing, by the locks. Their owners are not named: that would read all of /proc."""
    if manager.writable:
        return THIS_PROCESS
    owner = None if is_url(manager.path) else manager.fs.lock_owner(join(manager.path, KAFKA_LOCK))
    return "" if owner is None else "a broker" if owner else "a writer"


def group_seen(observer: GroupObserver, name: str) -> GroupSeen | None:
    """Returns a group; None if it was deleted, or its records cannot be read."""
    try:
        state = observer.group(name)
        if state is None:
            return None
        committed_ms = max((each.commit_timestamp or -1 for each in state.offsets.values()), default=-1)
        return GroupSeen(name, observer.health(name, state), state.group.state, state.group.members, committed_ms)
    except ClosedError:
        raise
    except PylogError:
        return None


def topic_seen(observer: GroupObserver, topic: Topic, tallies: Tallies, before: Observation | None) -> TopicSeen:
    """Returns a topic, with its rate since the observation before."""
    seen = tuple(_partition(observer, tallies, TopicPartition(topic.name, number)) for number in topic.partition_ids)
    found = before.topics.get(topic.name) if before is not None else None
    known = found if found is not None and found.id == topic.id else None  # otherwise it was created again
    rate = None if before is None or known is None else _rate(known, seen, observer.now_ms - before.at_ms)
    rates = () if known is None or rate is None else (*known.rates, rate)[-RATES:]
    return TopicSeen(topic.name, seen, topic.config, rate, rates, topic.id)


def _partition(observer: GroupObserver, tallies: Tallies, partition: TopicPartition) -> PartitionSeen:
    try:
        found = observer.unread(partition)
        if found is None:  # deleted meanwhile
            return PartitionSeen(partition, damage="it was deleted")
        state = found.state
        stable = found.stable_offset()
        undurable = found.first(state.durable_offset) if state.start_offset <= state.durable_offset < state.end_offset else None
        return PartitionSeen(
            partition,
            state.start_offset,
            state.end_offset,
            state.durable_offset,
            stable,
            _segments(state, tallies.of(found.log, state)),
            None,
            -1 if undurable is None or undurable.timestamp is None else undurable.timestamp,
            _tier(found.log, state),
            next((each.message for each in found.losses), None),
        )
    except ClosedError:
        raise
    except PylogError as error:
        return PartitionSeen(partition, damage=str(error))


def _tier(log: PartitionLog, state: LogState) -> TierSeen | None:
    """Returns what is archived, without a request; None if nothing is."""
    found = log.tiers.facts()
    if found is None:
        return None
    facts, waiting = found
    local = state.local or state
    return TierSeen(
        local.start_offset,
        sum(local.size_of(segment) for _, segment in local.segments),
        facts.archived_end,
        facts.archived_bytes,
        sum(segment.size for segment in waiting),
        waiting[0].appends.file_ms if waiting else -1,
        facts.failure,
    )


def _segments(state: LogState, counted: Mapping[int, HeaderTally]) -> tuple[SegmentSeen, ...]:
    return tuple(
        SegmentSeen(
            base,
            state.end_of(each),
            state.size_of(each),
            each.largest_timestamp(),
            each is state.active,
            counted.get(base),
            None if each.sealed_by is None else each.sealed_by[0] is not None,
        )
        for base, each in state.segments
    )


def _rate(known: TopicSeen, seen: tuple[PartitionSeen, ...], passed_ms: int) -> float | None:
    """Returns the offsets a second since the observation before; None if no time has passed."""
    if passed_ms <= 0:
        return None
    ends = {each.partition: each.end_offset for each in known.partitions}
    grown = sum(max(0, each.end_offset - ends.get(each.partition, each.end_offset)) for each in seen)
    return grown * 1000 / passed_ms
