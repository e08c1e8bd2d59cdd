"""The pages of one topic: partitions, segments, groups and options."""

from __future__ import annotations

from dataclasses import asdict
from typing import Final

import htpy as h

from pylog.text import printable, size_text
from pylog.topics.retention_text import retention_text
from pylog.ui import pictures
from pylog.ui.html import GROUP_NUMBERS, GROUP_TITLES, Html, PageFrame, cell, damage_lines, group_row, number, size_cell, table
from pylog.ui.observation import TopicSeen
from pylog.ui.words import count

TABS: Final = ("records", "partitions", "segments", "groups", "options")


def topic_frame(frame: PageFrame, topic: TopicSeen, tab: str, *content: Html, live: bool = False) -> str:
    facts = (
        f"{count(len(topic.partitions))} partitions · {count(topic.offsets)} offsets · {size_text(topic.size)} · "
        f"{retention_text(topic.config)}"
    )
    tabs = (
        h.a(href=frame.url("topics", topic.name, each), aria_current="page" if each == tab else None)[each.capitalize()]
        for each in TABS
    )
    return frame.page(
        topic.name,
        "Topics",
        frame.head(topic.name, h.span(".quiet")[facts]),
        damage_lines([each for each in topic.partitions if each.damage is not None]),
        h.nav(".tabs", aria_label="This topic")[tabs],
        content,
        live=live,
    )


def partitions(frame: PageFrame, topic: TopicSeen) -> str:
    """Returns the partitions of a topic."""
    titles = ("Partition", "Start", "End", "Durable", "Stable", "Segments", "Size", "Newest record")
    rows = (
        h.tr[
            h.td(".mono")[f"{printable(topic.name)}-{each.partition.partition}"],
            number("start", each.start_offset),
            number("end", each.end_offset),
            number("durable", each.durable_offset, "records below this offset outlive a power loss"),
            number("stable", each.stable_offset, "readers of committed records stop here"),
            number("segments", len(each.segments)),
            size_cell(each.size),
            cell("newest", frame.at(each.newest_ms), number=True),
        ]
        for each in topic.partitions
    )
    return topic_frame(frame, topic, "partitions", h.section(".card")[table(titles, rows, titles[1:])], live=True)


def segments(frame: PageFrame, topic: TopicSeen) -> str:
    """Returns the segments of each partition, as a strip and as a table."""
    titles = ("Base offset", "End", "Offsets", "Size", "Newest record", "State")
    cards = (
        h.section(".card")[
            h.h2[f"{printable(topic.name)}-{each.partition.partition}"],
            pictures.strip(each),
            table(
                titles,
                (
                    h.tr[
                        h.td(".mono.n")[count(segment.base_offset)],
                        number("end", segment.end_offset),
                        number("offsets", segment.end_offset - segment.base_offset),
                        size_cell(segment.size),
                        cell("newest", frame.at(segment.newest_ms), number=True),
                        cell("state", "active" if segment.is_active else "sealed"),
                    ]
                    for segment in reversed(each.segments[-100:])
                ),
                titles[:5],
                "It has no segments.",
            ),
            h.p(".quiet")[f"The newest 100 of {count(len(each.segments))} segments."] if len(each.segments) > 100 else None,
        ]
        for each in topic.partitions
    )
    return topic_frame(frame, topic, "segments", list(cards))


def topic_groups(frame: PageFrame, topic: TopicSeen) -> str:
    """Returns the groups that read a topic."""
    rows = (group_row(frame, group) for group in frame.seen.groups_of(topic.name))
    made = table(GROUP_TITLES, rows, GROUP_NUMBERS, "No group has committed an offset for this topic.")
    return topic_frame(frame, topic, "groups", h.section(".card")[made], live=True)


def options(frame: PageFrame, topic: TopicSeen) -> str:
    """Returns the options of a topic."""
    rows = (h.tr[h.td(".mono")[name], h.td(".mono")[str(value)]] for name, value in asdict(topic.config).items())
    return topic_frame(frame, topic, "options", h.section(".card")[table(("Option", "Value"), rows)])
