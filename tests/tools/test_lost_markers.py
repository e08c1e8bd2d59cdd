"""A repair says which transactions lose their end, and what committed readers see then: exactly what they see afterwards."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

import pylog
from pylog.record.batch import scan_batches
from pylog.record.control_batch import control_record
from pylog.record.format import ATTRIBUTES, BASE_OFFSET, CONTROL_BIT, POSITION, PRODUCER_ID, SIZE
from pylog.tools.lost_markers import LostEnd
from pylog.tools.repair import Repair, repair
from support.golden import data as golden_data

FIRST = f"{0:020}.log"
ABORT, COMMIT = False, True


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """What a broker wrote in transactions of several producers, some aborted, some committed."""
    (txn,) = (each for each in golden_data.case("4.3.0", "txn").partitions if each.tp == "txn-0")
    shutil.copytree(txn.directory, tmp_path / "data" / "txn-0")
    return tmp_path / "data"


def markers(path: Path) -> Iterator[tuple[int, int, int, int, bool]]:
    """Of each marker: offset, producer, position, size, and whether it commits."""
    data = np.frombuffer(path.read_bytes(), np.uint8)
    table = scan_batches(data).table
    for batch in np.flatnonzero(table[ATTRIBUTES] & CONTROL_BIT).tolist():
        record = control_record(data, table, batch)
        assert record is not None
        offset, producer, position, size = (int(table[row, batch]) for row in (BASE_OFFSET, PRODUCER_ID, POSITION, SIZE))
        yield offset, producer, position, size, record.name == "COMMIT"


def spoil(path: Path, position: int) -> None:
    data = bytearray(path.read_bytes())
    data[position] ^= 1
    path.write_bytes(data)


def committed(root: Path) -> list[int]:
    """The offsets that a committed reader gets."""
    with pylog.open(root, "r") as store:
        return [record.offset for record in store.log("txn").records(isolation_level="read_committed")]


def ends(done: Repair) -> list[LostEnd]:
    return [lost for plan in done.plans for lost in plan.lost_ends]


def is_followed(path: Path, *, by: bool) -> Callable[[tuple[int, int, int, int, bool]], bool]:
    """Whether the producer's next marker in the file ends another transaction so."""
    every = list(markers(path))

    def judged(marker: tuple[int, int, int, int, bool]) -> bool:
        later = (other for other in every if other[1] == marker[1] and other[0] > marker[0])
        return next((other[4] for other in later), None) == by

    return judged


@pytest.mark.parametrize("now", [ABORT, COMMIT])
def test_a_damaged_marker_leaves_its_transaction_to_the_producers_next_one(root: Path, now: bool) -> None:
    path = root / "txn-0" / FIRST
    followed = is_followed(path, by=now)
    offset, producer, position, size, _ = next(marker for marker in markers(path) if followed(marker) and marker[4] != now)
    whole = set(committed(root))
    spoil(path, position + size - 1)
    (told,) = ends(repair(str(root), "skip"))
    assert (told.producer_id, told.marker_offset, told.committed, told.becomes) == (producer, offset, None, now)
    assert told.first_offset < offset
    assert f"at offset {offset} is removed" in str(told)
    assert ("read_committed readers see its" if now else "read_committed readers do not see its") in str(told)
    assert ends(repair(str(root), "skip", execute=True)) == [told]
    changed = whole ^ set(committed(root))
    assert changed
    assert min(changed) == told.first_offset
    assert max(changed) < offset


def test_a_transaction_without_a_marker_after_it_counts_as_open(root: Path) -> None:
    """All that is behind the end of the first segment is cut off with what ended the transaction that began there."""
    second = sorted((root / "txn-0").glob("*.log"))[1]
    spoil(second, 70)
    found = ends(repair(str(root), "truncate"))
    done = repair(str(root), "truncate", execute=True)
    assert ends(done) == found
    assert {(lost.becomes, lost.committed) for lost in found} == {(None, found[0].committed)}
    assert "committed readers stop before that offset" in str(found[0])
    with pylog.open(root, "r") as store:
        log = store.log("txn")
        assert log.stable_offset == min(lost.first_offset for lost in found) < log.end_offset
    assert any(str(found[0]) in told for plan in done.plans for told in plan.sentences())


def test_a_repair_that_keeps_every_marker_says_nothing_of_transactions(root: Path) -> None:
    path = root / "txn-0" / FIRST
    table = scan_batches(np.frombuffer(path.read_bytes(), np.uint8)).table
    spoil(path, int(table[POSITION, 3] + table[SIZE, 3]) - 1)  # a batch of records
    done = repair(str(root), "skip")
    assert done.plans
    assert ends(done) == []


def test_a_transaction_that_goes_with_its_marker_loses_no_end(root: Path) -> None:
    first, second, *_ = sorted((root / "txn-0").glob("*.log"))
    _, _, position, size, _ = next(markers(first))
    spoil(first, position + size - 1)
    behind = int(second.stem)
    assert [lost for lost in ends(repair(str(root), "quarantine")) if lost.marker_offset < behind] == []
