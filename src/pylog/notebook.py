"""Tables for notebooks: an object that has one is shown as HTML there, instead of its `repr`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from itertools import islice
from typing import Final, NamedTuple

from pylog.errors import PylogError
from pylog.text import printable

MOST_ROWS: Final = 50


class ShownTable(NamedTuple):
    """A table for a notebook.

    Attributes:
        caption: the text above it.
        columns: the headings.
        rows: cells; None becomes a dash. Only the first `MOST_ROWS` rows are shown.
        more: what the last line says if there are more rows.
    """

    caption: str
    columns: Sequence[str]
    rows: Iterable[Sequence[object]]
    more: str = "only the first 50 are shown"

    def html(self) -> str:
        """Returns the table as HTML. All texts are escaped.

        >>> ShownTable("<b>", ["topic"], [["a&b"]]).html()
        '<table><caption>&lt;b&gt;</caption><tr><th>topic</th></tr><tr><td>a&amp;b</td></tr></table>'
        """
        rows = list(islice(self.rows, MOST_ROWS + 1))
        lines = [_row("td", row) for row in rows[:MOST_ROWS]]
        if len(rows) > MOST_ROWS:
            lines.append(f'<tr><td colspan="{len(self.columns)}">{_text(self.more)}</td></tr>')
        return f"<table><caption>{_text(self.caption)}</caption>{_row('th', self.columns)}{''.join(lines)}</table>"


class ShownAsTable:
    """Shows an object as a table in notebooks. If the table cannot be made, as after `close`, the `repr` is shown."""

    __slots__ = ()

    def _table(self) -> ShownTable:
        """Returns the table. Reads names and headers only."""
        raise NotImplementedError

    def _repr_html_(self) -> str:
        try:
            return self._table().html()
        except PylogError:
            return f"<pre>{_text(repr(self))}</pre>"


def _row(kind: str, cells: Iterable[object]) -> str:
    return f"<tr>{''.join(f'<{kind}>{_text(cell)}</{kind}>' for cell in cells)}</tr>"


def _text(value: object) -> str:
    return escape(printable("-" if value is None else f"{value:,}" if type(value) is int else str(value)))
