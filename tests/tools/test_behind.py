"""Bytes that somebody appended to the file of a closed log are told by `verify`, and `repair` takes them out."""

from __future__ import annotations

from pathlib import Path

import pytest

import pylog
from pylog.tools.graduate import plan_graduation
from pylog.tools.repair import repair
from pylog.tools.verify import Affected, Verification, verify
from support.faults.neighbours import Neighbour

LOG = f"{0:020}.log"


def written(root: Path, records: int = 5) -> Path:
    """A closed store of one log, whose records are the same in each."""
    with pylog.open(root) as store:
        store.create_topic("t")
        for number in range(records):
            store.log("t").append(b"value %d" % number, timestamp=1)
    return root / "t-0" / LOG


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return written(tmp_path / "s")


def only(found: Verification) -> Affected:
    (one,) = found.affected
    return one


@pytest.mark.damaged("bytes are appended after its end")
@pytest.mark.parametrize("tail", [b"what is this?", bytes(100), b"\x00" * 11 + b"\x01"], ids=["text", "zeros", "few"])
def test_bytes_beyond_the_end_of_a_closed_log_are_reported_with_their_position(log: Path, tail: bytes) -> None:
    size = log.stat().st_size
    log.write_bytes(log.read_bytes() + tail)
    found = verify(str(log.parent.parent))
    told = only(found)
    assert told.finding[:4] == ("behind", str(log), size, len(tail))
    assert f"has {len(tail)} bytes after its end at position {size}" in told.finding.message
    assert (told.first_offset, told.last_offset) == (None, None)
    assert "pylog repair skip" in told.advice
    assert [result.verdict for result in found.files if result.path == str(log)] == ["behind"]
    assert (found.exit_code, found.readable) == (0, ())


@pytest.mark.damaged("bytes are appended after its end")
def test_batches_that_another_program_appended_are_distinguished_from_bytes_that_are_none(log: Path, tmp_path: Path) -> None:
    size = log.stat().st_size
    longer = written(tmp_path / "longer", 7).read_bytes()
    log.write_bytes(longer + b"rest")
    batches, rest = verify(str(log.parent.parent)).affected
    assert batches.finding[:4] == ("foreign", str(log), size, len(longer) - size)
    assert rest.finding[:4] == ("behind", str(log), len(longer), 4)
    with pylog.open(log.parent.parent) as store:
        assert (store.log("t").end_offset, store.log("t").append(b"next")) == (7, 7)


@pytest.mark.damaged("bytes are appended after its end")
def test_a_batch_that_does_not_go_on_from_the_end_is_no_batch_of_the_log(log: Path) -> None:
    whole = log.read_bytes()
    log.write_bytes(whole + whole)
    assert only(verify(str(log.parent.parent))).finding[:4] == ("behind", str(log), len(whole), len(whole))


@pytest.mark.damaged("bytes are appended after its end")
def test_repair_removes_the_bytes_beyond_the_end_and_a_broker_may_open_the_rest(log: Path) -> None:
    root, whole = log.parent.parent, log.read_bytes()
    log.write_bytes(whole + b"what is this?")
    with pytest.raises(pylog.CorruptionError, match="after its end"):
        plan_graduation(str(root))
    (plan,) = repair(str(root), "skip", execute=True).plans
    assert (plan.end_offset, plan.new_end_offset, plan.lost) == (5, 5, ())
    assert log.read_bytes() == whole
    assert verify(str(root)).affected == ()
    plan_graduation(str(root))


@pytest.mark.slow
def test_a_log_that_a_process_has_open_may_have_a_write_under_way_beyond_its_end(log: Path) -> None:
    root = log.parent.parent
    with Neighbour() as other:
        other.run("import pylog\nstore = pylog.open(path)\nlog = store.log('t')", path=str(root))
        whole = log.read_bytes()
        log.write_bytes(whole + b"half a batch")
        assert verify(str(root)).affected == ()
        log.write_bytes(whole)


def test_a_sound_log_has_no_bytes_beyond_its_end(log: Path) -> None:
    assert verify(str(log.parent.parent)).affected == ()
