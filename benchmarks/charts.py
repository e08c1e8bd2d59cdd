"""Charts as SVG that stands alone: dots on a logarithmic scale, and curves.

Each has its own ground, white or dark as the reader's system is, so that it can be read on any page. Every label is escaped.
"""

from __future__ import annotations

import html
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from benchmarks.measure import Sample
from benchmarks.results import number, spread

WIDTH = 800
MARGIN = 24
STEP = 40  # from one dot of a chart to the next one below it
LABEL = 100  # letters that have room in a line
HEAD = 64  # the title, and the unit below it
FOOT = 44  # the scale's numbers
CURVES_HEIGHT = 360
LABELS_WIDTH = 262  # beside curves, for their names

STYLE = """
text { font: 13px system-ui, sans-serif; fill: #1f2328; stroke: #ffffff; stroke-width: 4px; paint-order: stroke }
.title { font-size: 16px; font-weight: 600 }
.faint { fill: #59636e }
.ground { fill: #ffffff }
.grid { stroke: #d1d9e0 }
.edge { stroke: #818b98 }
.mark { fill: #0969da; stroke: #0969da }
.rival { fill: #ffffff; stroke: #bc4c00 }
.bad { fill: #cf222e; stroke: #cf222e }
.curve { fill: none; stroke-width: 2 }
@media (prefers-color-scheme: dark) {
  text { fill: #f0f6fc; stroke: #0d1117 }
  .faint { fill: #9198a1 }
  .ground { fill: #0d1117 }
  .grid { stroke: #3d444d }
  .edge { stroke: #656c76 }
  .mark { fill: #4493f8; stroke: #4493f8 }
  .rival { fill: #0d1117; stroke: #f0883e }
  .bad { fill: #f85149; stroke: #f85149 }
}
"""
DASHES = ("none", "7 4", "2 3")  # of curves: they differ in more than colour


@dataclass(frozen=True)
class Dot:
    """One figure: its median, with a line from the smallest to the largest.

    Attributes:
        label: what it is.
        sample: the figures.
        kind: `mark` for pylog, `rival`, `bad` for a target that was missed.
    """

    label: str
    sample: Sample
    kind: str = "mark"


@dataclass(frozen=True)
class Scale:
    """A logarithmic scale: equal distances are equal factors.

    Attributes:
        low: the value at its beginning, above 0.
        high: the value at its end.
        start: where it begins, in the chart's units.
        end: where it ends; may be before the start.
    """

    low: float
    high: float
    start: float
    end: float

    @classmethod
    def around(cls, values: Sequence[float], start: float, end: float) -> Scale:
        """A scale that all values have room on, with whole ticks at both ends.

        Raises:
            ValueError: a value is not above 0.
        """
        if not values or min(values) <= 0:
            raise ValueError("a logarithmic scale needs values above 0")
        return cls(_tick_below(min(values)), _tick_above(max(values)), start, end)

    def place(self, value: float) -> float:
        """Where a value lies."""
        share = math.log(value / self.low) / math.log(self.high / self.low)
        return self.start + share * (self.end - self.start)

    def ticks(self) -> list[float]:
        """Round values on it: few enough to be read."""
        decades = range(math.floor(math.log10(self.low)), math.ceil(math.log10(self.high)) + 1)
        steps = (1, 2, 5) if len(decades) <= 4 else (1,)
        found = [step * 10.0**decade for decade in decades for step in steps]
        return [tick for tick in found if self.low <= tick * 1.0001 and tick <= self.high * 1.0001]


def _tick_below(value: float) -> float:
    decade = 10.0 ** math.floor(math.log10(value))
    return max(step * decade for step in (0.5, 1, 2, 5) if step * decade < value)


def _tick_above(value: float) -> float:
    decade = 10.0 ** math.floor(math.log10(value))
    return min(step * decade for step in (2, 5, 10, 20) if step * decade > value)


def dots(title: str, unit: str, shown: Sequence[Dot], legend: Mapping[str, str], *, line_at: float | None = None) -> str:
    """A chart with a line for each figure: its label, and below it the dot with the spread.

    Args:
        title: what all of them are.
        unit: of the scale.
        shown: the figures, from the top down.
        legend: what the kinds of dots mean.
        line_at: a value that is marked over the whole height, such as a limit.
    """
    height = HEAD + STEP * len(shown) + FOOT
    values = [value for dot in shown for value in (dot.sample.low, dot.sample.high)]
    scale = Scale.around([*values, *([line_at] if line_at else [])], MARGIN, WIDTH - MARGIN)
    bottom = HEAD + STEP * len(shown)
    drawn = [_text(MARGIN, 26, title, "title"), _text(MARGIN, 46, f"{unit}, logarithmic", "faint"), *_legend(legend)]
    for tick in scale.ticks():
        x = scale.place(tick)
        drawn += [_line(x, HEAD, x, bottom, "grid"), _text(x, bottom + 18, number(tick), "faint", "middle")]
    if line_at is not None:
        drawn.append(_line(scale.place(line_at), HEAD, scale.place(line_at), bottom, "edge", 2))
    for at, dot in enumerate(shown):
        drawn += _dot(scale, HEAD + STEP * at, dot)
    return _svg(title, height, drawn)


