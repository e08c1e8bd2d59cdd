"""A repair says which transactions lose their end, and what committed readers see then: exactly what they see afterwards."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path

import numpy as np
import pytest

import pylog
from pylog.cli.exits import OK
from pylog.record.batch import scan_batches
from pylog.record.control_batch import control_record
from pylog.record.format import ATTRIBUTES, BASE_OFFSET, CONTROL_BIT, POSITION, PRODUCER_ID, SIZE
from pylog.tools.lost_markers import LostEnd
from pylog.tools.repair import Repair, repair
from support.cli import call
from support.golden import data as golden_data
from support.refusals import listing

FIRST = f"{0:020}.log"
ABORT, COMMIT = False, True
Marker = tuple[int, int, int, int, bool]  # offset, producer, position, size, and whether it commits


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """What a broker wrote in transactions of several producers, some aborted, some committed."""
    (txn,) = (each for each in golden_data.case("4.3.0", "txn").partitions if each.tp == "txn-0")
    shutil.copytree(txn.directory, tmp_path / "data" / "txn-0")
    return tmp_path / "data"


def markers(path: Path) -> Iterator[Marker]:
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


def is_followed(path: Path, *, by: bool) -> Callable[[Marker], bool]:
    """Whether the producer's next marker in the file ends another transaction so."""
    every = list(markers(path))

    def judged(marker: Marker) -> bool:
        later = (other for other in every if other[1] == marker[1] and other[0] > marker[0])
        return next((other[4] for other in later), None) == by

    return judged


def spoiled(path: Path, marker: Marker) -> None:
    _, _, position, size, _ = marker
    spoil(path, position + size - 1)


@pytest.mark.parametrize("now", [ABORT, COMMIT])
def test_a_damaged_marker_would_leave_its_transaction_to_the_producers_next_one(root: Path, now: bool) -> None:
    path = root / "txn-0" / FIRST
    followed = is_followed(path, by=now)
    marker = next(marker for marker in markers(path) if followed(marker) and marker[4] != now)
    offset, producer, *_ = marker
    spoiled(path, marker)
    (told,) = ends(repair(str(root), "skip"))
    assert (told.producer_id, told.marker_offset, told.committed, told.becomes) == (producer, offset, None, now)
    assert told.first_offset < offset
    assert f"at offset {offset} is removed" in str(told)
    assert ("read_committed readers see its" if now else "read_committed readers do not see its") in str(told)


def test_no_outcome_is_guessed(root: Path) -> None:
    path = root / "txn-0" / FIRST
    spoiled(path, next(marker for marker in markers(path) if is_followed(path, by=ABORT)(marker) and marker[4]))
    before = listing(root / "txn-0")
    with pytest.raises(pylog.InvalidArgumentError, match="--lost-markers commit, or --lost-markers abort"):
        repair(str(root), "skip", execute=True)
    with pytest.raises(pylog.InvalidArgumentError, match="lost_markers='maybe' is not one of commit, abort"):
        repair(str(root), "skip", execute=True, lost_markers="maybe")
    assert listing(root / "txn-0") == before
    assert list(root.parent.iterdir()) == [root]


@pytest.mark.slow
@pytest.mark.parametrize("outcome", ["commit", "abort"])
def test_a_marker_takes_the_place_of_each_damaged_one(root: Path, tmp_path: Path, outcome: str) -> None:
    """With the outcome that it had, all is as before; with the other one, only the transaction's own records change."""
    whole = committed(root)
    path, ended = root / "txn-0" / FIRST, 0
    for number, marker in enumerate(islice(markers(path), 10)):
        offset, producer, _, _, was_commit = marker
        copy = tmp_path / str(number) / "data"
        shutil.copytree(root, copy)
        spoiled(copy / "txn-0" / FIRST, marker)
        (plan,) = repair(str(copy), "skip", execute=True, lost_markers=outcome).plans
        seen = committed(copy)
        changed = set(whole) ^ set(seen)
        if was_commit == (outcome == "commit"):
            assert seen == whole
        elif plan.markers:
            assert min(changed) == plan.lost_ends[0].first_offset
            assert max(changed) < offset
        assert [(each.offset, each.producer_id) for each in plan.markers] == [(offset, producer)] * len(plan.lost_ends)
        ended += len(plan.markers)
        assert all(str(each) in plan.sentences() for each in plan.markers)
        with pylog.open(copy, "r") as store:
            assert store.verify().findings == ()
            assert store.log("txn").stable_offset == store.log("txn").end_offset
        assert repair(str(copy), "skip").plans == ()
    assert ended > 5


