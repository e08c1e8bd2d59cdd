"""The records of a topic, with what was searched, and one record, whole."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from functools import partial
from typing import Final

import htpy as h

from pylog.text import lines_text, printable, shown
from pylog.ui import pictures
from pylog.ui.html import Html, PageFrame, bytes_text, table
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
    problem: str = "",
) -> str:
    """Returns records of a topic, with what was searched.

    Args:
        frame, topic, query: as the names say.
        asked: the fields of the form, as they were given.
        found: the page; None if the form is wrong.
        bars: the timeline of the topic; none to leave it out.
        problem: a sentence about the form.
    """
    here = ("topics", topic.name, "records")
    content: list[Html] = [h.section(".card")[_form(frame, topic, query, asked), problem and h.p(".say.bad")[problem]]]
    if found is not None:
        content[0] = h.section(".card")[_form(frame, topic, query, asked), _foot(frame, here, query, asked, found)]
        content.append(h.section(".card")[_rows_table(frame, topic.name, found.rows)])
    if bars:
        content.insert(0, h.section(".card", aria_label="Timeline")[pictures.time_bars(bars, partial(_of_bar, frame, here))])
    return topic_frame(frame, topic, "records", content)


def _of_bar(frame: PageFrame, here: Sequence[str], bar: TimeBar) -> str:
    return frame.url(*here, **{"from": exact(bar.begin_ms), "direction": "forth"})


def _form(frame: PageFrame, topic: TopicSeen, query: Query, asked: dict[str, str]) -> Html:
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
        h.button["Find"],
    ]


def _option(value: str, label: str, chosen: str) -> Html:
    return h.option(value=value, selected=value == chosen)[label]


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


def live(frame: PageFrame, topic: TopicSeen, found: Tail) -> str:
    """Returns the newest records. The page's script adds newer ones on top, unless the reader is somewhere else."""
    following = frame.url("topics", topic.name, "live", cursor=cursor_text(found.cursor))
    return topic_frame(
        frame,
        topic,
        "live",
        h.section("#tail.card", data_tail=following, data_passed=str(found.passed))[
            h.div(".head")[
                h.h2["Newest records of all partitions"],
                h.span("#pace.quiet", role="status")["Reload the page for newer records."],
            ],
            _rows_table(frame, topic.name, found.rows, "No record yet."),
        ],
    )


def _rows_table(frame: PageFrame, topic: str, rows: list[FoundRecord], empty: str = "No record was found.") -> Html:
    made = (
        h.tr[
            h.td[
                h.a(".mono", href=frame.url("topics", topic, str(row.partition), str(row.offset)))[
                    f"{row.partition} @ {count(row.offset)}"
                ]
            ],
            h.td(".quiet.when")[h.time(title=exact(row.timestamp))[_short(row.timestamp)]],
            h.td(".mono", data_label="key")[bytes_text(row.key)],
            h.td(".value.wide")[h.span(".mono.two-lines")[_coloured(row.value)]],
        ]
        for row in rows
    )
    return table(("Record", "Time", "Key", "Value"), made, empty=empty)


def _coloured(data: bytes | None) -> Html:
    """Returns the beginning of a value, with the names of a JSON document marked."""
    text = bytes_text(data)
    if data is None or data[:1] not in (b"{", b"["):
        return text
    parts = _NAMES.split(text)
    return [h.span(".json-key")[part] if number % 2 else part for number, part in enumerate(parts)]


def _short(timestamp: int) -> str:
    return exact(timestamp).replace("T", " ").removesuffix("Z")


def record(frame: PageFrame, topic: TopicSeen, row: FoundRecord, facts: dict[str, str]) -> str:
    """Returns one record, whole: key, value and headers as text, as JSON and as bytes."""
    here = ("topics", topic.name, str(row.partition))
    headers = (h.tr[h.td(".mono")[printable(name)], h.td(".mono.value")[bytes_text(value)]] for name, value in row.headers)
    return frame.page(
        f"{topic.name}-{row.partition}@{row.offset}",
        "Topics",
        frame.head(f"{topic.name}-{row.partition}@{row.offset}", _copy_link(frame, row, topic.name)),
        h.nav(".tabs", aria_label="Neighbours")[
            h.a(href=frame.url(*here, str(max(0, row.offset - 1)), direction="back"), rel="prev")["Previous"],
            h.a(href=frame.url(*here, str(row.offset + 1)), rel="next")["Next"],
            h.a(href=frame.url("topics", topic.name))["All records"],
        ],
        _whole("Key", row.key, frame.url(*here, str(row.offset), "key")),
        _hidden("Value", row.value)
        if frame.hides_values
        else _whole("Value", row.value, frame.url(*here, str(row.offset), "value")),
        h.section(".card")[h.h2["Headers"], table(("Name", "Value"), headers, empty="It has no headers.")],
        h.section(".card")[
            h.h2["Facts"],
            table(("Fact", "Value"), (h.tr[h.td[name], h.td(".mono")[value]] for name, value in facts.items())),
        ],
    )


def _copy_link(frame: PageFrame, row: FoundRecord, topic: str) -> Html:
    return frame.change("copy-record", "Copy to…", topic=topic, partition=str(row.partition), offset=str(row.offset))


def _hidden(title: str, placeholder: bytes | None) -> Html:
    return h.section(".card")[h.h2[title], h.p[bytes_text(placeholder)]]


def _whole(title: str, data: bytes | None, address: str) -> Html:
    if data is None:
        return h.section(".card")[h.h2[title], h.p[h.span(".null")["null"]]]
    as_json = _pretty(data)
    return h.section(".card")[
        h.div(".head")[h.h2[f"{title} · {counted(len(data), 'byte')}"], h.a(".change", href=address, download=True)["Download"]],
        h.pre(".mono", tabindex="0")[as_json if as_json is not None else _readable(data)],
        h.details[h.summary["Bytes"], h.pre(".mono", tabindex="0")[_hex(data[:65_536])]],
    ]


def _readable(data: bytes) -> str:
    return "\n".join(shown(line) if line else "" for line in data[: 1 << 20].split(b"\n"))


def _pretty(data: bytes) -> str | None:
    """Returns JSON with indents; None if it is none, or too large or deep."""
    if len(data) > 1 << 20 or data[:1] not in (b"{", b"["):
        return None
    try:
        return lines_text(json.dumps(json.loads(data), indent=2, ensure_ascii=False))
    except (ValueError, RecursionError):
        return None


def _hex(data: bytes) -> str:
    lines = (data[at : at + 16] for at in range(0, len(data), 16))
    return "\n".join(
        f"{16 * number:08x}  {line.hex(' '):<47}  {''.join(chr(byte) if 32 <= byte < 127 else '.' for byte in line)}"
        for number, line in enumerate(lines)
    )
