"""Records that remove inactive members from a group, for instance members that remained when a broker stopped.

The broker would wait for these members when it starts again. After their removal their consumers join again and fetch the
committed offsets; otherwise they would continue from their old positions and commit those.
"""

from __future__ import annotations

from collections.abc import Iterator

from pylog import limits
from pylog.offsets.image import GroupImage
from pylog.offsets.membership import (
    DELETION_ORDER,
    GROUP_EPOCH,
    MEMBER,
    TARGET_EPOCH,
    Epoch,
    format_epoch,
    group_record_key,
    member_of,
    parse_epoch,
    parse_member,
)
from pylog.offsets.schema import CONSUMER_PROTOCOL, format_empty_group, group_key, subscribed_topics
from pylog.replayed_partition import KeyValue


def member_ids(image: GroupImage) -> set[str]:
    """Returns the members in a group's records, of either protocol."""
    classic = image.metadata()
    found = {member_of(key) for key in image.membership if key[1] == MEMBER}
    return found if classic is None else found | {member.member_id for member in classic.members}


def topics_read(image: GroupImage) -> dict[str, frozenset[str] | None]:
    """Returns the topics of each member; None if they are unknown: it is not a consumer, or subscribes with a pattern."""
    classic = image.metadata()
    found: dict[str, frozenset[str] | None] = {}
    if classic is not None:
        consumers = classic.protocol_type == CONSUMER_PROTOCOL
        found = {each.member_id: subscribed_topics(each.subscription) if consumers else None for each in classic.members}
    for key, entry in image.membership.items():
        if key[1] == MEMBER:
            wishes = parse_member(entry.value)
            found[member_of(key)] = None if wishes.topic_regex else frozenset(wishes.topics)
    return found


def dismissed(group: bytes, image: GroupImage, now_ms: int) -> Iterator[KeyValue]:
    """Yields the records that remove all members, as a coordinator writes them when the last member leaves.

    Args:
        group: the bytes of the group's name.
        image: the group's records.
        now_ms: the time at which the group becomes empty.

    Spec: groups-and-transactions 1.7 (c), 1.8.
    """
    classic = image.metadata()
    if classic is not None and classic.members:
        yield group_key(group), format_empty_group(classic.protocol_type, _next(classic.generation), now_ms)
    if not image.has_members:
        return
    for kind in DELETION_ORDER:
        if kind == GROUP_EPOCH:
            key = group_record_key(kind, group)
            yield key, format_epoch(Epoch(_next(parse_epoch(image.membership[key].value).epoch)))
        elif kind != TARGET_EPOCH:
            yield from ((key, None) for key in sorted(image.membership) if key[1] == kind)


def _next(epoch: int) -> int:
    return min(epoch + 1, limits.INT32_MAX)
