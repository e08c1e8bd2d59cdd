"""The pages of a whole store: the overview, the list of topics, and pages that say what is wrong."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

import htpy as h

from pylog.groups.health import Verdict
from pylog.text import printable, size_text
from pylog.ui.html import (
    GROUP_NUMBERS,
    SHORT_GROUP_TITLES,
    SHORT_TOPIC_TITLES,
    TOPIC_NUMBERS,
    TOPIC_TITLES,
    Heading,
    Html,
    PageFrame,
    damage_lines,
    short_group_row,
    short_topic_row,
    table,
    tile,
    topic_row,
)
from pylog.ui.observation import ERRORS, Observation, TopicSeen
from pylog.ui.words import VERDICTS, age, count, counted, seconds

_FAR_S: Final = 1000 * 86_400.0  # a disk that is full later is not mentioned
TOPIC_ORDERS: Final[Mapping[str, Callable[[TopicSeen], Any]]] = {  # ascending; all but names have the largest first
    "name": lambda topic: topic.name,
    "partitions": lambda topic: len(topic.partitions),
    "records": lambda topic: topic.offsets if topic.records is None else topic.records,
    "written": lambda topic: topic.rate or 0.0,
    "size": lambda topic: topic.size,
    "newest": lambda topic: topic.newest_ms,
}
_TITLES: Final[Mapping[str, str]] = dict(zip(TOPIC_TITLES, TOPIC_ORDERS, strict=False))


class Listing(NamedTuple):
    """The content of a list of topics.

    Attributes:
        find: text that the names contain.
        order: a key of `TOPIC_ORDERS`.
        turned: true for the other end first.
        internal: true to include Kafka's own topics.
    """

    find: str = ""
    order: str = "name"
    turned: bool = False
    internal: bool = False

    @property
    def is_descending(self) -> bool:
        """Whether the largest is first."""
        return (self.order != "name") != self.turned

    def address(self, frame: PageFrame, **other: Any) -> str:
        """Returns the address of the list with other content."""
        shown = self._replace(**other)
        turned, internal = ("1" if each else "" for each in (shown.turned, shown.internal))
        return frame.url("topics", find=shown.find, order=shown.order, turned=turned, internal=internal)


def overview(frame: PageFrame) -> str:
    """Returns the first page: numbers, the groups that need attention, the largest topics, and damage."""
    seen = frame.seen
    own = [topic for topic in seen.topics.values() if not topic.is_internal]
    return frame.page(
        "Overview",
        "Overview",
        frame.head(frame.name, _state_of(seen)),
        _tiles(seen, own),
        damage_lines(seen.damaged),
        _open_line(frame, seen),
        h.div(".two")[_groups_card(frame), _topics_card(frame, own)],
        live=True,
    )


def _groups_card(frame: PageFrame) -> Html:
    seen = frame.seen
    fine = sorted((group for group in seen.groups.values() if group.health.verdict is Verdict.OK), key=lambda each: -each.lag)
    return h.section(".card")[
        h.h2["Groups that need attention" if seen.attention else "Consumer groups"],
        table(
            SHORT_GROUP_TITLES,
            (short_group_row(frame, group) for group in [*seen.attention, *fine][:8]),
            GROUP_NUMBERS,
            _empty(seen, "There are no consumer groups."),
        ),
    ]


def _topics_card(frame: PageFrame, own: list[TopicSeen]) -> Html:
    return h.section(".card")[
        h.h2["Largest topics"],
        table(
            SHORT_TOPIC_TITLES,
            (short_topic_row(frame, topic) for topic in sorted(own, key=lambda each: -each.size)[:8]),
            TOPIC_NUMBERS,
            _empty(frame.seen, "There are no topics yet: `pylog create DIRECTORY TOPIC` creates one."),
        ),
    ]


def _tiles(seen: Observation, own: list[TopicSeen]) -> Html:
    rates = [topic.rate for topic in own if topic.rate is not None]
    partitions = sum(len(each.partitions) for each in own)
    return h.section(".tiles", aria_label="Numbers")[
        tile(count(len(own)), f"{'topic' if len(own) == 1 else 'topics'}, {counted(partitions, 'partition')}"),
        tile(*_content(own)),
        tile(f"{count(sum(rates))} /s" if rates else "…", "written now"),
        tile(size_text(seen.size), "in the logs"),
        tile("unknown" if seen.free is None else size_text(seen.free), _room_left(seen)),
        tile(f"{len(seen.attention)} of {len(seen.groups)}", _verdicts(seen)) if seen.groups else None,
        tile(*_durable(seen)) if seen.reading is None else None,
    ]


def _content(own: list[TopicSeen]) -> tuple[str, str]:
    """Returns how many records the topics have, or how many offsets if some of them were not counted."""
    counted_records = [topic.records for topic in own if topic.records is not None]
    if len(counted_records) == len(own):
        return count(sum(counted_records)), "records"
    return count(sum(topic.offsets for topic in own)), "offsets in the logs"


def _room_left(seen: Observation) -> str:
    left = seen.seconds_to_full
    return "free on the disk" if left is None or left > _FAR_S else f"free on the disk: {seconds(left)} at this rate"


def _verdicts(seen: Observation) -> str:
    """Returns the groups that are not well, by verdict."""
    found = Counter(VERDICTS[each.health.verdict][1] for each in seen.attention)
    more = ", ".join(f"{words} {number}" for words, number in found.items())
    return f"groups: {more}" if more else "groups need attention"


def _durable(seen: Observation) -> tuple[str, str]:
    """Returns how many offsets a power loss could take, and how old the oldest of them is."""
    waiting = [each for topic in seen.topics.values() for each in topic.partitions if each.durable_offset < each.end_offset]
    if not waiting:
        return "0", "offsets that a power loss would take"
    oldest = min((each.undurable_ms for each in waiting if each.undurable_ms >= 0), default=-1)
    since = "" if oldest < 0 else f", the oldest of {age(oldest, seen.at_ms)}"
    return count(sum(each.end_offset - each.durable_offset for each in waiting)), f"offsets are not durable yet{since}"


def _open_line(frame: PageFrame, seen: Observation) -> Html:
    """Says where readers of committed records wait for a transaction."""
    held = [each for topic in seen.topics.values() for each in topic.partitions if each.stable_offset < each.end_offset]
    if not held:
        return None
    said = f"Readers of committed records wait for a transaction in {counted(len(held), 'partition')}: "
    return h.p(".say.warn")[said, h.a(href=frame.url("health"))["open transactions"], "."]


def _empty(seen: Observation, sentence: str) -> str:
    """Returns the text of an empty table: while its content is read, it is not known to be empty."""
    return sentence if seen.reading is None else "Being read…"


def _state_of(seen: Observation) -> Html:
    bad = sum(each.health.verdict in ERRORS for each in seen.attention)
    slow = len(seen.attention) - bad
    if seen.reading is not None:
        return h.span(".quiet")["reading the groups"]
    if seen.damaged:
        return h.span(".verdict.bad")[f"{counted(len(seen.damaged), 'partition')} with damage"]
    if bad:
        return h.span(".verdict.bad")[f"{bad} {'group has' if bad == 1 else 'groups have'} an error"]
    if slow:
        return h.span(".verdict.warn")[f"{slow} {'group falls' if slow == 1 else 'groups fall'} behind"]
    return h.span(".verdict.ok")["all is well"]


def topics(frame: PageFrame, shown: Listing) -> str:
    """Returns the list of topics."""
    wanted = [topic for topic in frame.seen.topics.values() if shown.internal or not topic.is_internal]
    hidden = len(frame.seen.topics) - len(wanted)
    more = h.a(href=shown.address(frame, internal=True))[f"Show {counted(hidden, 'internal topic')}"] if hidden else None
    found = [topic for topic in wanted if shown.find.lower() in topic.name.lower()]
    in_order = sorted(sorted(found, key=TOPIC_ORDERS["name"]), key=TOPIC_ORDERS[shown.order], reverse=shown.is_descending)
    rows = (topic_row(frame, topic) for topic in in_order)
    heads = [_heading(frame, shown, title) for title in TOPIC_TITLES]
    empty = f"No topic has {printable(shown.find)} in its name." if shown.find else _empty(frame.seen, "There are no topics yet.")
    return frame.page(
        "Topics",
        "Topics",
        frame.head("Topics"),
        h.section(".card")[
            _listing_form(frame, shown),
            table(TOPIC_TITLES, rows, TOPIC_NUMBERS, empty, heads),
            more and h.p(".foot")[more],
        ],
        live=True,
    )


def _heading(frame: PageFrame, shown: Listing, title: str) -> Heading:
    """Returns a title that puts the list in its order, or turns it if it is in this order."""
    order = _TITLES.get(title)
    if order is None:
        return Heading(title)
    if order != shown.order:
        return Heading(h.a(href=shown.address(frame, order=order, turned=False))[title])
    link = h.a(href=shown.address(frame, turned=not shown.turned))[
        title, h.span(aria_hidden="true")[" ↓" if shown.is_descending else " ↑"]
    ]
    return Heading(link, "descending" if shown.is_descending else "ascending")


def _listing_form(frame: PageFrame, shown: Listing) -> Html:
    orders = (h.option(value=each, selected=each == shown.order)[each] for each in TOPIC_ORDERS)
    return h.form(".filter", role="search", action=frame.url("topics"))[
        h.label(".grow")["Name contains", h.input(type="search", name="find", value=shown.find)],
        h.label["Order", h.select(name="order")[orders]],
        h.input(type="hidden", name="internal", value="1") if shown.internal else None,
        h.button["Show"],
    ]


def problem(frame: PageFrame, title: str, sentence: str) -> str:
    """Returns a page that says what is wrong."""
    return frame.page(title, "", frame.head(title), h.p(".say.bad")[printable(sentence)])
