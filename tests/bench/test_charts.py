"""Charts are SVG that stands alone, with every figure at its place."""

from __future__ import annotations

import doctest
import xml.etree.ElementTree as ET
from types import ModuleType

import pytest

from benchmarks import charts, figures, pictures, results
from benchmarks.charts import Dot, Scale
from benchmarks.measure import Sample, at_least, at_most
from support.bench.made_up import grown, row, sample

NAME = "{http://www.w3.org/2000/svg}"


@pytest.mark.parametrize("module", [charts, figures], ids=lambda module: module.__name__)
def test_examples_of_docstrings_hold(module: ModuleType) -> None:
    found = doctest.testmod(module)
    assert (found.attempted > 0, found.failed) == (True, 0)


def test_equal_factors_are_equal_distances() -> None:
    scale = Scale(1, 100, 0, 200)
    assert [round(scale.place(value)) for value in (1, 10, 100)] == [0, 100, 200]


def test_a_scale_has_room_for_all_values_and_round_numbers_on_it() -> None:
    scale = Scale.around([0.3, 7], 0, 100)
    assert (scale.low, scale.high) == (0.2, 10)
    assert scale.ticks() == pytest.approx([0.2, 0.5, 1, 2, 5, 10])


@pytest.mark.parametrize("values", [[], [0.0], [3, -1]])
def test_a_logarithmic_scale_refuses_what_has_no_place_on_it(values: list[float]) -> None:
    with pytest.raises(ValueError, match="above 0"):
        Scale.around(values, 0, 1)


def test_a_dot_lies_between_the_ends_of_its_spread_and_its_label_is_escaped() -> None:
    root = ET.fromstring(charts.dots("Speed", "GB/s", [Dot("a < b", sample(5)), Dot("other", sample(50), "rival")], {}))
    circles = list(root.iter(f"{NAME}circle"))
    lines = [line for line in root.iter(f"{NAME}line") if line.get("class") != "grid"]
    for circle, line in zip(circles, lines, strict=True):
        assert float(line.get("x1", "")) < float(circle.get("cx", "")) < float(line.get("x2", ""))
    assert float(circles[0].get("cx", "")) < float(circles[1].get("cx", ""))
    assert "a < b" in [text.text for text in root.iter(f"{NAME}text")]


def test_nothing_is_drawn_outside_the_chart_and_nothing_is_fetched() -> None:
    kept = results.load(results.LAST)
    drawn = {name: svg for name, _, svg in pictures.draw(kept.rows)}
    assert {"append", "scan", "growth", "memory", "targets"} <= drawn.keys()
    for svg in drawn.values():
        assert "href" not in svg
        assert "url(" not in svg
        root = ET.fromstring(svg)
        _, _, width, height = map(float, root.get("viewBox", "").split())
        for circle in root.iter(f"{NAME}circle"):
            assert 0 < float(circle.get("cx", "")) < width
            assert 0 < float(circle.get("cy", "")) < height
        for text in root.iter(f"{NAME}text"):
            assert len(text.text or "") <= charts.LABEL


def test_a_chart_can_be_read_on_a_white_and_on_a_dark_page() -> None:
    svg = charts.dots("Speed", "GB/s", [Dot("one", sample(5))], {})
    assert 'class="ground"' in svg
    assert "prefers-color-scheme: dark" in svg


def test_a_curve_goes_through_its_points_in_order() -> None:
    svg = charts.curves("Cost", "records", "µs", {"read": {1e6: sample(20), 1e3: sample(10)}, "append": {1e3: sample(100)}})
    first, _ = ET.fromstring(svg).iter(f"{NAME}polyline")
    (x1, y1), (x2, y2) = (map(float, point.split(",")) for point in first.get("points", "").split())
    assert x1 < x2
    assert y1 > y2  # what costs more is higher up
    assert {"1 k", "1 M", "read", "append", "records"} <= {text.text for text in ET.fromstring(svg).iter(f"{NAME}text")}


def test_a_picture_shows_pylog_and_its_rivals_once_each_the_fastest_first() -> None:
    rows = [row("append", 4.0), row("append", 4.0, rival="LMDB"), row("scan", 1.0, part="P3")]
    (drawn,) = (svg for name, _, svg in pictures.draw(rows) if name == "append")
    texts = [text.text for text in ET.fromstring(drawn).iter(f"{NAME}text")]
    assert [text for text in texts if text in ("append", "SQLite", "LMDB", "scan")] == ["append", "SQLite", "LMDB"]


def test_targets_are_shown_as_multiples_of_the_goal_and_missed_ones_differ() -> None:
    rows = [
        row("fast", measured=Sample((6,)), target=at_least(3)),
        row("slow", unit="s", measured=Sample((4,)), target=at_most(1)),
    ]
    (drawn,) = (svg for name, _, svg in pictures.draw(rows) if name == "targets")
    root = ET.fromstring(drawn)
    figures = [circle for circle in root.iter(f"{NAME}circle") if len(circle)]  # those of the legend tell nothing
    assert [figure.get("class") for figure in figures] == ["mark", "bad"]
    assert {"2", "0.25"} <= {text.text for text in root.iter(f"{NAME}text")}


def test_growth_is_a_curve_over_the_sizes_of_the_logs() -> None:
    (drawn,) = (svg for name, _, svg in pictures.draw([grown(1_000, 10), grown(1_000_000, 12)]) if name == "growth")
    assert ">1 M<" in drawn


def test_figures_without_a_chart_are_left_to_the_table() -> None:
    shown = {name: svg for name, _, svg in pictures.draw([grown(1_000, 10), row("append"), row("none", measured=Sample((0,)))])}
    assert shown.keys() == {"append", "targets"}
    assert ">none<" not in shown["append"]
