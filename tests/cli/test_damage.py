"""`pylog dump`, `verify`, `repair`."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

import pylog
from support.cli import call
from support.golden import data as golden_data
from support.golden.data import CorruptVariant


def variant(name: str) -> CorruptVariant:
    return next(found for found in golden_data.corrupt_variants() if (found.base, found.variant) == ("mixed-codecs", name))


@pytest.fixture
def damaged(tmp_path: Path) -> Path:
    """A directory with one partition, `mixed-codecs-0`, of whose offsets 139 to 147 are damaged."""
    return variant("flip-crc-middle").copy(tmp_path / "data")


def flipped(shop: Path) -> Path:
    log = next(iter(sorted((shop / "orders-0").glob("*.log"))))
    data = bytearray(log.read_bytes())
    data[65] ^= 1
    log.write_bytes(data)
    return log


# ---- dump --------------------------------------------------------------------------------------------------------------------


def documents(text: str) -> list[dict[str, object]]:
    return [json.loads(line) for line in text.splitlines()]


def test_a_log_is_dumped_as_json_lines(shop: Path) -> None:
    found = documents(call("dump", shop / "orders-0" / f"{0:020d}.log", "--records").text)
    assert [document["kind"] for document in found] == ["file", "batch", "record", "record", "batch", "record", "record"]
    assert found[2]["key"] == "42"
    assert found[2]["headers"] == [{"key": "source", "value": "web"}]
    assert found[6] | {"value": {"base64": "/wA="}, "key": None} == found[6]


def test_everything_in_a_directory_is_dumped(shop: Path) -> None:
    found = documents(call("dump", shop / "prices-0").text)
    kinds = {str(document["kind"]) for document in found}
    assert {"file", "batch", "seal", "slot", "epoch", "partition"} <= kinds
    groups = documents(call("dump", shop / "__consumer_offsets-0", shop / "__consumer_offsets-1", "--records").text)
    keys = [document["key"] for document in groups if document["kind"] == "record"]
    assert {"group": "billing", "topic": "orders", "partition": 1} in [key["data"] for key in keys if isinstance(key, dict)]


def test_damage_is_a_line_and_its_records_are_not_shown(damaged: Path) -> None:
    log = damaged / "mixed-codecs-0" / "00000000000000000114.log"
    found = documents(call("dump", log, "--records").text)
    (told,) = [document for document in found if document["kind"] == "damage"]
    assert (told["offset"], told["next_offset"], told["position"]) == (139, 148, 1993)
    assert not {139, 147} & {document.get("offset") for document in found if document["kind"] == "record"}


def test_a_dump_like_kafkas_is_kafkas_to_the_byte(monkeypatch: pytest.MonkeyPatch) -> None:
    (partition,) = golden_data.case("4.3.0", "mixed-codecs").partitions
    monkeypatch.chdir(partition.directory)
    names = sorted(path.name for path in partition.directory.glob("*.log"))
    expected = [f"Dumping {piece}" for piece in partition.of.text(partition.entry["dump"]).split("Dumping ")[1:]]
    logs = "".join(piece for piece in expected if piece.partition("\n")[0].endswith(".log"))
    done = call("dump", "--like-kafka", "--print-data-log", *names)
    assert done.code == 0
    told = logs.split("Non-consecutive")[0]
    assert done.output.decode().startswith(told)
    assert done.complaints.count("Non-consecutive offsets in") == logs.count("Non-consecutive offsets in")


def test_on_a_terminal_a_dump_like_kafkas_is_escaped(shop: Path) -> None:
    with pylog.open(shop) as store:
        store.log("orders", 1).append(b"\x1b[31mred", timestamp=1_706_702_400_000)
    log = shop / "orders-1" / f"{0:020d}.log"
    assert "\x1b[31m" not in call("dump", "--like-kafka", "--print-data-log", log, terminal=True).text
    assert "\x1b[31m" in call("dump", "--like-kafka", "--print-data-log", log).text


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("--deep-iteration",), "require --like-kafka"),
        (("--like-kafka", "--records"), "cannot be combined with --like-kafka"),
        (("--like-kafka", "--max-bytes", "-1"), "max_bytes=-1 is negative"),
        (("--decoder", "xml"), "Invalid value"),
    ],
)
def test_options_that_do_not_go_together_are_refused(shop: Path, arguments: tuple[str, ...], sentence: str) -> None:
    done = call("dump", *arguments, shop / "orders-0" / f"{0:020d}.log")
    assert done.code == 2
    assert sentence in done.complaints


def test_a_file_that_is_not_there_or_of_no_known_kind_is_said(shop: Path) -> None:
    assert "there is no file" in call("dump", shop / "orders-0" / f"{7:020d}.log").complaints
    assert call("dump", shop / "pylog.json").code == 2
    done = call("dump", "--like-kafka", shop / "pylog.json")
    assert (done.code, done.complaints) == (0, f"Ignoring unknown file {shop}/pylog.json\n")


# ---- verify ------------------------------------------------------------------------------------------------------------------


def test_a_sound_directory_is_said_to_be_sound(shop: Path) -> None:
    done = call("verify", shop)
    assert done.code == 0
    assert done.text.startswith("no damage found: ")


def test_damage_is_reported_with_its_place_its_offsets_and_what_to_do(damaged: Path) -> None:
    done = call("verify", damaged)
    assert done.code == 1
    log = str(damaged / "mixed-codecs-0" / "00000000000000000114.log")
    assert done.lines[3].split() == ["corrupt", log, "1993", "328", "139", "147"]
    assert f"pylog repair skip {damaged}/mixed-codecs-0" in done.text
    assert "readable offsets: 0 to 138, 148 to 204" in done.text


def test_a_verification_as_json_has_a_verdict_for_each_file(damaged: Path) -> None:
    done = call("verify", damaged / "mixed-codecs-0", "--json", "--records")
    assert (done.code, done.json["ok"], done.json["exit_code"]) == (1, False, 1)
    verdicts = {Path(each["path"]).name: each["verdict"] for each in done.json["files"]}
    assert verdicts.pop("00000000000000000114.log") == "corrupt"
    assert set(verdicts.values()) == {"good"}
    assert done.json["readable"] == [{"directory": str(damaged / "mixed-codecs-0"), "ranges": [[0, 138], [148, 204]]}]


def test_verifying_a_missing_topic_ends_with_3_and_a_wrong_rate_with_2(tmp_path: Path) -> None:
    done = call("verify", tmp_path / "nothing")
    assert done.code == 3
    assert "there is no directory" in done.complaints
    assert call("verify", tmp_path, "--rate-limit", "0").code == 2


# ---- repair ------------------------------------------------------------------------------------------------------------------


def test_a_repair_is_only_planned_until_it_is_wanted(damaged: Path) -> None:
    done = call("repair", "truncate", damaged)
    assert done.code == 1
    assert "offsets 148 to 204 are lost, ALTHOUGH THEY CAN BE READ NOW" in done.text
    assert done.lines[-1] == "nothing was done; give --execute to repair"
    assert call("verify", damaged).code == 1


@pytest.mark.parametrize("flag", ["--execute", "--yes"])
def test_a_repair_is_done_and_leaves_a_backup(damaged: Path, tmp_path: Path, flag: str) -> None:
    done = call("repair", "skip", damaged, flag, "--backup", tmp_path / "backup")
    assert done.code == 0
    assert done.lines[-1] == f"done; copies of the changed files are in {tmp_path}/backup"
    assert (tmp_path / "backup" / "mixed-codecs-0" / "00000000000000000114.log").exists()
    assert call("verify", damaged).code == 0
    assert call("repair", "skip", damaged).text == "no damage found; nothing to repair\n"


def test_a_repair_as_json_names_the_lost_offsets(damaged: Path) -> None:
    done = call("repair", "quarantine", damaged, "--json")
    (plan,) = done.json["partitions"]
    assert (done.code, done.json["executed"], done.json["backup"]) == (1, False, None)
    assert plan["lost"][0] == {"first_offset": 139, "last_offset": 147, "readable": False}
    assert [(each["size"], each["new_size"]) for each in plan["files"]] == [(4094, 61)]


def test_a_store_that_is_open_is_not_repaired(shop: Path) -> None:
    flipped(shop)
    with pylog.open(shop):
        done = call("repair", "skip", shop, "--execute")
    assert done.code == 3
    assert "open for writing" in done.complaints


def test_a_policy_that_is_none_and_whole_without_quarantine_are_refused(damaged: Path) -> None:
    assert call("repair", "mend", damaged).code == 2
    assert "requires the policy quarantine" in call("repair", "skip", damaged, "--whole").complaints


def test_a_whole_partition_is_put_aside(damaged: Path, tmp_path: Path) -> None:
    arguments = ("--whole", "--execute", "--backup", tmp_path / "backup")
    assert call("repair", "quarantine", damaged / "mixed-codecs-0", *arguments).code == 0
    assert len(list((tmp_path / "backup" / "mixed-codecs-0").glob("*.log"))) == 4
    shutil.rmtree(tmp_path / "backup")
    assert call("verify", damaged).code == 0