def test_without_an_outcome_transactions_whose_end_is_cut_off_would_be_open(root: Path) -> None:
    """All that is behind the end of the first segment is cut off with what ended the transaction that began there."""
    second = sorted((root / "txn-0").glob("*.log"))[1]
    spoil(second, 70)
    (plan,) = repair(str(root), "truncate").plans
    assert plan.lost_ends
    assert {(lost.becomes, lost.committed) for lost in plan.lost_ends} == {(None, plan.lost_ends[0].committed)}
    assert "committed readers stop before that offset" in str(plan.lost_ends[0])
    assert str(plan.lost_ends[0]) in plan.sentences()


@pytest.mark.parametrize("policy", ["truncate", "quarantine"])
@pytest.mark.parametrize("other", ["commit", "abort"])
def test_a_marker_that_can_be_read_keeps_its_outcome_when_it_is_cut_off(root: Path, policy: str, other: str) -> None:
    whole = committed(root)
    second = sorted((root / "txn-0").glob("*.log"))[1]
    spoil(second, 70)
    (plan,) = repair(str(root), policy, execute=True, lost_markers=other).plans
    assert [each.committed for each in plan.markers] == [lost.committed for lost in plan.lost_ends]
    assert all(lost.committed is not None for lost in plan.lost_ends)
    gone = [range(lost.first_offset, 1 + (lost.last_offset or plan.end_offset)) for lost in plan.lost]
    assert committed(root) == [offset for offset in whole if not any(offset in lost for lost in gone)]
    with pylog.open(root, "r") as store:
        log = store.log("txn")
        assert (log.stable_offset, log.end_offset) == (plan.new_end_offset, plan.new_end_offset)
        assert store.verify().findings == ()


@pytest.mark.parametrize("byte", [0, 6])
def test_a_marker_whose_offset_is_damaged_is_replaced_in_its_place(root: Path, byte: int) -> None:
    path = root / "txn-0" / FIRST
    marker = next(marker for marker in markers(path) if is_followed(path, by=ABORT)(marker) and marker[4])
    whole = committed(root)
    spoil(path, marker[2] + byte)
    (plan,) = repair(str(root), "skip", execute=True, lost_markers="commit").plans
    assert [each.offset for each in plan.markers] == [marker[0]]
    assert committed(root) == whole


# ---- two damaged markers in one range ------------------------------------------------------------------------------------------

LENGTH, MAGIC, PRODUCER, LAST = 11, 16, 50, 77  # bytes of a marker: with one of the first three altered, its producer is unknown
ALTERED = [(LAST, LAST), (LAST, LENGTH), (LENGTH, LAST), (MAGIC, MAGIC), (PRODUCER, PRODUCER)]


@pytest.fixture
def pairs(tmp_path: Path) -> Path:
    """Two producers, whose transactions end next to each other: both commit, one aborts, the other one, then a plain record."""
    path = tmp_path / "pairs"
    with pylog.open(path, transactions=pylog.TransactionsConfig(topic_num_partitions=1)) as store:
        store.create_topic("txn")
        for outcomes in ((COMMIT, COMMIT), (ABORT, COMMIT), (COMMIT, ABORT)):
            opened = [store.transaction(name) for name in "ab"]
            for transaction in opened * 2:  # with several batches each, so that each has a marker
                transaction.append("txn", b"x", partition=0)
                transaction.flush()
            for transaction, commits in zip(opened, outcomes, strict=True):
                transaction.commit() if commits else transaction.abort()
        store.log("txn").append(b"plain")
    return path


