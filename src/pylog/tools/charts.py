"""Pieces of a page: bars and strips as SVG that stretches with the page, tables. Every text that comes from outside is escaped.

A string in this module is HTML only if it was made by one of its functions; `text` makes HTML of everything else.
"""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from pylog.text import shown

_HEIGHT: Final = 100  # units of a chart's own; the page stretches it
_WIDTH: Final = 1000


class StripSection(NamedTuple):
    """A part of a strip: from `start` to before `end`, in the strip's own units; what it is; what a pointer on it tells."""

    start: float
    end: float
    kind: str
    title: str


def text(value: object) -> str:
    """A text as HTML: markup in it is shown and not obeyed, and so is what turns the direction of writing.

    >>> text("<b>"), text("a\\u202eb")
    ('&lt;b&gt;', 'a\\\\u202eb')
    """
    return html.escape(shown(str(value)))


def bars(values: Sequence[float], titles: Sequence[str], kind: str) -> str:
    """A chart of upright bars, as wide as the page has room; the highest one reaches the top.

    Args:
        values: of the bars, 0 or more.
        titles: what a pointer on each tells.
        kind: a class of the page's style sheet.
    """
    top = max([1e-9, *values])
    width = _WIDTH / max(len(values), 1)
    drawn = [
        _rectangle(at * width, width * 0.86, max(_HEIGHT * value / top, 1.5), kind, title)
        for at, (value, title) in enumerate(zip(values, titles, strict=True))
        if value
    ]
    return _svg("chart", drawn)


def strip(pieces: Iterable[StripSection], start: float, end: float) -> str:
    """A horizontal strip from `start` to `end`; later pieces lie on top of earlier ones, and each can be seen."""
    scale = _WIDTH / max(end - start, 1e-9)
    drawn = [
        _rectangle((piece.start - start) * scale, max((piece.end - piece.start) * scale, 4.0), _HEIGHT, piece.kind, piece.title)
        for piece in pieces
    ]
    return _svg("strip", drawn)


def _rectangle(x: float, width: float, height: float, kind: str, title: str) -> str:
    x = min(x, _WIDTH - width)
    place = f'x="{x:.1f}" y="{_HEIGHT - height:.1f}" width="{width:.1f}" height="{height:.1f}"'
    return f'<rect class="{text(kind)}" {place}><title>{text(title)}</title></rect>'


def _svg(kind: str, drawn: Iterable[str]) -> str:
    box = f'viewBox="0 0 {_WIDTH} {_HEIGHT}" preserveAspectRatio="none"'
    return f'<svg class="{text(kind)}" {box} role="img">{"".join(drawn)}</svg>'


def axis(*labels: str) -> str:
    """The labels below a chart, spread over its width."""
    return f'<div class="axis">{"".join(f"<span>{text(label)}</span>" for label in labels)}</div>'


def meter(value: float, top: float, kind: str = "bar") -> str:
    """A lying bar in a table's cell: `value` of `top`."""
    share = 100 * value / top if top else 0
    return f'<div class="meter"><div class="{text(kind)}" style="width:{share:.1f}%"></div></div>'


def table(titles: Sequence[str], rows: Iterable[Sequence[str]], *, left: int = 1) -> str:
    """A table that scrolls sideways where the page is too narrow.

    Args:
        titles: of the columns, as text.
        rows: the cells, as HTML.
        left: so many columns from the left are text; the others are numbers.
    """

    def cells(name: str, contents: Iterable[str]) -> str:
        made = (f"<{name}{'' if at < left else ' class=n'}>{cell}</{name}>" for at, cell in enumerate(contents))
        return f"<tr>{''.join(made)}</tr>"

    body = "".join(cells("td", row) for row in rows)
    return f'<div class="wide"><table><thead>{cells("th", map(text, titles))}</thead><tbody>{body}</tbody></table></div>'
