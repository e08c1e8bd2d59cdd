"""Pictures in SVG, coloured by class. Each says in words what it shows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import htpy as h

from pylog.ui.observation import PartitionSeen
from pylog.ui.words import count, seconds

_WIDTH: Final = 1160
_HEIGHT: Final = 150


def strip(seen: PartitionSeen) -> Any:
    """Draws the segments of a partition side by side, as wide as they are large. Returns None if there are none."""
    total = seen.size
    if not total:
        return None
    bars, x = [], 0.0
    for each in seen.segments:
        width = _WIDTH * each.size / total
        title = f"offsets {count(each.base_offset)} to {count(each.end_offset)}, {count(each.size)} bytes"
        kind = "active" if each.is_active else "sealed"
        bars.append(
            h.Element("rect")(class_=kind, x=f"{x:.1f}", y="2", width=f"{max(0.5, width - 1):.1f}", height="20")[
                h.Element("title")[title]
            ]
        )
        x += width
    label = f"{len(seen.segments)} segments, {count(total)} bytes; the last one is active"
    return h.Element("svg")(viewBox=f"0 0 {_WIDTH} 24", role="img", aria_label=label)[bars]


def curve(values: Sequence[float]) -> Any:
    """Draws values over time, with equal distances. With fewer than two there is nothing to draw."""
    if len(values) < 2:
        return h.p(".quiet")["The curve begins with the second observation, in two seconds."]
    top = max(values) or 1.0
    step = (_WIDTH - 60) / (len(values) - 1)
    points = " ".join(
        f"{50 + step * at:.1f},{_HEIGHT - 20 - (_HEIGHT - 40) * value / top:.1f}" for at, value in enumerate(values)
    )
    label = f"from {seconds(values[0])} to {seconds(values[-1])}, at most {seconds(max(values))}"
    return h.Element("svg")(viewBox=f"0 0 {_WIDTH} {_HEIGHT}", role="img", aria_label=label)[
        h.Element("line")(class_="axis", x1="50", x2=str(_WIDTH - 10), y1=str(_HEIGHT - 20), y2=str(_HEIGHT - 20)),
        h.Element("text")(x="44", y="26", text_anchor="end")[seconds(max(values))],
        h.Element("text")(x="44", y=str(_HEIGHT - 18), text_anchor="end")["0"],
        h.Element("polyline")(class_="curve", points=points),
    ]
