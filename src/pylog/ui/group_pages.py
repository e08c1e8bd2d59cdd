"""The pages of consumer groups."""

from __future__ import annotations

import htpy as h

from pylog.groups.health import Verdict
from pylog.text import printable
from pylog.ui import pictures
from pylog.ui.html import GROUP_NUMBERS, GROUP_TITLES, PageFrame, cell, group_row, number, table, tile, verdict_mark
from pylog.ui.observation import GroupSeen
from pylog.ui.words import VERDICTS, count, seconds


def groups(frame: PageFrame) -> str:
    """Returns the list of groups."""
    unreadable = frame.seen.unreadable_groups
    rows = (group_row(frame, group) for group in frame.seen.groups.values())
    return frame.page(
        "Groups",
        "Groups",
        frame.head("Consumer groups"),
        unreadable and h.p(".say.bad")["The records of these groups cannot be read: ", printable(", ".join(unreadable))],
        h.section(".card")[table(GROUP_TITLES, rows, GROUP_NUMBERS, "There are no consumer groups.")],
        live=True,
    )


def group(frame: PageFrame, seen: GroupSeen) -> str:
    """Returns the page of one group: its verdict in a sentence, its lag, its partitions and members."""
    titles = ("Partition", "Verdict", "Committed", "Offsets behind", "Records behind", "Behind", "Member")
    rows = []
    for row in seen.health.partitions:
        reader = seen.reader_of(row.partition)
        rows.append(
            h.tr[
                h.td(".mono")[
                    h.a(href=frame.url("topics", row.partition.topic))[printable(row.partition.topic)],
                    f"-{row.partition.partition}",
                ],
                h.td[verdict_mark(row.verdict)],
                number("committed", row.offset),
                number("offsets behind", row.lag),
                number("records behind", row.lag_records),
                cell("behind", seconds(row.lag_seconds), number=True),
                cell("member", "none" if reader is None else printable(reader.client_id or reader.member_id)),
            ]
        )
    reasons = [row for row in seen.health.partitions if row.verdict is not Verdict.OK]
    members = (
        h.tr[
            h.td(".mono")[printable(each.member_id)],
            cell("instance", printable(each.instance_id or "")),
            cell("client", printable(each.client_id)),
            cell("host", printable(each.host)),
            number("partitions", len(each.assignment)),
        ]
        for each in seen.members
    )
    lags = frame.seen.lags.get(seen.name, ())
    return frame.page(
        seen.name,
        "Groups",
        frame.head(seen.name, verdict_mark(seen.health.verdict), h.span(".quiet")[f"{seen.state} · {len(seen.members)} members"]),
        [
            h.p(f".say.{VERDICTS[row.verdict][0]}")[
                f"{printable(row.partition.topic)}-{row.partition.partition}: ", printable(row.why)
            ]
            for row in reasons[:20]
        ],
        h.section(".tiles", aria_label="Numbers")[
            tile(seconds(seen.health.lag_seconds), "behind, in time"),
            tile(count(seen.lag), "offsets behind"),
            tile(count(sum(row.rate or 0 for row in seen.health.partitions)) + " /s", "read"),
            tile(_catch_up(seen), "until it has read everything"),
        ],
        h.section(".card")[h.h2["Seconds behind, since this window was opened"], pictures.curve(lags)],
        h.section(".card")[h.h2["Partitions"], table(titles, rows, titles[2:6], "It has committed no offset.")],
        h.section(".card")[
            h.h2["Members"],
            table(("Member", "Instance", "Client", "Host", "Partitions"), members, ("Partitions",), "It has no members."),
        ],
        live=True,
    )


def _catch_up(seen: GroupSeen) -> str:
    times = [row.catch_up_seconds for row in seen.health.partitions]
    if not times:
        return "nothing read"
    known = [each for each in times if each is not None]
    return "never at this rate" if len(known) < len(times) else seconds(max(known))
