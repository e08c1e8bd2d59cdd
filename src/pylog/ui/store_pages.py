"""The pages of a whole store: the overview, the list of topics, and pages that say what is wrong."""

from __future__ import annotations

import htpy as h

from pylog.groups.health import Verdict
from pylog.text import printable, size_text
from pylog.ui.html import (
    GROUP_NUMBERS,
    TOPIC_NUMBERS,
    TOPIC_TITLES,
    Html,
    PageFrame,
    damage_lines,
    short_group_row,
    short_topic_row,
    table,
    tile,
    topic_row,
)
from pylog.ui.observation import ERRORS, GroupSeen, Observation
from pylog.ui.words import count


def overview(frame: PageFrame) -> str:
    """Returns the first page: numbers, the groups that need attention, the largest topics, and damage."""
    seen = frame.seen
    own = [topic for topic in seen.topics.values() if not topic.is_internal]
    bad = [group for group in seen.groups.values() if group.health.verdict in ERRORS]
    slow = [group for group in seen.groups.values() if group.health.verdict not in (*ERRORS, Verdict.OK)]
    fine = sorted((group for group in seen.groups.values() if group.health.verdict is Verdict.OK), key=lambda each: -each.lag)
    rates = [topic.rate for topic in own if topic.rate is not None]
    return frame.page(
        "Overview",
        "Overview",
        frame.head(frame.name, _state_of(seen, bad, slow)),
        h.section(".tiles", aria_label="Numbers")[
            tile(count(len(own)), f"topics, {count(sum(len(each.partitions) for each in own))} partitions"),
            tile(count(sum(each.offsets for each in own)), "offsets in the logs"),
            tile(f"{count(sum(rates))} /s" if rates else "…", "written now"),
            tile(size_text(seen.size), "of records"),
            tile("unknown" if seen.free is None else size_text(seen.free), "free on the disk"),
        ],
        damage_lines(seen.damaged),
        h.div(".two")[
            h.section(".card")[
                h.h2["Groups that need attention" if bad or slow else "Consumer groups"],
                table(
                    ("Group", "Verdict", "Behind", "Offsets behind"),
                    (short_group_row(frame, group) for group in [*bad, *slow, *fine][:8]),
                    GROUP_NUMBERS,
                    _empty(seen, "There are no consumer groups."),
                ),
            ],
            h.section(".card")[
                h.h2["Largest topics"],
                table(
                    ("Topic", "Written", "Size", "Newest record"),
                    (short_topic_row(frame, topic) for topic in sorted(own, key=lambda each: -each.size)[:8]),
                    TOPIC_NUMBERS,
                    _empty(seen, "There are no topics yet: `pylog create DIRECTORY TOPIC` creates one."),
                ),
            ],
        ],
        live=True,
    )


def _empty(seen: Observation, sentence: str) -> str:
    """Returns what an empty table says: not that there is nothing, while it is being read."""
    return sentence if seen.reading is None else "Being read…"


def _state_of(seen: Observation, bad: list[GroupSeen], slow: list[GroupSeen]) -> Html:
    if seen.reading is not None:
        return h.span(".quiet")["reading the groups"]
    if seen.damaged:
        return h.span(".verdict.bad")[f"{len(seen.damaged)} partitions cannot be read"]
    if bad:
        return h.span(".verdict.bad")[f"{len(bad)} {'group has' if len(bad) == 1 else 'groups have'} an error"]
    if slow:
        return h.span(".verdict.warn")[f"{len(slow)} {'group falls' if len(slow) == 1 else 'groups fall'} behind"]
    return h.span(".verdict.ok")["all is well"]


def topics(frame: PageFrame, internal: bool) -> str:
    """Returns the list of topics."""
    wanted = [topic for topic in frame.seen.topics.values() if internal or not topic.is_internal]
    hidden = len(frame.seen.topics) - len(wanted)
    more = h.a(href=frame.url("topics", internal="1"))[f"Show {hidden} internal topics"] if hidden else None
    return frame.page(
        "Topics",
        "Topics",
        frame.head("Topics"),
        h.section(".card")[
            table(
                TOPIC_TITLES,
                (topic_row(frame, topic) for topic in wanted),
                TOPIC_NUMBERS,
                _empty(frame.seen, "There are no topics yet."),
            ),
            more and h.p(".foot")[more],
        ],
        live=True,
    )


def problem(frame: PageFrame, title: str, sentence: str) -> str:
    """Returns a page that says what is wrong."""
    return frame.page(title, "", frame.head(title), h.p(".say.bad")[printable(sentence)])
