"""The records of a topic, with what was searched, and its newest ones."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import partial
from typing import Final

import htpy as h

from pylog.ui import pictures
from pylog.ui.asking import AS_IT_IS, Forms
from pylog.ui.decoding import AUTOMATIC, FORMS, decoded_beginning
from pylog.ui.html import SHOWN, Html, PageFrame, bytes_text, table
from pylog.ui.matching import HOW, Query
from pylog.ui.observation import TopicSeen
from pylog.ui.search import FoundRecord, SearchPage, cursor_text
from pylog.ui.tail import Tail
from pylog.ui.timeline import TimeBar
from pylog.ui.topic_pages import topic_frame
from pylog.ui.words import count, counted, exact

_NAMES: Final = re.compile(r'("(?:[^"\\]|\\.)*")(?=\s*:)')


def records(
    frame: PageFrame,
    topic: TopicSeen,
    query: Query,
    asked: dict[str, str],
    found: SearchPage | None,
    bars: Sequence[TimeBar] = (),
    forms: Forms = AS_IT_IS,
    problem: str = "",
) -> str:
    """Returns records of a topic, with what was searched.

    Args:
        frame: the frame of the page.
        topic: the topic.
        query: what was searched for.
        asked: the fields of the form, as they were given.
        found: the page; None if the form is wrong.
        bars: the timeline of the topic; none to leave it out.
        forms: how keys and values are decoded.
        problem: a sentence about the form.
    """
    here = ("topics", topic.name, "records")
    form = _form(frame, topic, query, asked, forms)
    content: list[Html] = [h.section(".card")[form, problem and h.p(".say.bad")[problem]]]
    if found is not None:
        content[0] = h.section(".card")[form, _foot(frame, here, query, asked, found)]
        content.append(h.section(".card")[_rows_table(frame, topic.name, found.rows, forms)])
    if bars:
        content.insert(0, h.section(".card", aria_label="Timeline")[pictures.time_bars(bars, partial(_of_bar, frame, here))])
    return topic_frame(frame, topic, "records", content)


def _of_bar(frame: PageFrame, here: Sequence[str], bar: TimeBar) -> str:
    return frame.url(*here, **{"from": exact(bar.begin_ms), "direction": "forth"})


def _form(frame: PageFrame, topic: TopicSeen, query: Query, asked: dict[str, str], forms: Forms) -> Html:
    numbers = ["", *(str(each.partition.partition) for each in topic.partitions)]
    names = {"contains": "contains", "equals": "equals", "regex": "regular expression", "json": "JSON path"}
    return h.form(".filter", role="search", action=frame.url("topics", topic.name, "records"))[
        h.label(".grow")[
            "Find in key, value, headers; or a JSON path such as customer.id = 42",
            h.input(type="search", name="find", value=query.text),
        ],
        h.label["How", h.select(name="how")[(_option(each, names[each], query.how) for each in HOW)]],
        h.label[
            "Partition",
            h.select(name="partition")[(_option(each, each or "all", asked.get("partition", "")) for each in numbers)],
        ],
        h.label["From", h.input(name="from", value=asked.get("from", ""), placeholder="1042, -100, 2026-01-31T17:00", size="22")],
        h.label[
            "Direction",
            h.select(name="direction")[
                _option("back", "newest first", "back" if query.backwards else "forth"),
                _option("forth", "oldest first", "back" if query.backwards else "forth"),
            ],
        ],
        _decode("Key as", "key_as", forms.key),
        None if frame.hides_values else _decode("Value as", "value_as", forms.value),
        h.button["Find"],
    ]


def _option(value: str, label: str, chosen: str) -> Html:
    return h.option(value=value, selected=value == chosen)[label]


def _decode(label: str, name: str, chosen: str) -> Html:
    return h.label[label, h.select(name=name)[(_option(each, words, chosen) for each, words in FORMS.items())]]


def _foot(frame: PageFrame, here: Sequence[str], query: Query, asked: dict[str, str], found: SearchPage) -> Html:
    reached = f", back to {_short(found.reached_ms)}" if query.backwards else f", up to {_short(found.reached_ms)}"
    left = "" if found.is_done else f" {count(found.left)} are left."
    said = (
        f"Searched {counted(found.searched, 'offset')}{reached if found.reached_ms >= 0 else ''}: {len(found.rows)} found.{left}"
    )
    more = frame.url(*here, **{**asked, "cursor": cursor_text(found.cursor)})
    exports = [
        h.a(href=frame.url(*here[:-1], f"records.{form}", **asked), download=True)[label]
        for form, label in (("jsonl", "JSON lines"), ("csv", "CSV"), ("parquet", "Parquet"), ("arrow", "Arrow"))
    ]
    return h.div(".foot", role="status")[
        h.span[said],
        h.span["That is all."] if found.is_done else h.a(".button", href=more, rel="next")["Continue"],
        h.span(".quiet.save")[
            "Save all found: ",
            [[each, " · "] for each in exports],
            "this page: ",
            h.a(href=frame.url(*here[:-1], "records.json", **asked))["JSON"],
        ],
    ]


def live(frame: PageFrame, topic: TopicSeen, topic_id: str, found: Tail, forms: Forms) -> str:
    """Returns the newest records. The page's script adds newer ones on top, unless the reader is somewhere else."""
    chosen = {"key_as": forms.key, "value_as": forms.value, "topic_id": topic_id}
    following = frame.url("topics", topic.name, "live", cursor=cursor_text(found.cursor), **chosen)
    return topic_frame(
        frame,
        topic,
        "live",
        h.section("#tail.card", data_tail=following, data_passed=str(found.passed), data_again=_begun_again(found))[
            h.div(".head")[
                h.h2["Newest records of all partitions"],
                h.span("#pace.quiet", role="status")["Reload the page for newer records."],
            ],
            _rows_table(frame, topic.name, found.rows, forms, "No record yet."),
        ],
    )


