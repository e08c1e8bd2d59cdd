"""Damage in an archived segment is told apart from damage in the directory: a repair of the directory does not change it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import pylog
from pylog.errors import InvalidArgumentError
from pylog.tools.repair import repair
from pylog.tools.verify import verify
from support.cli import call

TIERED: dict[str, Any] = {"remote_storage_enable": True, "local_retention_bytes": 0, "segment_bytes": 400, "retention_ms": -1}


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    """A store whose offsets 0 to 17 are only in its archive, of which offset 4 is damaged."""
    with pylog.open(tmp_path / "shop", archive=str(tmp_path / "archive")) as store:
        store.create_topic("orders", **TIERED)
        for _ in range(20):
            store.log("orders").append(b"x" * 80)
        store.tick()
        assert store.log("orders").local_start_offset == 18
    (archived,) = (tmp_path / "archive").rglob("00000000000000000004-*.log")
    damage(archived)
    return tmp_path / "shop"


def damage(log: Path) -> None:
    data = bytearray(log.read_bytes())
    data[100] ^= 0xFF
    log.write_bytes(data)


def test_the_advice_on_archived_damage_is_about_the_archive(shop: Path) -> None:
    found = verify(str(shop))
    assert [(each.first_offset, each.last_offset) for each in found.affected] == [(4, 4)]
    assert "pylog verify with the archive's URL" in found.affected[0].advice
    assert found.readable[0].ranges == ((0, 3), (5, 19))


@pytest.mark.parametrize("records", [False, True])
def test_an_object_that_is_missing_is_listed_once_on_every_route(tmp_path: Path, records: bool) -> None:
    with pylog.open(tmp_path / "shop", archive=str(tmp_path / "archive")) as store:
        store.create_topic("orders", **TIERED)
        for _ in range(20):
            store.log("orders").append(b"x" * 80)
        store.tick()
        store.archive()
    (missing,) = (tmp_path / "archive").rglob("00000000000000000004-*.log")
    missing.unlink()
    url, options = (tmp_path / "archive").as_uri(), ["--records"] * records
    for place, mode in ((tmp_path / "shop", "r"), (tmp_path / "shop", "rw"), (url, "r")):
        with pylog.open(place, mode) as store:
            assert [finding.path for finding in store.verify(records=records).findings] == [missing.as_uri()]
            of_local_files = [] if place != url else [missing.as_uri()]
            assert [finding.path for finding in store.check().findings] == of_local_files
    code, printed, _ = call("verify", tmp_path / "shop", "--json", *options)
    found = json.loads(printed)["affected"]
    assert (code, [each["file"] for each in found]) == (3, [missing.as_uri()])
    assert found[0]["advice"].startswith("check that the archive can be reached")
    assert call("verify", tmp_path / "shop", *options)[1].count(b"which are only in the archive: cannot read") == 1
    code, printed, _ = call("verify", url, "--json", "--deep", "--orphans")
    assert (code, [each["path"] for each in json.loads(printed)["findings"]]) == (1, [missing.as_uri()])
    assert json.loads(call("doctor", tmp_path / "shop", "--json")[1])["healthy"]  # it reads no archive


@pytest.mark.parametrize("policy", ["skip", "truncate", "quarantine"])
def test_a_repair_refuses_what_it_cannot_change(shop: Path, policy: str) -> None:
    with pytest.raises(InvalidArgumentError, match=r"offset 4.* pylog verify with the archive's URL names the object"):
        repair(str(shop), policy, execute=True)
    assert [each.name for each in shop.parent.iterdir() if "repair" in each.name] == []


def test_damage_in_the_directory_is_repaired_beside_that_of_the_archive(shop: Path) -> None:
    damage(shop / "orders-0" / "00000000000000000018.log")
    (plan,) = repair(str(shop), "skip").plans
    text = "; ".join(plan.sentences())
    assert "offsets 0 to 17 stay in the archive" in text
    assert [(lost.first_offset, lost.last_offset) for lost in plan.lost] == [(18, 18)]
    with pytest.raises(InvalidArgumentError, match="are in the archive"):
        repair(str(shop), "quarantine", whole=True)
