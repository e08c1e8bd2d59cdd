"""`pylog ops write`: the files that pylog ships for monitoring systems, written where they are wanted."""

from __future__ import annotations

import json
import re
from pathlib import Path

from pylog.cli.ops import shipped
from pylog.metrics import METRICS
from support.cli import call

HOW_TO = Path(__file__).resolve().parents[2] / "docs" / "how-to" / "production.md"


def test_both_files_are_written_as_they_are_shipped(tmp_path: Path) -> None:
    for what, name in (("rules", "pylog-rules.yml"), ("dashboard", "pylog-dashboard.json")):
        assert call("ops", "write", what, tmp_path).code == 0
        assert (tmp_path / name).read_bytes() == shipped(name)
        assert call("ops", "write", what, tmp_path).code == 0  # once more changes nothing


def test_a_file_that_was_edited_is_not_replaced_without_force(tmp_path: Path) -> None:
    path = tmp_path / "pylog-rules.yml"
    path.write_text("groups: []\n")
    refused = call("ops", "write", "rules", tmp_path)
    assert refused.code == 2
    assert "--force" in refused.complaints
    assert path.read_text() == "groups: []\n"
    assert call("ops", "write", "rules", tmp_path, "--force").code == 0
    assert path.read_bytes() == shipped("pylog-rules.yml")


def test_a_directory_that_does_not_exist_is_named(tmp_path: Path) -> None:
    done = call("ops", "write", "dashboard", tmp_path / "nowhere")
    assert done.code == 2
    assert str(tmp_path / "nowhere") in done.complaints


def test_rules_and_dashboard_use_metrics_that_exist() -> None:
    for name in ("pylog-rules.yml", "pylog-dashboard.json"):
        used = {each.removesuffix("_total") for each in re.findall(r"pylog_(\w+)[\[{ ]", shipped(name).decode())}
        assert len(used) > 5
        assert sorted(used - METRICS.keys()) == []


def test_the_dashboard_has_a_description_for_each_panel_and_no_panels_that_overlap() -> None:
    panels = json.loads(shipped("pylog-dashboard.json"))["panels"]
    assert [each["title"] for each in panels if each["type"] != "row" and not each["description"]] == []
    cells = [
        (x, y)
        for place in (each["gridPos"] for each in panels)
        for x in range(place["x"], place["x"] + place["w"])
        for y in range(place["y"], place["y"] + place["h"])
    ]
    assert len(cells) == len(set(cells))
    assert max(x for x, _ in cells) < 24


def test_the_how_to_says_of_each_alert_what_it_means() -> None:
    text = HOW_TO.read_text()
    alerts = re.findall(r"alert: (\w+)", shipped("pylog-rules.yml").decode())
    assert [each for each in alerts if f"`{each}`" not in text] == []