def _begun_again(found: Tail) -> str | None:
    """Returns what the script says of partitions whose records are others than before; None if there are none."""
    if not found.begun_again:
        return None
    names = ", ".join(map(str, found.begun_again))
    return (
        f"Partition {names} ended before the last row: it was truncated, or the topic was created again. Rows below may be gone."
    )


def _rows_table(frame: PageFrame, topic: str, rows: list[FoundRecord], forms: Forms, empty: str = "No record was found.") -> Html:
    value_form = AUTOMATIC if frame.hides_values else forms.value
    made = (
        h.tr[
            h.td[
                h.a(
                    ".mono",
                    href=frame.url("topics", topic, str(row.partition), str(row.offset), key_as=forms.key, value_as=forms.value),
                )[f"{row.partition} @ {count(row.offset)}"]
            ],
            h.td(".quiet.when")[h.time(title=exact(row.timestamp))[_short(row.timestamp)]],
            h.td(".mono", data_label="key")[_part(row.key, forms.key)],
            h.td(".value.wide")[h.span(".mono.two-lines")[_part(row.value, value_form)]],
        ]
        for row in rows
    )
    return table(("Record", "Time", "Key", "Value"), made, empty=empty)


def _part(data: bytes | None, form: str) -> Html:
    """Returns the beginning of a key or value in a form, with the names of a JSON document marked."""
    if data is None:
        return bytes_text(data)
    if form == AUTOMATIC:
        text = bytes_text(data)
        return _coloured(text) if data[:1] in (b"{", b"[") else text
    made = decoded_beginning(data, form, SHOWN)
    if made is None:
        return [h.span(".null")[f"not {FORMS[form]}: "], bytes_text(data)]
    return _coloured(made) if form == "json" else made


def _coloured(text: str) -> Html:
    parts = _NAMES.split(text)
    return [h.span(".json-key")[part] if number % 2 else part for number, part in enumerate(parts)]


def _short(timestamp: int) -> str:
    return exact(timestamp).replace("T", " ").removesuffix("Z")