def alter(root: Path, first: int, at: tuple[int, int]) -> list[Marker]:
    """Alters a byte in each of two markers that follow each other. Returns the markers."""
    path = root / "txn-0" / FIRST
    two = list(markers(path))[first : first + 2]
    assert two[0][2] + two[0][3] == two[1][2]
    for (_, _, position, _, _), byte in zip(two, at, strict=True):
        spoil(path, position + byte)
    return two


@pytest.mark.parametrize("first", [0, 2, 4])
@pytest.mark.parametrize("at", ALTERED)
def test_two_damaged_markers_in_a_row_are_found_by_all_that_read_them(pairs: Path, first: int, at: tuple[int, int]) -> None:
    alter(pairs, first, at)
    with pytest.raises(pylog.CorruptionError):
        committed(pairs)
    with pylog.open(pairs, "r") as store:
        assert store.verify().findings != ()


@pytest.mark.parametrize("outcome", ["commit", "abort"])
@pytest.mark.parametrize("first", [0, 2, 4])
@pytest.mark.parametrize("at", ALTERED)
def test_each_of_two_damaged_markers_in_a_row_gets_a_marker_in_its_place(
    pairs: Path, first: int, at: tuple[int, int], outcome: str
) -> None:
    """Whatever can be read of them. The transactions of the last two may be open for all that the log says: it is told so."""
    whole = committed(pairs)
    two = alter(pairs, first, at)
    (refused,) = repair(str(pairs), "skip", execute=True).refused
    assert "--lost-markers commit, or --lost-markers abort" in refused.why
    (plan,) = repair(str(pairs), "skip", execute=True, lost_markers=outcome).plans
    assert sorted(each.producer_id for each in plan.markers) == sorted(marker[1] for marker in two)
    assert [each.offset for each in plan.markers] == [marker[0] for marker in two]
    assert any(not each.is_certain for each in plan.lost_ends) == (first == 4 and at != (LAST, LAST))
    with pylog.open(pairs, "r") as store:
        log, batches = store.log("txn"), [each.offset for each in store.log("txn").records()]
        assert (log.stable_offset, log.end_offset) == (plan.end_offset, plan.end_offset)
        assert store.verify().findings == ()
    of_them = {offset for offset in batches if two[0][0] - 5 < offset < two[0][0]}
    assert set(committed(pairs)) == (set(whole) | of_them if outcome == "commit" else set(whole) - of_them)


def test_a_transaction_that_is_open_beside_a_damaged_record_stays_open(pairs: Path) -> None:
    with pylog.open(pairs) as store:
        opened = store.transaction("a")
        opened.append("txn", b"open", partition=0)
        opened.flush()
        store.log("txn").append(b"damaged")
        store.log("txn").append(b"plain")
        left = pairs.with_name("left")
        shutil.copytree(pairs, left)
    path = left / "txn-0" / FIRST
    table = scan_batches(np.frombuffer(path.read_bytes(), np.uint8)).table
    spoil(path, int(table[POSITION, -2] + table[SIZE, -2]) - 1)
    done = repair(str(left), "skip")
    assert done.plans
    assert ends(done) == []


def test_a_marker_that_may_have_been_in_the_damage_is_told_so(pairs: Path) -> None:
    alter(pairs, 4, (MAGIC, MAGIC))
    told = [str(each) for each in ends(repair(str(pairs), "skip"))]
    assert len(told) == 2
    assert all("a marker may have been in the damage at offset" in each for each in told)
    assert all("committed readers stop before that offset" in each for each in told)


def test_the_command_ends_lost_transactions_as_told(root: Path) -> None:
    path = root / "txn-0" / FIRST
    marker = next(marker for marker in markers(path) if is_followed(path, by=ABORT)(marker) and marker[4])
    whole = committed(root)
    spoiled(path, marker)
    done = call("repair", "skip", root, "--execute")
    assert done.code != OK
    assert "--lost-markers" in done.complaints + done.output.decode()
    done = call("repair", "skip", root, "--execute", "--lost-markers", "commit")
    assert done.code == OK, done.complaints
    assert f"write COMMIT at offset {marker[0]} in place of a lost marker of producer {marker[1]}" in done.output.decode()
    assert committed(root) == whole


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