def _legend(names: Mapping[str, str]) -> Iterator[str]:
    """What the kinds of dots mean, at the right of the head."""
    x = float(WIDTH - MARGIN)
    for kind, name in reversed([*names.items()]):
        yield _text(x, 46, name, "faint", "end")
        x -= 6.4 * len(name) + 14
        yield f'<circle class="{kind}" stroke-width="2" cx="{x:.1f}" cy="41.5" r="5"/>'
        x -= 16


def _dot(scale: Scale, top: float, dot: Dot) -> Iterator[str]:
    x, y = scale.place(dot.sample.median), top + 28
    yield _text(MARGIN, top + 16, dot.label if len(dot.label) <= LABEL else f"{dot.label[: LABEL - 1]}…")
    yield _text(WIDTH - MARGIN, top + 16, number(dot.sample.median), "", "end")
    yield _line(scale.place(dot.sample.low), y, scale.place(dot.sample.high), y, dot.kind, 2)
    title = f"<title>{html.escape(f'{dot.label}: {spread(dot.sample)}')}</title>"
    yield f'<circle class="{dot.kind}" stroke-width="2" cx="{x:.1f}" cy="{y:.1f}" r="5">{title}</circle>'


def curves(title: str, across: str, unit: str, shown: Mapping[str, Mapping[float, Sample]]) -> str:
    """A chart with a curve for each name, both scales logarithmic.

    Args:
        title: what all of them are.
        across: what grows from left to right.
        unit: of what is measured.
        shown: for each curve the figures, by what grows.
    """
    points = [point for curve in shown.values() for point in curve]
    values = [value for curve in shown.values() for sample in curve.values() for value in (sample.low, sample.high)]
    bottom, right = CURVES_HEIGHT - FOOT - 20, WIDTH - LABELS_WIDTH
    x = Scale(min(points), max(points), MARGIN + 40, right)
    y = Scale.around(values, bottom, HEAD)
    drawn = [_text(MARGIN, 26, title, "title"), _text(MARGIN, 46, f"{unit}, logarithmic", "faint")]
    for tick in y.ticks():
        drawn += [_line(x.start, y.place(tick), right, y.place(tick), "grid")]
        drawn += [_text(x.start - 8, y.place(tick) + 4, number(tick), "faint", "end")]
    for point in sorted(set(points)):
        drawn += [_line(x.place(point), HEAD, x.place(point), bottom, "grid")]
        drawn += [_text(x.place(point), bottom + 18, abbreviated(point), "faint", "middle")]
    drawn.append(_text((x.start + right) / 2, bottom + 38, across, "faint", "middle"))
    for number_of_curve, (name, curve) in enumerate(shown.items()):
        drawn += _curve(x, y, name, curve, DASHES[number_of_curve % len(DASHES)])
    return _svg(title, CURVES_HEIGHT, drawn)


def _curve(x: Scale, y: Scale, name: str, curve: Mapping[float, Sample], dashes: str) -> Iterator[str]:
    places = [(x.place(point), y.place(sample.median), sample) for point, sample in sorted(curve.items())]
    path = " ".join(f"{across:.1f},{up:.1f}" for across, up, _ in places)
    yield f'<polyline class="mark curve" style="fill:none" stroke-dasharray="{dashes}" points="{path}"/>'
    for across, up, sample in places:
        yield _line(across, y.place(sample.low), across, y.place(sample.high), "mark", 2)
        yield f'<circle class="mark" cx="{across:.1f}" cy="{up:.1f}" r="4"><title>{html.escape(spread(sample))}</title></circle>'
    yield _text(places[-1][0] + 12, places[-1][1] + 4, name)


def abbreviated(count: float) -> str:
    """A round count in few letters.

    >>> abbreviated(1000), abbreviated(100_000_000)
    ('1 k', '100 M')
    """
    for size, letter in ((1e6, " M"), (1e3, " k")):
        if count >= size:
            return f"{count / size:g}{letter}"
    return f"{count:g}"


def _text(x: float, y: float, words: str, kind: str = "", anchor: str = "start") -> str:
    return f'<text class="{kind}" x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{html.escape(words)}</text>'


def _line(x1: float, y1: float, x2: float, y2: float, kind: str, width: float = 1) -> str:
    return f'<line class="{kind}" x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke-width="{width}"/>'


def _svg(title: str, height: float, drawn: Sequence[str]) -> str:
    """A whole file. It needs nothing from elsewhere, and stretches with the page."""
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" role="img"'
    ground = f'<rect class="ground" width="{WIDTH}" height="{height}" rx="6"/>'
    return "\n".join([f'{head} aria-label="{html.escape(title)}">', f"<style>{STYLE}</style>", ground, *drawn, "</svg>", ""])
