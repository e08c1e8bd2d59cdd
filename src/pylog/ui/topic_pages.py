"""The pages of one topic: partitions, groups and options."""

from __future__ import annotations

from dataclasses import asdict
from typing import Final

import htpy as h

from pylog.text import printable, size_text
from pylog.topics.retention_text import retention_text
from pylog.ui.html import GROUP_NUMBERS, GROUP_TITLES, Html, PageFrame, cell, damage_lines, group_row, number, size_cell, table
from pylog.ui.observation import PartitionSeen, TopicSeen
from pylog.ui.words import counted

TABS: Final = ("records", "live", "partitions", "segments", "groups", "producers", "options")


def _content(topic: TopicSeen) -> str:
    """Returns how many records a topic has, or how many offsets if they were not counted."""
    return counted(topic.offsets, "offset") if topic.records is None else counted(topic.records, "record")


def topic_frame(frame: PageFrame, topic: TopicSeen, tab: str, *content: Html, live: bool = False) -> str:
    facts = (
        f"{counted(len(topic.partitions), 'partition')} · {_content(topic)} · {size_text(topic.size)} · "
        f"{retention_text(topic.config)}"
    )
    tabs = (
        h.a(href=frame.url("topics", topic.name, each), aria_current="page" if each == tab else None)[each.capitalize()]
        for each in TABS
    )
    return frame.page(
        topic.name,
        "Topics",
        frame.head(topic.name, h.span(".quiet")[facts], frame.change("delete-topic", "Delete…", topic=topic.name)),
        damage_lines([each for each in topic.partitions if each.trouble is not None]),
        h.nav(".tabs", aria_label="This topic")[tabs],
        content,
        live=live,
    )


def partitions(frame: PageFrame, topic: TopicSeen) -> str:
    """Returns the partitions of a topic."""
    titles = ("Partition", "Start", "End", "Durable", "Stable", "Segments", "Size", "Newest record")
    rows = (_partition_row(frame, each) for each in topic.partitions)
    return topic_frame(frame, topic, "partitions", h.section(".card")[table(titles, rows, titles[1:])], live=True)


def _partition_row(frame: PageFrame, seen: PartitionSeen) -> Html:
    """Returns the row of a partition. The offsets of one that cannot be opened are not known."""
    offsets = (seen.start_offset, seen.end_offset, seen.durable_offset, seen.stable_offset, len(seen.segments))
    start, end, durable, stable, segments = offsets if seen.damage is None else (None,) * len(offsets)
    return h.tr[
        h.td(".mono")[f"{printable(seen.partition.topic)}-{seen.partition.partition}"],
        number("start", start),
        number("end", end),
        number("durable", durable, "records below this offset outlive a power loss"),
        number("stable", stable, "readers of committed records stop here"),
        number("segments", segments),
        size_cell(seen.size) if seen.damage is None else number("size", None),
        cell("newest", frame.at(seen.newest_ms), number=True),
    ]


def topic_groups(frame: PageFrame, topic: TopicSeen) -> str:
    """Returns the groups that read a topic."""
    rows = (group_row(frame, group) for group in frame.seen.groups_of(topic.name))
    made = table(GROUP_TITLES, rows, GROUP_NUMBERS, "No group has committed an offset for this topic.")
    return topic_frame(frame, topic, "groups", h.section(".card")[made], live=True)


def options(frame: PageFrame, topic: TopicSeen) -> str:
    """Returns the options of a topic."""
    rows = (h.tr[h.td(".mono")[name], h.td(".mono")[str(value)]] for name, value in asdict(topic.config).items())
    return topic_frame(frame, topic, "options", h.section(".card")[table(("Option", "Value"), rows)])
