"""Parts of an HTML page: charts and strips as scalable SVG, and tables. All text is escaped.

Only the functions of this module return HTML; `text` converts any other string.
"""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from pylog.text import shown

_HEIGHT: Final = 100  # SVG units; the page scales the chart
_WIDTH: Final = 1000


class StripSection(NamedTuple):
    """A section of a strip: from `start` (inclusive) to `end` (exclusive), in units of the strip, with its class and tooltip."""

    start: float
    end: float
    kind: str
    title: str


def text(value: object) -> str:
    """Returns text as HTML, with markup and unprintable characters escaped.

    >>> text("<b>"), text("a\\u202eb")
    ('&lt;b&gt;', 'a\\\\u202eb')
    """
    return html.escape(shown(str(value)))


def bars(values: Sequence[float], titles: Sequence[str], kind: str, label: str) -> str:
    """Returns a bar chart as wide as the page. The highest bar reaches the top.

    Args:
        values: heights of the bars, 0 or more.
        titles: tooltips of the bars.
        kind: class in the page's style sheet.
        label: what the chart shows, for readers who cannot see it.
    """
    top = max([1e-9, *values])
    width = _WIDTH / max(len(values), 1)
    drawn = [
        _rectangle(at * width, width * 0.86, max(_HEIGHT * value / top, 1.5), kind, title)
        for at, (value, title) in enumerate(zip(values, titles, strict=True))
        if value
    ]
    return _svg("chart", drawn, label)


def strip(sections: Iterable[StripSection], start: float, end: float, label: str) -> str:
    """Returns a horizontal strip from `start` to `end`. Later sections cover earlier ones, and each has a visible width.

    Args:
        sections, start, end: in units of the strip.
        label: what the strip shows, for readers who cannot see it.
    """
    scale = _WIDTH / max(end - start, 1e-9)
    drawn = [
        _rectangle(
            (section.start - start) * scale, max((section.end - section.start) * scale, 4.0), _HEIGHT, section.kind, section.title
        )
        for section in sections
    ]
    return _svg("strip", drawn, label)


def _rectangle(x: float, width: float, height: float, kind: str, title: str) -> str:
    x = min(x, _WIDTH - width)
    box = f'x="{x:.1f}" y="{_HEIGHT - height:.1f}" width="{width:.1f}" height="{height:.1f}"'
    return f'<rect class="{text(kind)}" {box}><title>{text(title)}</title></rect>'


def _svg(kind: str, drawn: Iterable[str], label: str) -> str:
    box = f'viewBox="0 0 {_WIDTH} {_HEIGHT}" preserveAspectRatio="none"'
    return f'<svg class="{text(kind)}" {box} role="img" aria-label="{text(label)}">{"".join(drawn)}</svg>'


def axis(*labels: str) -> str:
    """Returns the labels below a chart, spread over its width."""
    return f'<div class="axis">{"".join(f"<span>{text(label)}</span>" for label in labels)}</div>'


def meter(value: float, top: float, kind: str = "bar") -> str:
    """Returns a horizontal bar for a table cell that shows `value` as a share of `top`. The number itself is in another cell."""
    share = 100 * value / top if top else 0
    bar = f'<rect class="{text(kind)}" width="{share:.1f}%" height="100%"/>' if share else ""
    return f'<svg class="meter" aria-hidden="true">{bar}</svg>'


def table(titles: Sequence[str], rows: Iterable[Sequence[str]], *, left: int = 1) -> str:
    """Returns a table that scrolls sideways if the page is too narrow.

    Args:
        titles: titles of the columns, as text.
        rows: the cells, as HTML.
        left: number of columns, from the left, that are text; the others are numbers.
    """

    def cells(name: str, contents: Iterable[str]) -> str:
        made = (f"<{name}{'' if at < left else ' class=n'}>{cell}</{name}>" for at, cell in enumerate(contents))
        return f"<tr>{''.join(made)}</tr>"

    body = "".join(cells("td", row) for row in rows)
    made = f"<table><thead>{cells('th', map(text, titles))}</thead><tbody>{body}</tbody></table>"
    return f'<div class="wide" tabindex="0">{made}</div>'
