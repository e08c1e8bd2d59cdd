"""Each public method that reads is right next to a writer that rolls, trims, truncates, compacts and alters options."""

from __future__ import annotations

import inspect
from pathlib import Path

import pytest

import pylog
from support.campaign.beside import CONSUMER, LOG, STORE, Read, read_beside

SECONDS = 4.0


@pytest.mark.parametrize(("of", "table"), [(pylog.Log, LOG), (pylog.Store, STORE), (pylog.Consumer, CONSUMER)])
def test_each_public_method_is_read_beside_a_writer_or_has_a_reason_not_to_be(of: type, table: dict[str, Read | str]) -> None:
    """A new method needs an entry in tests/support/campaign/beside.py."""
    assert set(table) == {name for name, _ in inspect.getmembers(of) if not name.startswith("_")}


@pytest.mark.parametrize("elsewhere", [False, True], ids=["in this process", "in another process"])
@pytest.mark.pair("scan and follow", "roll")
@pytest.mark.pair("scan and follow", "compaction")
@pytest.mark.pair("scan and follow", "truncation")
@pytest.mark.pair("scan and follow", "delete_records")
@pytest.mark.pair("scan and follow", "second process")
@pytest.mark.pair("time search", "roll")
@pytest.mark.pair("time search", "compaction")
@pytest.mark.pair("time search", "truncation")
@pytest.mark.pair("time search", "second process")
def test_every_way_to_read_is_right_beside_a_writer(tmp_path: Path, elsewhere: bool) -> None:
    done = read_beside(tmp_path, 1, SECONDS, elsewhere=elsewhere)
    assert not done["violations"], done["violations"][0]
    assert done["calls"] > 100
