"""Each public method, called by three threads at once, next to each change of a log, by this process and another one.

The methods and their judges are those of the campaign `./dev torture beside`. tests/campaign/test_beside.py fails if a public
method has neither a judge there nor a reason to have none.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from support.campaign.beside import CHANGES, READS, read_beside
from support.campaign.beside_calls import CALLS
from support.campaign.beside_together import THREADS, call_beside

pytestmark = pytest.mark.slow
CELL_SECONDS = 0.06  # of one method next to one change; each is called once at least
BY = pytest.mark.parametrize("elsewhere", [False, True], ids=["in this process", "in another process"])


@BY
@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.pair("scan and follow", "option change", "second process")
@pytest.mark.pair("time search", "option change")
def test_every_method_that_reads_is_right_next_to_each_change(tmp_path: Path, change: str, elsewhere: bool) -> None:
    done = read_beside(tmp_path, 7, CELL_SECONDS * len(READS), elsewhere=elsewhere, only=change)
    assert not done["violations"], done["violations"][0]
    assert done["calls"] >= len(READS)


@BY
@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.pair("close", "option change", "compaction")
@pytest.mark.pair("truncation", "compaction", "second process")
@pytest.mark.pair("delete_records", "second process")
def test_every_method_that_changes_something_is_right_next_to_each_change(tmp_path: Path, change: str, elsewhere: bool) -> None:
    done = call_beside(tmp_path, 7, elsewhere=elsewhere, only=change, seconds=CELL_SECONDS)
    assert not done["violations"], done["violations"][0]
    assert done["calls"] >= THREADS * len(CALLS)
    assert done["steps"] > 0
