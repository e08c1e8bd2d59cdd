"""The pages of consumer groups."""

from __future__ import annotations

from collections.abc import Sequence

import htpy as h

from pylog.groups.description import MemberDescription
from pylog.groups.health import PartitionHealth, Verdict
from pylog.groups.lag_history import LagPoint
from pylog.offsets.schema import OFFSETS_TOPIC
from pylog.text import printable, shown
from pylog.ui import pictures
from pylog.ui.html import (
    GROUP_NUMBERS,
    GROUP_TITLES,
    Html,
    PageFrame,
    cell,
    damage_lines,
    group_row,
    number,
    table,
    tile,
    verdict_mark,
)
from pylog.ui.observation import GroupSeen
from pylog.ui.pictures import CurvePoint
from pylog.ui.words import TRENDS, VERDICTS, age, count, counted, seconds

_HELD = 10  # partitions of a member that are named
_REASONS = 5  # sentences above the numbers; the table has all partitions


def groups(frame: PageFrame) -> str:
    """Returns the list of groups."""
    unreadable, offsets = frame.seen.unreadable_groups, frame.seen.topics.get(OFFSETS_TOPIC)
    troubles = [] if offsets is None else [each for each in offsets.partitions if each.trouble is not None]
    rows = (group_row(frame, group) for group in frame.seen.groups.values())
    return frame.page(
        "Groups",
        "Groups",
        frame.head("Consumer groups"),
        unreadable and h.p(".say.bad")["The records of these groups cannot be read: ", printable(", ".join(unreadable))],
        troubles and h.p(".say.bad")[f"The groups in {counted(len(troubles), 'partition')} of {OFFSETS_TOPIC} are missing here."],
        damage_lines(troubles),
        h.section(".card")[
            table(GROUP_TITLES, rows, GROUP_NUMBERS, "No group can be read." if troubles else "There are no consumer groups.")
        ],
        live=True,
    )


def group(frame: PageFrame, seen: GroupSeen, past: Sequence[LagPoint]) -> str:
    """Returns the page of one group: its verdict in a sentence, its lag, its partitions and members.

    Args:
        frame: the frame of the page.
        seen: the group.
        past: the course of its lag before the window was opened.
    """
    reasons = [row for row in seen.health.partitions if row.verdict is not Verdict.OK]
    return frame.page(
        seen.name,
        "Groups",
        frame.head(
            seen.name,
            verdict_mark(seen.health.verdict),
            h.span(".quiet")[f"{seen.state} · {counted(len(seen.members), 'member')}"],
            frame.change("reset-offsets", "Set offsets…", group=shown(seen.name)),
            frame.change("delete-group", "Delete…", group=shown(seen.name)),
        ),
        reasons and _reasons(reasons),
        _tiles(frame, seen),
        h.section(".card")[_charts(frame, seen, past)],
        h.section(".card")[h.h2["Partitions"], _partitions(frame, seen)],
        h.section(".card")[h.h2["Members"], _members(seen)],
        live=True,
    )


def _tiles(frame: PageFrame, seen: GroupSeen) -> Html:
    return h.section(".tiles", aria_label="Numbers")[
        tile(seconds(seen.health.lag_seconds), "behind, in time"),
        tile(count(seen.lag), "offsets behind"),
        tile(f"{count(seen.rate)} /s", f"read; its lag in time is {TRENDS[seen.trend].partition(' ')[2]}"),
        tile(_catch_up(seen), "until it has read everything, at this rate"),
        tile(age(seen.committed_ms, frame.seen.at_ms), "its last commit"),
    ]


def _partitions(frame: PageFrame, seen: GroupSeen) -> Html:
    titles = ("Partition", "Verdict", "Committed", "Offsets behind", "Records behind", "Behind", "Member")
    rows = [_partition_row(frame, row, seen.reader_of(row.partition)) for row in seen.health.partitions]
    return table(titles, rows, titles[2:6], "It has committed no offset.")


def _partition_row(frame: PageFrame, row: PartitionHealth, reader: MemberDescription | None) -> Html:
    topic, partition = row.partition
    return h.tr[
        h.td(".mono")[h.a(href=frame.url("topics", topic))[printable(topic)], f"-{partition}"],
        h.td[verdict_mark(row.verdict)],
        number("committed", row.offset),
        number("offsets behind", row.lag),
        number("records behind", row.lag_records),
        cell("behind", seconds(row.lag_seconds), number=True),
        cell("member", "none" if reader is None else printable(reader.client_id or reader.member_id)),
    ]


def _members(seen: GroupSeen) -> Html:
    rows = (
        h.tr[
            h.td(".mono")[printable(each.member_id)],
            cell("instance", printable(each.instance_id or "")),
            cell("client", printable(each.client_id)),
            cell("host", printable(each.host)),
            cell("partitions", _held(each)),
        ]
        for each in seen.members
    )
    return table(("Member", "Instance", "Client", "Host", "Partitions"), rows, (), "It has no members.")


def _reasons(rows: Sequence[PartitionHealth]) -> Html:
    said = [
        h.p(f".say.{VERDICTS[row.verdict][0]}")[
            f"{printable(row.partition.topic)}-{row.partition.partition}: ", printable(row.why)
        ]
        for row in rows[:_REASONS]
    ]
    more = h.p(".quiet")[f"and {counted(len(rows) - _REASONS, 'partition')} more"] if len(rows) > _REASONS else None
    return h.div(".reasons")[said, more]


def _held(member: MemberDescription) -> str:
    """Returns the partitions that a member reads."""
    shown = [f"{printable(topic)}-{number}" for topic, number in member.assignment[:_HELD]]
    left = len(member.assignment) - len(shown)
    return (", ".join(shown) or "none") + (f" and {count(left)} more" if left else "")


def _charts(frame: PageFrame, seen: GroupSeen, past: Sequence[LagPoint]) -> Html:
    """Returns the course of a group's lag, in time and in offsets."""
    watched = frame.seen.lags.get(seen.name, ())
    begun = watched[0].timestamp if watched else frame.seen.at_ms
    before = [each for each in past if each.timestamp <= begun]
    in_time = pictures.lag_chart(
        [CurvePoint(each.timestamp, each.seconds) for each in before],
        [CurvePoint(each.timestamp, each.seconds) for each in watched if each.seconds is not None],
        "The time behind",
        seconds,
    )
    in_offsets = pictures.lag_chart(
        [CurvePoint(each.timestamp, each.offsets) for each in before],
        [CurvePoint(each.timestamp, each.offsets) for each in watched],
        "The offsets behind",
        count,
    )
    note = "Dotted: computed from the commits of the last hour and the log. Solid: observed since this window was opened."
    return [
        h.div(".two")[h.div[h.h2["Time behind"], in_time], h.div[h.h2["Offsets behind"], in_offsets]],
        h.p(".quiet")[note],
    ]


def _catch_up(seen: GroupSeen) -> str:
    times = [row.catch_up_seconds for row in seen.health.partitions]
    if not times:
        return "nothing read"
    known = [each for each in times if each is not None]
    return "never" if len(known) < len(times) else seconds(max(known))
