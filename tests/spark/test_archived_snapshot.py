"""A Spark read with `snapshot` of an archive whose catalogue is older than its manifests has whole transactions."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

import pylog
from pylog.spark.options import read_options
from pylog.spark.planner import plan
from pylog.spark.reader import read_slice


def transfer(store: pylog.Store, amount: int) -> None:
    with store.transaction("bank") as transaction:
        transaction.append("accounts", b"%d" % -amount, partition=0)
        transaction.append("accounts", b"%d" % amount, partition=1)


def values(options: dict[str, str]) -> list[int]:
    parsed = read_options(options)
    batches = [batch for part in plan(parsed) for batch in read_slice(part, parsed.scan)]
    return sorted(int(value) for batch in batches for value in batch.column("value").to_pylist())


@pytest.mark.pair("aborted transactions", "Spark")
@pytest.mark.parametrize("has_catalogue", ["an old one", "none"])
def test_a_snapshot_of_an_archive_reaches_beyond_an_old_catalogue(tmp_path: Path, has_catalogue: str) -> None:
    archive = tmp_path / "archive"
    with pylog.open(tmp_path / "shop") as store:
        store.create_topic("accounts", 2)
        transfer(store, 1)
        store.archive(str(archive), include_active=True)
        old = tmp_path / "old"
        shutil.copytree(archive / "pylog" / "catalogue", old)
        transfer(store, 2)
        store.archive(include_active=True)
    shutil.rmtree(archive / "pylog" / "catalogue")
    if has_catalogue == "an old one":
        shutil.copytree(old, archive / "pylog" / "catalogue")
    options = {"path": f"file://{archive}", "subscribe": "accounts"}
    assert values(options | {"snapshot": "true"}) == [-2, -1, 1, 2]
    if has_catalogue == "an old one":
        assert values(options) == [-1, 1]  # without it, the plan has what the catalogue has
