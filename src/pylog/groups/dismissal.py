"""Records that put members out of a group whom nobody has at work any more: those that a broker left behind when it stopped.

The broker would wait for them when it starts again. Their consumers, told that they are in the group no more, join anew and ask
what is committed; else they would go on where they were, and commit that.
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
from pylog.offsets.partition import KeyValue
from pylog.offsets.schema import CONSUMER_PROTOCOL, format_empty_group, group_key, subscribed_topics


def member_ids(image: GroupImage) -> set[str]:
    """The members that a group's records name, of either protocol."""
    classic = image.metadata()
    found = {member_of(key) for key in image.membership if key[1] == MEMBER}
    return found if classic is None else found | {member.member_id for member in classic.members}


def topics_read(image: GroupImage) -> dict[str, frozenset[str] | None]:
    """The topics that each member reads; None where that is not known: it is no consumer, or has a pattern."""
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
    """The records that leave a group without members, as its coordinator writes them when the last one leaves.

    Args:
        group: the bytes of its name.
        image: what its records say.
        now_ms: since when it is empty.

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
