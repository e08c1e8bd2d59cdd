"""The page of one record, whole: its key, value and headers in the forms that the reader chooses, and the facts of its batch."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import htpy as h

from pylog.text import printable, size_text
from pylog.ui.asking import Forms
from pylog.ui.decoding import AUTOMATIC, FORMS, as_json, as_text, decoded
from pylog.ui.html import Html, PageFrame, bytes_text, table
from pylog.ui.observation import TopicSeen
from pylog.ui.search import FoundRecord
from pylog.ui.words import counted

_MOST_BYTES: Final = 1 << 20  # of a key or value that a page shows; a download has all
_MOST_DUMPED: Final = 1 << 16
_ALWAYS: Final = (AUTOMATIC, "text", "hex", "base64")  # forms that all bytes have


class _RecordPage:
    """Makes the parts of the page of a record.

    Args:
        frame, topic, row, forms: as of `record`.
    """

    def __init__(self, frame: PageFrame, topic: TopicSeen, row: FoundRecord, forms: Forms) -> None:
        self._frame, self._topic, self._row, self._forms = frame, topic, row, forms

    def address(self, offset: int, *more: str, forms: Forms | None = None, **query: str) -> str:
        """Returns the address of a record of this partition, or of a part of it."""
        chosen = forms or self._forms
        named = {"key_as": chosen.key, "value_as": chosen.value, "headers_as": chosen.headers}
        return self._frame.url("topics", self._topic.name, str(self._row.partition), str(offset), *more, **query, **named)

    def part(self, name: str, data: bytes | None) -> Html:
        """Returns the card of the key or the value."""
        title, form = name.capitalize(), getattr(self._forms, name)
        if data is None:
            return h.section(".card")[h.h2[title], h.p[h.span(".null")["null"]]]
        text, note = _content(data, form)
        offers = (each for each in FORMS if each in _ALWAYS or decoded(data, each) is not None)
        return h.section(".card")[
            h.div(".head")[
                h.h2[f"{title} · {counted(len(data), 'byte')}"],
                h.a(".change", href=self.address(self._row.offset, name), download=True)["Download"],
            ],
            self._choice(name, offers, form),
            h.pre(".mono", tabindex="0")[text],
            note and h.p(".quiet")[note],
            h.details[h.summary[_dump_title(data)], h.pre(".mono", tabindex="0")[_dump(data[:_MOST_DUMPED])]],
        ]

    def headers(self) -> Html:
        """Returns the card of the headers."""
        headers, hidden = self._row.headers, self._frame.hides_values
        form = AUTOMATIC if hidden else self._forms.headers
        rows = (h.tr[h.td(".mono")[printable(name)], h.td(".mono.value")[_header(data, form)]] for name, data in headers)
        choice = self._choice("headers", FORMS, form) if headers and not hidden else None
        return h.section(".card")[h.h2["Headers"], choice, table(("Name", "Value"), rows, empty="It has no headers.")]

    def _choice(self, part: str, offered: Iterable[str], chosen: str) -> Html:
        """Returns links to this page with a part in other forms."""
        links = (
            h.a(
                href=self.address(self._row.offset, forms=self._forms._replace(**{part: each})),
                aria_current="true" if each == chosen else None,
            )[FORMS[each]]
            for each in offered
        )
        return h.nav(".forms", aria_label=f"{part.capitalize()} as")[links]


def record(frame: PageFrame, topic: TopicSeen, row: FoundRecord, forms: Forms, facts: dict[str, str]) -> str:
    """Returns the page of a record.

    Args:
        frame, topic, row: as the names say.
        forms: how its key, value and headers are decoded.
        facts: about its batch.
    """
    made = _RecordPage(frame, topic, row, forms)
    name = f"{topic.name}-{row.partition}@{row.offset}"
    hidden = h.section(".card")[h.h2["Value"], h.p[bytes_text(row.value)]]
    return frame.page(
        name,
        "Topics",
        frame.head(name, _change_links(frame, row, topic.name)),
        h.nav(".tabs", aria_label="Neighbours")[
            h.a(href=made.address(max(0, row.offset - 1), direction="back"), rel="prev")["Previous"],
            h.a(href=made.address(row.offset + 1), rel="next")["Next"],
            h.a(href=frame.url("topics", topic.name))["All records"],
        ],
        made.part("key", row.key),
        hidden if frame.hides_values else made.part("value", row.value),
        made.headers(),
        h.section(".card")[
            h.h2["Facts"],
            table(("Fact", "Value"), (h.tr[h.td[name], h.td(".mono")[value]] for name, value in facts.items())),
        ],
    )


def _change_links(frame: PageFrame, row: FoundRecord, topic: str) -> Html:
    here = {"topic": topic, "partition": str(row.partition), "offset": str(row.offset)}
    again = None if frame.hides_values else frame.change("append-record", "As a new record…", **here)
    return [frame.change("copy-record", "Copy to…", **here), again]


def _content(data: bytes, form: str) -> tuple[str, str]:
    """Returns a key or value in a form, and a note: it is not of this form, or not shown to its end."""
    begun, note = data[:_MOST_BYTES], ""
    if form == AUTOMATIC:
        found = as_json(data) if data[:1] in (b"{", b"[") else None
    else:
        found = decoded(data if form == "json" else begun, form)
        note = f"This is not {FORMS[form]}, so it is shown as text. " if found is None else ""
    cut = f"The page has the first {size_text(_MOST_BYTES)}; the download has all." if len(data) > _MOST_BYTES else ""
    return as_text(begun) if found is None else found, note + cut


def _header(data: bytes | None, form: str) -> Html:
    if data is None:
        return h.span(".null")["null"]
    text, note = _content(data, form)
    return [text, note and h.span(".null")[f" {note}"]]


def _dump_title(data: bytes) -> str:
    return "Bytes" if len(data) <= _MOST_DUMPED else f"Bytes: the first {counted(_MOST_DUMPED, 'byte')}"


def _dump(data: bytes) -> str:
    lines = (data[at : at + 16] for at in range(0, len(data), 16))
    return "\n".join(
        f"{16 * number:08x}  {line.hex(' '):<47}  {''.join(chr(byte) if 32 <= byte < 127 else '.' for byte in line)}"
        for number, line in enumerate(lines)
    )
