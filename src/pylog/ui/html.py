"""The frame of the pages, and the parts that several of them have. htpy escapes all text."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final, NamedTuple
from urllib.parse import quote, urlencode

import htpy as h

from pylog.groups.health import Verdict
from pylog.text import printable, shown, size_text
from pylog.topics.retention_text import retention_text
from pylog.ui.observation import ERRORS, FRESH_S, THIS_PROCESS, GroupSeen, Observation, PartitionSeen, TopicSeen
from pylog.ui.pictures import spark
from pylog.ui.words import TRENDS, VERDICTS, age, count, counted, exact, seconds

TOKEN_FIELD: Final = "form_token"  # noqa: S105 - the name of a field
SHOWN: Final = 400  # bytes of a value in a table
_SPARKS: Final = 60  # observations in a small picture
KEYS: Final = (
    (("/",), "to the search box: a topic, a group, or topic-partition@offset"),
    (("j", "k"), "to the next and the previous row"),
    (("Enter",), "opens the row"),
    (("[", "]"), "to the previous and the next record or page"),
    (("Esc",), "out of a field, so that the page refreshes again"),
    (("?",), "shows these keys"),
)
Html = Any  # htpy's nodes: elements, texts, and lists of them


def _name(text: str) -> str:
    return quote(text, safe="", errors="surrogateescape")


class PageFrame:
    """The frame of all pages of one request.

    Args:
        root: the path under which the application is mounted, without a slash at the end.
        seen: the store.
        form_token: that forms must send back.
        may_change: true if the window may change the directory.
        hides_values: true if it shows sizes in the place of values.
    """

    def __init__(
        self, root: str, seen: Observation, form_token: str = "", *, may_change: bool = False, hides_values: bool = False
    ) -> None:
        self.root, self.seen, self.may_change, self.hides_values = root, seen, may_change, hides_values
        self._form_token = form_token

    @property
    def name(self) -> str:
        """The name of the directory, without its path."""
        return self.seen.path.rstrip("/").rpartition("/")[2] or self.seen.path

    def url(self, *parts: str, **query: Any) -> str:
        """Returns the address of a page. Names may have any characters."""
        path = "/".join([self.root, *map(_name, parts)]) or "/"
        kept = {name: value for name, value in query.items() if value not in (None, "")}
        return f"{path}?{urlencode(kept, errors='surrogateescape')}" if kept else path

    def page(self, title: str, current: str, *content: Html, live: bool = False) -> str:
        """Returns a whole page.

        Args:
            title: the page's title.
            current: the entry of the navigation that it belongs to.
            content: the page's content.
            live: true to refresh it by itself.
        """
        document = h.html(lang="en")[
            h.head[
                h.meta(charset="utf-8"),
                h.meta(name="viewport", content="width=device-width"),
                h.title[f"{printable(title)} · {printable(self.name)} · pylog"],
                h.link(rel="stylesheet", href=self.url("static", "ui.css")),
                h.script(src=self.url("static", "ui.js"), defer=True),
            ],
            h.body[
                h.a(".skip", href="#main")["Skip to the content"],
                self._bar(current),
                _keys(),
                h.main("#main", data_live=str(round(1000 * self.seen.fresh_s)) if live else None)[content],
            ],
        ]
        return str(document)

    def _bar(self, current: str) -> Html:
        """Returns the bar above each page: the directory, what the window may do, the navigation."""
        return h.header(".bar")[
            h.span(".where", title=printable(self.seen.path))[printable(self.name)],
            self._dot(),
            h.span(".badge.can" if self.may_change else ".badge")["can change" if self.may_change else "read-only"],
            h.span(".badge")["values hidden"] if self.hides_values else None,
            self._holder(),
            h.nav(".wide", aria_label="Pages")[self._links(current)],
            h.details(".narrow")[h.summary[current or "Pages"], h.nav(aria_label="Pages")[self._links(current)]],
            h.button("#help", type="button", aria_label="Keys", title="Keys (?)")["?"],
            h.form(".go", action=self.url("go"), role="search")[
                h.input(
                    name="to",
                    type="search",
                    aria_label="Go to a topic, a group, or topic-partition@offset",
                    placeholder="Go to…  orders-3@1042",
                )
            ],
        ]

    def _links(self, current: str) -> Html:
        pages = [("Overview", self.url()), *((each, self.url(each.lower())) for each in ("Topics", "Groups", "Health"))]
        return [h.a(href=link, aria_current="page" if label == current else None)[label] for label, link in pages]

    def _holder(self) -> Html:
        """Says what else may write. That this process has the store open goes without saying."""
        holder = self.seen.holder
        return h.span(".badge")[f"{holder} has it open"] if holder and holder != THIS_PROCESS else None

    def _dot(self) -> Html:
        """Returns the state of the whole directory as one word."""
        if self.seen.reading is not None:
            return None
        if self.seen.damaged or any(each.health.verdict in ERRORS for each in self.seen.attention):
            return h.a(".verdict.bad", href=self.url("health"))["error"]
        return h.span(".verdict.warn")["warning"] if self.seen.attention else h.span(".verdict.ok")["ok"]

    def head(self, title: str, *more: Html) -> Html:
        """Returns the heading of a page."""
        reading = self.seen.reading
        if reading is not None:
            left = f"; {counted(reading.topics_left, 'topic')} to come" if reading.topics_left else ""
            said = f"Reading the groups: {count(reading.done)} of {count(reading.total)}{left}"
            return h.div(".head")[h.h1[printable(title)], more, h.span(".quiet.asof", role="status")[said]]
        every = "" if self.seen.fresh_s <= FRESH_S else f", every {self.seen.fresh_s:.0f} s"
        refreshed = h.span(".quiet.asof", title=exact(self.seen.at_ms))[f"as of {exact(self.seen.at_ms)[11:19]} UTC{every}"]
        return h.div(".head")[h.h1[printable(title)], more, refreshed]

    def form(self, action: str, button: str, *content: Html, danger: bool = False, **fields: str) -> Html:
        """Returns a form that changes something: it is sent with a token that other sites do not have.

        Args:
            action: the address.
            button: the label of its button.
            content: elements before the button.
            danger: true to mark the button.
            fields: hidden fields.
        """
        hidden = (
            (h.input(type="hidden", name=name, value=value)) for name, value in {**fields, TOKEN_FIELD: self._form_token}.items()
        )
        return h.form(".act", method="post", action=action)[hidden, content, h.button(".danger" if danger else "")[button]]

    def change(self, name: str, label: str, **fields: str) -> Html:
        """Returns a link to the page of a change; None if the window only reads."""
        return h.a(".change", href=self.url("change", name, **fields))[label] if self.may_change else None

    def at(self, timestamp: int) -> Html:
        """Returns how long ago a time was, with the exact time as its title."""
        return h.time(title=exact(timestamp))[age(timestamp, self.seen.at_ms)]


def _keys() -> Html:
    """Returns the help: a dialog with all keys, which the page's script opens."""
    rows = ([h.dt[[[h.kbd[key], " "] for key in keys]], h.dd[meaning]] for keys, meaning in KEYS)
    return h.dialog("#keys", aria_labelledby="keys-title")[
        h.h2("#keys-title")["Keys"], h.dl[rows], h.form(method="dialog")[h.button["Close"]]
    ]


