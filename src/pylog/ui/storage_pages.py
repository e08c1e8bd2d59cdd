"""The pages of the storage of a topic: segments with their next events, and producers with their transactions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import htpy as h

from pylog.log.producer_state import Producer
from pylog.log.reading.counting import HeaderTally
from pylog.record.format import CODEC_NAMES
from pylog.text import printable, size_text
from pylog.transactions.described import OpenTransactionDescription
from pylog.ui import pictures
from pylog.ui.fates import Fates
from pylog.ui.html import Html, PageFrame, cell, number, size_cell, table
from pylog.ui.observation import PartitionSeen, SegmentSeen, TierSeen, TopicSeen
from pylog.ui.topic_pages import topic_frame
from pylog.ui.words import count, counted, seconds

_SEGMENTS: Final = 100  # of a partition that are listed
PARTITIONS: Final = 20  # of a topic that are shown at once
_PRODUCERS: Final = 200  # of a partition that are listed
_SEALS: Final = {True: "yes", False: "none", None: ""}
_OWNERS: Final = {
    "alive": "its process is running",
    "dead": "its process has ended",
    "broker": "a client of a broker",
    "unknown": "not known",
    None: "none",
}


def segments(frame: PageFrame, topic: TopicSeen, found: Mapping[int, Fates | str], page: int) -> str:
    """Returns the segments of partitions, as strips and as tables.

    Args:
        frame: the frame of the page.
        topic: the topic.
        found: what happens to the segments of each partition that is shown, or why it cannot be read.
        page: which partitions are shown.
    """
    shown = [each for each in topic.partitions if each.partition.partition in found]
    cards = [_segments_card(frame, topic, each, found[each.partition.partition]) for each in shown]
    return topic_frame(frame, topic, "segments", cards, _pager(frame, topic, "segments", page), live=True)


def _pager(frame: PageFrame, topic: TopicSeen, tab: str, page: int) -> Html:
    last = (len(topic.partitions) - 1) // PARTITIONS
    if last <= 0:
        return None
    first = page * PARTITIONS
    said = f"Partitions {first} to {min(first + PARTITIONS, len(topic.partitions)) - 1} of {count(len(topic.partitions))}"
    back = h.a(href=frame.url("topics", topic.name, tab, page=page - 1), rel="prev")["Previous"] if page else None
    on = h.a(href=frame.url("topics", topic.name, tab, page=page + 1), rel="next")["Next"] if page < last else None
    return h.nav(".foot", aria_label="Partitions")[h.span(".quiet")[said], back, on]


def _segments_card(frame: PageFrame, topic: TopicSeen, seen: PartitionSeen, found: Fates | str) -> Html:
    name = f"{printable(topic.name)}-{seen.partition.partition}"
    if isinstance(found, str):
        return h.section(".card")[h.h2[name], h.p(".say.bad")[printable(found)]]
    more = f"The newest {_SEGMENTS} of {count(len(seen.segments))} segments." if len(seen.segments) > _SEGMENTS else None
    return h.section(".card")[
        h.div(".head")[
            h.h2[name],
            h.span(".quiet")[f"{counted(len(seen.segments), 'segment')} · {size_text(seen.size)}{_compaction_of(found)}"],
            frame.change(
                "delete-records",
                "Delete records…",
                topic=topic.name,
                partition=str(seen.partition.partition),
                before=str(seen.start_offset),
            ),
        ],
        _tier_lines(frame, seen.tier),
        pictures.strip(seen, found),
        _segments_table(frame, seen, found),
        more and h.p(".quiet")[more],
    ]


def _segments_table(frame: PageFrame, seen: PartitionSeen, found: Fates) -> Html:
    titles = ["Base offset", "End", "Records", "Size", "Oldest record", "Newest record", "Codec", "State", "Seal"]
    titles += ["Compaction", "Tombstones"] if found.to_clean is not None else []
    titles += ["Where"] if seen.tier is not None else []
    titles += ["Deleted"]
    rows = (_segment_row(frame, segment, seen.tier, found) for segment in reversed(seen.segments[-_SEGMENTS:]))
    return table(titles, rows, titles[1:6], "It has no segments.")


def _segment_row(frame: PageFrame, segment: SegmentSeen, tier: TierSeen | None, found: Fates) -> Html:
    return h.tr[
        h.td(".mono", data_label="base")[count(segment.base_offset)],
        number("end", segment.end_offset),
        cell("records", _counted(segment), number=True),
        size_cell(segment.size),
        cell("oldest", frame.at(segment.tally.first_ms) if segment.tally else "", number=True),
        cell("newest", frame.at(segment.newest_ms), number=True),
        cell("codec", _codecs(segment.tally)),
        cell("state", "active" if segment.is_active else "sealed"),
        cell("seal", _SEALS[segment.has_seal]),
        _compacted(frame, segment, found),
        cell("where", _where(segment, tier)) if tier is not None else None,
        cell("deleted", found.retention.get(segment.base_offset, "")),
    ]


def _counted(segment: SegmentSeen) -> str:
    """Returns the number of records, or the most that there can be."""
    return f"≤ {count(segment.end_offset - segment.base_offset)}" if segment.tally is None else count(segment.tally.records)


def _codecs(tally: HeaderTally | None) -> str:
    return "" if tally is None else ", ".join(name for codec, name in enumerate(CODEC_NAMES) if tally.codecs >> codec & 1)


def _compacted(frame: PageFrame, segment: SegmentSeen, found: Fates) -> Html:
    """Returns what compaction has done and will do with a segment; None in a topic without it."""
    if found.to_clean is None:
        return None
    due_ms = -1 if segment.tally is None else segment.tally.horizon_ms
    left = seconds((due_ms - frame.seen.at_ms) / 1000)
    kept = "" if due_ms < 0 else "due" if due_ms <= frame.seen.at_ms else f"kept for {left}"
    return [cell("compaction", found.compaction.get(segment.base_offset, "")), cell("tombstones", kept)]


def _where(segment: SegmentSeen, tier: TierSeen) -> str:
    if segment.end_offset <= tier.local_start:
        return "archive"
    return "disk and archive" if segment.end_offset <= tier.archived_end else "disk"


def _tier_lines(frame: PageFrame, tier: TierSeen | None) -> Html:
    """Says what is in the archive, what is on the disk, and what waits."""
    if tier is None:
        return None
    waiting = "Nothing waits for the archive."
    if tier.waiting_bytes:
        since = seconds((frame.seen.at_ms - tier.waiting_since_ms) / 1000)
        waiting = f"{size_text(tier.waiting_bytes)} wait for the archive, since {since}."
    said = (
        f"{size_text(tier.archived_bytes)} are in the archive, up to offset {count(tier.archived_end)}; "
        f"{size_text(tier.local_bytes)} are on the disk, from offset {count(tier.local_start)}. {waiting}"
    )
    failed = h.p(".say.bad")[f"The last upload failed: {printable(tier.failure)}"] if tier.failure else None
    return [h.p(".quiet")[said], failed]


def _compaction_of(found: Fates) -> str:
    clean = found.to_clean
    if clean is None:
        return ""
    return f" · compacted to offset {count(clean.first_dirty)} · {100 * clean.ratio:.0f} % of what can be compacted is dirty"


# ---- producers ---------------------------------------------------------------------------------------------------------------


def producers(
    frame: PageFrame,
    topic: TopicSeen,
    found: Mapping[int, Sequence[Producer] | str],
    opened: Sequence[OpenTransactionDescription],
    page: int,
) -> str:
    """Returns the producers of partitions, and the open transactions of a topic.

    Args:
        frame: the frame of the page.
        topic: the topic.
        found: the producers of each partition that is shown, or why it cannot be read.
        opened: the open transactions.
        page: which partitions are shown.
    """
    cards = [_producers_card(frame, topic, each, found[each.partition.partition]) for each in topic.partitions
             if each.partition.partition in found]  # fmt: skip
    transactions = h.section(".card")[h.h2["Open transactions"], open_table(frame, opened)]
    return topic_frame(
        frame, topic, "producers", _stuck(topic, opened), transactions, cards, _pager(frame, topic, "producers", page), live=True
    )


def _stuck(topic: TopicSeen, opened: Sequence[OpenTransactionDescription]) -> Html:
    """Says which transactions hold the stable offsets: readers of committed records wait for them."""
    first: dict[int, OpenTransactionDescription] = {}
    for each in opened:
        first.setdefault(each.topic_partition.partition, each)
    return [
        h.p(".say.bad" if each.is_hanging else ".say.warn")[
            f"{printable(topic.name)}-{partition}: the transaction of producer {each.producer_id} holds the stable offset at "
            f"{count(each.start_offset)} since {seconds(each.duration_ms / 1000)}"
            f"{'; no coordinator will end it' if each.is_hanging else ''}."
        ]
        for partition, each in first.items()
    ]


def open_table(frame: PageFrame, opened: Sequence[OpenTransactionDescription], *, with_topic: bool = False) -> Html:
    """Returns a table of open transactions.

    Args:
        frame: the frame of the page.
        opened: the transactions.
        with_topic: true to name the topic in each row.
    """
    titles = ("Partition", "Producer", "Epoch", "First offset", "Open for", "Transactional id", "State", "Owner")
    rows = [
        h.tr[
            cell("partition", f"{printable(each.topic_partition.topic)}-" * with_topic + str(each.topic_partition.partition)),
            h.td(".mono.n", data_label="producer")[str(each.producer_id)],
            number("epoch", each.producer_epoch),
            number("first offset", each.start_offset),
            cell("open for", seconds(each.duration_ms / 1000), number=True),
            cell("id", printable(each.transactional_id or "none")),
            cell("state", "hanging" if each.is_hanging else each.state or "unknown"),
            cell("owner", [_OWNERS[each.owner], " ", _end_link(frame, each)]),
        ]
        for each in opened
    ]
    return table(titles, rows, titles[1:5], "No transaction is open.")


def _end_link(frame: PageFrame, each: OpenTransactionDescription) -> Html:
    topic, partition = each.topic_partition
    return frame.change(
        "end-transaction",
        "Abort…",
        topic=topic,
        partition=str(partition),
        producer=str(each.producer_id),
        start=str(each.start_offset),
    )


def _producers_card(frame: PageFrame, topic: TopicSeen, seen: PartitionSeen, found: Sequence[Producer] | str) -> Html:
    name = f"{printable(topic.name)}-{seen.partition.partition}"
    if isinstance(found, str):
        return h.section(".card")[h.h2[name], h.p(".say.bad")[printable(found)]]
    titles = ("Producer", "Epoch", "Last sequence", "Last offset", "Last batch", "Transaction")
    newest = sorted(found, key=lambda each: -each.timestamp)[:_PRODUCERS]
    rows = (
        h.tr[
            h.td(".mono", data_label="producer")[str(each.producer_id)],
            number("epoch", each.epoch),
            number("last sequence", each.last_sequence),
            number("last offset", each.last_offset),
            cell("last batch", frame.at(each.timestamp), number=True),
            cell(
                "transaction",
                "none" if each.transaction_first_offset < 0 else f"open since offset {count(each.transaction_first_offset)}",
            ),
        ]
        for each in newest
    )
    stable = f"stable offset {count(seen.stable_offset)} of {count(seen.end_offset)}"
    return h.section(".card")[
        h.div(".head")[h.h2[name], h.span(".quiet")[f"{counted(len(found), 'producer')} in the newest segments · {stable}"]],
        table(titles, rows, titles[1:5], "No idempotent or transactional producer has written to its newest segments."),
    ]
