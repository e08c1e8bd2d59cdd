"""Pictures in SVG, coloured by class. Each has a label that says what it shows. Text keeps its size on a narrow page."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

import htpy as h

from pylog.ui.fates import Fates
from pylog.ui.observation import PartitionSeen
from pylog.ui.timeline import BARS, TimeBar
from pylog.ui.words import count, counted, exact

_WIDTH: Final = 1000
_HEIGHT: Final = 120
_STRIP: Final = 20
_BARS_HEIGHT: Final = 40
_SPARK: Final = (80, 18)


class CurvePoint(NamedTuple):
    """A point of a curve: a time in milliseconds, and a value."""

    timestamp: int
    value: float


def strip(seen: PartitionSeen, found: Fates) -> Any:
    """Draws the segments of a partition side by side, as wide as they are large. Returns None if there are none."""
    total = seen.size
    if not total:
        return None
    bars, x = [], 0.0
    for each in seen.segments:
        width = _WIDTH * each.size / total
        due = found.retention.get(each.base_offset, "").startswith("due")
        clean = found.compaction.get(each.base_offset) == "clean"
        kind = "active" if each.is_active else "due" if due else "clean" if clean else "sealed"
        title = f"offsets {count(each.base_offset)} to {count(each.end_offset)}, {count(each.size)} bytes, {kind}"
        bars.append(
            h.Element("rect")(class_=kind, x=f"{x:.1f}", y="0", width=f"{max(1.0, width - 2):.1f}", height=str(_STRIP))[
                h.Element("title")[title]
            ]
        )
        x += width
    label = f"{counted(len(seen.segments), 'segment')}, {count(total)} bytes; the last one is active"
    return h.Element("svg")(".strip", viewBox=f"0 0 {_WIDTH} {_STRIP}", preserveAspectRatio="none", role="img", aria_label=label)[
        bars,
        _mark("start", seen.start_offset, seen) if seen.start_offset > seen.segments[0].base_offset else None,
        _mark("durable", seen.durable_offset, seen),
    ]


def _mark(kind: str, offset: int, seen: PartitionSeen) -> Any:
    """Draws a line where an offset is, as far into its segment as the offset is."""
    x = 0.0
    for each in seen.segments:
        if each.base_offset <= offset < each.end_offset:
            part = (offset - each.base_offset) / (each.end_offset - each.base_offset)
            at = f"{x + _WIDTH * part * each.size / seen.size:.1f}"
            title = h.Element("title")[f"{'log start' if kind == 'start' else 'durable up to'}: offset {count(offset)}"]
            return h.Element("line")(class_=f"mark {kind}", x1=at, x2=at, y1="0", y2=str(_STRIP))[title]
        x += _WIDTH * each.size / seen.size
    return None  # all of it is durable


def time_bars(bars: Sequence[TimeBar], link: Callable[[TimeBar], str]) -> Any:
    """Draws a timeline. Each bar with records is a link.

    Args:
        bars: the bars of the timeline.
        link: returns the address of a bar's records.
    """
    top = max(each.records for each in bars)
    total, begin, end = sum(each.records for each in bars), bars[0].begin_ms, bars[-1].end_ms - 1
    label = f"About {counted(total, 'record')} from {exact(begin)} to {exact(end)}; a bar leads to its records"
    width = _WIDTH / BARS
    drawn = []
    for at, each in enumerate(bars):
        if each.records:
            title = f"{exact(each.begin_ms)}: about {counted(each.records, 'record')}"
            height = max(2.0, _BARS_HEIGHT * each.records / top)
            across = {"x": f"{at * width:.1f}", "width": f"{width - 1:.1f}"}
            hit = h.Element("rect")(".hit", y="0", height=str(_BARS_HEIGHT), **across)
            bar = h.Element("rect")(".bar-of", y=f"{_BARS_HEIGHT - height:.1f}", height=f"{height:.1f}", **across)
            drawn.append(h.a(href=link(each), aria_label=title, tabindex="-1")[h.Element("title")[title], hit, bar])
    picture = h.Element("svg")(
        ".bars", viewBox=f"0 0 {_WIDTH} {_BARS_HEIGHT}", preserveAspectRatio="none", role="group", aria_label=label
    )[drawn]
    same_day = exact(begin)[:10] == exact(end)[:10]
    shown = (exact(at)[11:16] if same_day else exact(at)[:16].replace("T", " ") for at in (begin, (begin + end) // 2, end))
    times = h.div(".times", aria_hidden="true")[(h.span[each] for each in shown)]
    return h.div(".timeline")[picture, times]


def spark(values: Sequence[float], label: str) -> Any:
    """Draws the last values as a small line. Returns None if there are fewer than two."""
    if len(values) < 2:
        return None
    top = max(values) or 1.0
    points = " ".join(
        f"{_SPARK[0] * at / (len(values) - 1):.1f},{_SPARK[1] - 1 - (_SPARK[1] - 2) * value / top:.1f}"
        for at, value in enumerate(values)
    )
    return h.Element("svg")(
        ".spark", viewBox=f"0 0 {_SPARK[0]} {_SPARK[1]}", preserveAspectRatio="none", role="img", aria_label=label
    )[h.Element("polyline")(class_="curve", points=points)]


def lag_chart(past: Sequence[CurvePoint], seen: Sequence[CurvePoint], what: str, text: Callable[[float], str]) -> Any:
    """Draws the lag of a group over time: the past from its commits, and then what this window has seen.

    Args:
        past, seen: the two parts.
        what: the name of the values.
        text: returns a value as people read it.
    """
    points = [*past, *seen]
    if len(points) < 2 or points[-1].timestamp <= points[0].timestamp:
        return h.p(".quiet")["No commit of the last hour is known. The curve begins with the second observation, in two seconds."]
    begin, end = points[0].timestamp, points[-1].timestamp
    top = max(each.value for each in points)
    label = (
        f"{what} from {exact(begin)[11:16]} to {exact(end)[11:16]} UTC: at first {text(points[0].value)}, "
        f"now {text(points[-1].value)}, at most {text(top)}"
    )
    lines = [_line("past", past, begin, end, top), _line("curve", [*past[-1:], *seen], begin, end, top)]
    picture = h.Element("svg")(
        ".chart", viewBox=f"0 0 {_WIDTH} {_HEIGHT}", preserveAspectRatio="none", role="img", aria_label=label
    )[h.Element("line")(class_="axis", x1="0", x2=str(_WIDTH), y1=str(_HEIGHT), y2=str(_HEIGHT)), lines]
    scale = h.div(".scale", aria_hidden="true")[h.span[text(top)], h.span["0"]]
    times = h.div(".times", aria_hidden="true")[(h.span[exact(at)[11:16]] for at in (begin, (begin + end) // 2, end))]
    return h.div(".picture")[scale, picture, times]


def _line(kind: str, points: Sequence[CurvePoint], begin: int, end: int, top: float) -> Any:
    if len(points) < 2:
        return None
    height = _HEIGHT - 4
    drawn = " ".join(
        f"{_WIDTH * (each.timestamp - begin) / (end - begin):.1f},{_HEIGHT - height * each.value / (top or 1.0):.1f}"
        for each in points
    )
    first, last = drawn.partition(",")[0], drawn.rpartition(" ")[2].partition(",")[0]
    under = h.Element("polygon")(class_="under", points=f"{first},{_HEIGHT} {drawn} {last},{_HEIGHT}")
    return [under, h.Element("polyline")(class_=kind, points=drawn)]