def verdict_mark(verdict: Verdict) -> Html:
    kind, words = VERDICTS[verdict]
    return h.span(f".verdict.{kind}", title=str(verdict))[words]


def tile(number: str, label: str) -> Html:
    return h.div(".card.tile")[h.b[number], h.span[label]]


class Heading(NamedTuple):
    """The heading of a column: its content, and "ascending" or "descending" if the rows are in its order."""

    content: Html
    order: str | None = None


def table(
    titles: Sequence[str],
    rows: Iterable[Html],
    numeric: Sequence[str] = (),
    empty: str = "",
    headings: Sequence[Heading] | None = None,
) -> Html:
    """Returns a table.

    Args:
        titles: one for each column.
        rows: `tr` elements.
        numeric: titles of columns of numbers.
        empty: a sentence in the place of a table without rows.
        headings: the headings of the columns; None for their titles.
    """
    made = list(rows)
    if not made:
        return h.p(".quiet")[empty]
    heads = (
        h.th(class_="n" if title in numeric else None, scope="col", aria_sort=heading.order)[heading.content]
        for title, heading in zip(titles, headings or map(Heading, titles), strict=True)
    )
    return h.table(".stack.sorts" if headings else ".stack")[h.thead[h.tr[heads]], h.tbody[made]]


def number(label: str, value: float | None, title: str | None = None) -> Html:
    return h.td(".n", data_label=label, title=title)["unknown" if value is None else count(value)]


def cell(label: str, value: Html, *, number: bool = False) -> Html:
    return h.td(class_="n" if number else None, data_label=label)[value]


def group_row(frame: PageFrame, group: GroupSeen) -> Html:
    return h.tr[
        _group_name(frame, group),
        cell("state", group.state),
        number("members", len(group.members)),
        _behind(group),
        cell("trend", [h.span(".trend")[TRENDS[group.trend]], lag_spark(frame, group)]),
        cell("read", f"{count(group.rate)} /s", number=True),
        cell("last commit", frame.at(group.committed_ms), number=True),
    ]


