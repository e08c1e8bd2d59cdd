"""`pylog stats`, `compare` and `graduate`: what they print, their exit codes, and that they do what they say."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

import pylog
from pylog.tools.graduate import RECORD
from support.cli import call

# ---- stats -------------------------------------------------------------------------------------------------------------------


def test_stats_shows_sums_codecs_and_bars(shop: Path) -> None:
    done = call("stats", shop, "orders", "--partitions", "--segments", "--keys")
    assert (done.code, done.complaints) == (0, "")
    assert done.lines[0].split()[:5] == ["TOPIC", "PARTITIONS", "BATCHES", "RECORDS", "BYTES"]
    assert done.lines[1].split()[:4] == ["orders", "2", "3", "5"]
    assert "orders: batches by records, mean 1.7" in done.text
    assert "orders: keys: about 3 distinct of 4, 8 B; without a key: 1 record" in done.text
    bars = {line.split()[0]: line.count("█") for line in done.lines if "█" in line and line.split()[0] in ("1", "2")}
    assert bars == {"1": 20, "2": 40}
    assert "2024-01-31T15:00:00.000Z" in done.text


def test_stats_as_json_have_everything(shop: Path) -> None:
    done = call("stats", shop, "--json").json
    topics = {topic["topic"]: topic for topic in done["topics"]}
    orders = topics["orders"]
    assert (orders["records"], orders["batches"], orders["producers"]) == (5, 3, 0)
    assert orders["records_per_second"] == round(5 / (3 * 3600), 3)
    assert sum(span["records"] for span in orders["timeline"]) == 5
    assert [bar["batches"] for bar in orders["batch_records"]["histogram"]] == [1, 2]
    assert [segment["base_offset"] for segment in topics["prices"]["partitions"][0]["segments"]] == [0, 1, 2]
    assert "keys" not in orders
    lags = {(each["group"], each["topic"], each["partition"]): each["lag"] for each in done["groups"]}
    assert lags == {("shipping", "orders", 0): 4, ("billing", "orders", 0): 1, ("billing", "orders", 1): 0}


def test_stats_writes_a_page_in_place_of_an_old_one(shop: Path, tmp_path: Path) -> None:
    target = tmp_path / "report.html"
    target.write_text("old")
    done = call("stats", shop, "orders", "--html", target)
    assert (done.code, done.output) == (0, b"")
    assert f"wrote {target}" in done.complaints
    document = target.read_text()
    assert document.startswith("<!doctype html>")
    assert "orders" in document
    assert "prices" not in document
    assert call("stats", shop, "--html", target, "--json").json["topics"]
    assert "prices" in target.read_text()


@pytest.mark.parametrize(
    ("arguments", "code", "told"),
    [
        (["SHOP", "ordres"], 1, "has no topic 'ordres'"),
        (["SHOP/nothing"], 1, "there is no directory"),
        (["SHOP", "--html", "SHOP/nothing/report.html"], 1, "there is no directory"),
        (["SHOP", "--html", "SHOP/orders-0"], 2, "is not a regular file, so it is not replaced"),
        (["SHOP", "--htm", "x"], 2, "--htm"),
    ],
)
def test_stats_that_cannot_be_made_are_one_sentence(shop: Path, arguments: list[str], code: int, told: str) -> None:
    done = call("stats", *(each.replace("SHOP", str(shop)) for each in arguments))
    assert (done.code, told in done.complaints) == (code, True)
    assert done.complaints.count("\n") == 1


@pytest.mark.damaged("a batch is altered")
def test_stats_leave_out_damaged_files_and_say_so(shop: Path) -> None:
    path = shop / "orders-0" / f"{0:020d}.log"
    data = bytearray(path.read_bytes())
    data[70] ^= 1
    path.write_bytes(data)
    done = call("stats", shop, "orders", "--json")
    assert done.code == 1
    assert "1 damaged range of bytes, the first one at position 0" in done.complaints
    (damaged,) = done.json["topics"][0]["partitions"][0]["damaged"]
    assert (damaged["offset"], damaged["next_offset"], damaged["path"]) == (0, 2, str(path))
    assert done.json["topics"][0]["records"] == 3


# ---- compare -----------------------------------------------------------------------------------------------------------------


@pytest.fixture
def backup(shop: Path, tmp_path: Path) -> Path:
    return shutil.copytree(shop, tmp_path / "backup")


def test_directories_that_hold_the_same_are_told_so(shop: Path, backup: Path) -> None:
    done = call("compare", shop, backup)
    assert (done.code, done.complaints) == (0, "")
    assert done.lines[-1].startswith("the same: 4 topics on both sides, ")
    assert call("compare", shop, backup, "--bytes").code == 0
    assert call("compare", shop, backup, "--json").json["same"]


def test_differences_are_reported_with_their_offset_and_code_1(shop: Path, backup: Path) -> None:
    with pylog.open(shop) as one, pylog.open(backup) as other:
        one.log("orders", 1).append_many([(b"k", b"x", [], 7)] * 2)
        other.log("orders", 1).append_many([(b"k", b"y", [], 7), (None, b"x", [], 7), (None, b"more", [], 7)])
        other.alter_topic("old", retention_ms=5)
        other.create_topic("new")
    done = call("compare", shop, backup)
    assert done.code == 1
    assert "topic new: only right" in done.lines
    assert "topic old: retention.ms is 3600000 left, 5 right" in done.lines
    assert "orders, partition 1: 1 equal record, 2 different (key: 1, only right: 1, value: 1)" in done.lines
    place = done.lines.index("  offset 1: value")
    assert done.lines[place : place + 3] == ["  offset 1: value", "  offset 2: key", "  offset 3: only right"]
    assert done.lines[-1].startswith("not the same")
    partition = call("compare", shop, backup, "--topic", "orders", "--json").json["topics"][0]["partitions"][1]
    assert partition["first"][0] == {"offset": 1, "what": ["value"]}
    assert (partition["left"]["end_offset"], partition["right"]["end_offset"]) == (3, 4)


def test_two_topics_of_one_directory_are_compared(shop: Path) -> None:
    assert call("copy", shop, "orders", shop, "--as", "copy").code == 0
    assert call("compare", shop, shop, "--topic", "orders", "--as", "copy").code == 0
    done = call("compare", shop, shop, "--topic", "orders", "--as", "prices")
    assert done.code == 1
    assert "topic orders and prices: partition 1 only left" in done.lines


@pytest.mark.parametrize(
    ("arguments", "code", "told"),
    [
        (["--as", "copy"], 2, "--as requires exactly one --topic"),
        (["--topic", "nothing"], 1, "has a topic 'nothing'"),
        (["--topic", "orders", "--as", "nothing"], 1, "no topic 'nothing'"),
    ],
)
def test_a_comparison_that_makes_no_sense_is_refused(shop: Path, arguments: list[str], code: int, told: str) -> None:
    done = call("compare", shop, shop, *arguments)
    assert (done.code, told in done.complaints) == (code, True)


# ---- graduate ----------------------------------------------------------------------------------------------------------------


def test_a_dry_run_says_everything_and_writes_nothing(shop: Path) -> None:
    before = sorted(path.name for path in shop.iterdir())
    done = call("graduate", shop, "--dry-run", "--node-id", 5)
    assert done.code == 0
    assert "  node.id=5" in done.lines
    assert "  offsets.topic.num.partitions=2" in done.lines
    assert any(line.startswith("  bootstrap.checkpoint  (") for line in done.lines)
    assert any(line.startswith("Note: topic old: retention will delete 3 segments") for line in done.lines)
    assert sorted(path.name for path in shop.iterdir()) == before
    assert call("graduate", shop, "--dry-run", "--json").json["executed"] is False


def test_without_yes_nothing_is_written(shop: Path) -> None:
    done = call("graduate", shop)
    assert done.code == 2
    assert "belongs to a Kafka broker afterwards" in done.complaints
    assert not (shop / "meta.properties").exists()


@pytest.mark.slow
def test_a_directory_graduates_and_comes_back(shop: Path) -> None:
    done = call("graduate", shop, "--yes", "--json").json
    assert done["executed"]
    assert {each["path"] for each in done["files"]} == {"bootstrap.checkpoint", "meta.properties"}
    assert json.loads((shop / RECORD).read_text())["files"] == ["bootstrap.checkpoint", "meta.properties"]
    again = call("graduate", shop, "--yes")
    assert (again.code, "belongs to a broker already" in again.complaints) == (1, True)
    assert call("graduate", shop, "--undo").code == 2
    assert (shop / "meta.properties").exists()
    assert call("graduate", shop, "--undo", "--yes").lines == ["Removed 2 files. The directory belongs to pylog again."]
    assert not (shop / "meta.properties").exists()
    assert call("graduate", shop, "--undo", "--yes").code == 1


@pytest.mark.parametrize(
    ("arguments", "code", "told"),
    [
        (["--undo", "--dry-run"], 2, "cannot be combined"),
        (["--node-id", "-1", "--yes"], 2, "node_id=-1"),
        (["--node-id", "one"], 2, "--node-id"),
    ],
)
def test_a_graduation_that_makes_no_sense_is_refused(shop: Path, arguments: list[str], code: int, told: str) -> None:
    done = call("graduate", shop, *arguments)
    assert (done.code, told in done.complaints) == (code, True)
    assert not (shop / "meta.properties").exists()


def test_a_directory_that_another_process_writes_does_not_graduate(shop: Path) -> None:
    with pylog.open(shop):
        done = call("graduate", shop, "--yes")
    assert (done.code, "open" in done.complaints) == (3, True)
    assert not (shop / "meta.properties").exists()
