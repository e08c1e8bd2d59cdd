"""A log whose last batch cannot be recognised keeps its end: its groups are told of damage, and not of a truncation."""

from __future__ import annotations

from pathlib import Path

import pytest

import pylog
from pylog import OffsetsConfig
from pylog.groups.health import Verdict
from pylog.segment.names import DURABLE_POINT
from support.cli import call

pytestmark = pytest.mark.damaged("the last batch of a log is damaged")
GROUPS = {"before": 25, "next": 40, "inside": 45, "after": 50}
MAGIC = 16  # position in a batch


@pytest.fixture
def damaged(tmp_path: Path) -> Path:
    """Five batches of ten records; the magic byte of the last one is wrong."""
    with pylog.open(tmp_path, offsets=OffsetsConfig(topic_num_partitions=1)) as store:
        store.create_topic("orders")
        for _ in range(5):
            store.log("orders").append_many([b"paid"] * 10)
        for group, offset in GROUPS.items():
            store.offsets.commit(group, {("orders", 0): offset})
    file = tmp_path / "orders-0" / "00000000000000000000.log"
    content = bytearray(file.read_bytes())
    content[len(content) // 5 * 4 + MAGIC] ^= 8
    file.write_bytes(content)
    return tmp_path


@pytest.mark.parametrize("rules", ["pylog", "burrow"])
@pytest.mark.parametrize("mode", ["r", "rw"])
def test_groups_at_a_damaged_end_are_damaged_and_not_well_or_lost(damaged: Path, mode: str, rules: str) -> None:
    with pylog.open(damaged, mode=mode) as store:
        assert store.log("orders").end_offset == 50  # by pylog's header
        found = {name: store.group(name).health(rules=rules).partitions[0] for name in GROUPS}
        assert found["before"].verdict not in (Verdict.DAMAGED, Verdict.LOST)
        assert (found["after"].verdict, found["after"].lag_records) == (Verdict.OK, 0)  # it has read the damaged records
        for name in ("next", "inside"):
            row = found[name]
            assert row.verdict is Verdict.DAMAGED, (name, row)
            assert "has an unknown format" in row.why
            assert "truncated" not in row.why
            assert (row.lag_records, row.lag_seconds, row.catch_up_seconds) == (None, None, None)


@pytest.mark.parametrize("rules", ["pylog", "burrow"])
@pytest.mark.parametrize("mode", ["r", "rw"])
def test_without_a_header_a_log_ends_before_its_damage_and_groups_after_it_are_not_lost(
    damaged: Path, mode: str, rules: str
) -> None:
    (damaged / "orders-0" / DURABLE_POINT).unlink()
    with pylog.open(damaged, mode=mode) as store:
        assert store.log("orders").end_offset == 40
        found = {name: store.group(name).health(rules=rules).partitions[0] for name in GROUPS}
        for name in ("next", "inside", "after"):
            assert found[name].verdict is Verdict.DAMAGED, (name, found[name])
            assert "has an unknown format" in found[name].why
            assert "truncated" not in found[name].why


def test_each_command_tells_of_it(damaged: Path) -> None:
    done = call("stats", damaged, "orders", "--json")
    assert done.code == 1
    assert "1 damaged range of bytes" in done.complaints
    assert "run pylog verify" in done.complaints
    [orders] = done.json["topics"]
    assert [each["why"] for each in orders["partitions"][0]["damaged"]] == ["has an unknown format (magic byte)"]
    assert call("stats", damaged, "--html", damaged / "report.html").code == 1
    assert "has an unknown format" in (damaged / "report.html").read_text()
    described = call("describe", damaged, "orders", "--json").json["partitions"][0]
    assert (described["error"], len(described["damage"])) == (None, 1)
    text = call("metrics", damaged).text
    for group, verdict, value in (("next", "DAMAGED", 1), ("after", "LOST", 0)):
        assert f'group="{group}",verdict="{verdict}"}} {value}\n' in text