def lag_spark(frame: PageFrame, group: GroupSeen) -> Html:
    """Draws a group's lag since the window was opened."""
    values = [each.seconds or 0.0 for each in frame.seen.lags.get(group.name, ())[-_SPARKS:]]
    if not any(values):
        return None
    return spark(values, f"Behind: {seconds(values[0])} at first, {seconds(values[-1])} now, at most {seconds(max(values))}")


def short_group_row(frame: PageFrame, group: GroupSeen) -> Html:
    return h.tr[_group_name(frame, group), _behind(group), cell("trend", lag_spark(frame, group) or "")]


def _group_name(frame: PageFrame, group: GroupSeen) -> Html:
    link = h.a(href=frame.url("groups", group.name))[printable(group.name)]
    return [h.td(".name")[link], h.td[verdict_mark(group.health.verdict)]]


def _behind(group: GroupSeen) -> Html:
    return [cell("behind", seconds(group.health.lag_seconds), number=True), number("offsets behind", group.lag)]


GROUP_TITLES: Final = (
    "Group", "Verdict", "State", "Members", "Behind", "Offsets behind", "Trend", "Read", "Last commit",
)  # fmt: skip
SHORT_GROUP_TITLES: Final = ("Group", "Verdict", "Behind", "Offsets behind", "Trend")
GROUP_NUMBERS: Final = ("Members", "Behind", "Offsets behind", "Read", "Last commit")


def topic_row(frame: PageFrame, topic: TopicSeen) -> Html:
    return h.tr[
        _topic_name(frame, topic),
        _partitions(topic),
        _records(topic),
        _written(frame, topic),
        cell("kept", retention_text(topic.config)),
        cell("groups", _readers(frame, topic)),
    ]


def _partitions(topic: TopicSeen) -> Html:
    """Returns how many partitions a topic has, and how many have damage."""
    damaged = sum(each.trouble is not None for each in topic.partitions)
    if damaged == 0:
        return number("partitions", len(topic.partitions))
    return cell(
        "partitions", [f"{count(len(topic.partitions))}, ", h.span(".verdict.bad")[f"{count(damaged)} damaged"]], number=True
    )


def _records(topic: TopicSeen) -> Html:
    """Returns how many records a topic has, or the most that it can have if they were not counted."""
    if any(each.damage is not None for each in topic.partitions):
        return number("records", None, f"{count(topic.offsets)} offsets in the partitions that can be read")
    if topic.records is None:
        return cell("records", h.span(title="offsets: the records are not counted")[f"≤ {count(topic.offsets)}"], number=True)
    return number("records", topic.records, f"{count(topic.offsets)} offsets")


def _readers(frame: PageFrame, topic: TopicSeen) -> Html:
    """Returns how many groups read a topic, and the worst verdict among them."""
    groups = frame.seen.groups_of(topic.name)
    if not groups:
        return ""
    worst = next((each for each in frame.seen.attention if each in groups), groups[0])
    link = h.a(href=frame.url("topics", topic.name, "groups"))[counted(len(groups), "group")]
    return h.span(".readers")[link, verdict_mark(worst.health.verdict)]


def short_topic_row(frame: PageFrame, topic: TopicSeen) -> Html:
    drawn = spark(topic.rates, f"Written a second, at most {count(max(topic.rates, default=0))}") if any(topic.rates) else ""
    return h.tr[_topic_name(frame, topic), _written(frame, topic), cell("course", drawn)]


def _topic_name(frame: PageFrame, topic: TopicSeen) -> Html:
    return h.td(".name")[h.a(href=frame.url("topics", topic.name))[printable(topic.name)]]


def _written(frame: PageFrame, topic: TopicSeen) -> Html:
    return [
        cell("written", "" if topic.rate is None else f"{count(topic.rate)} /s", number=True),
        size_cell(topic.size),
        cell("newest", "…" if frame.seen.reading else frame.at(topic.newest_ms), number=True),
    ]


def size_cell(size: int) -> Html:
    return cell("size", h.span(title=count(size))[size_text(size)], number=True)


TOPIC_TITLES: Final = ("Topic", "Partitions", "Records", "Written", "Size", "Newest record", "Kept", "Groups")
SHORT_TOPIC_TITLES: Final = ("Topic", "Written", "Size", "Newest record", "Course")
TOPIC_NUMBERS: Final = TOPIC_TITLES[1:6]


def damage_lines(damaged: list[PartitionSeen]) -> Html:
    return [
        h.p(".say.bad")[h.b[f"{each.partition.topic}-{each.partition.partition}"], ": ", printable(each.trouble or "")]
        for each in damaged[:20]
    ]


def bytes_text(data: bytes | None) -> Html:
    if data is None:
        return h.span(".null")["null"]
    text = shown(data[:SHOWN])
    return text if len(data) <= SHOWN else f"{text}…"
