"""Base offsets that changed together: no checksum of Kafka covers them, and each change hides the other from a neighbour."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import pylog
from pylog.errors import CorruptionError, OffsetOutOfRangeError
from pylog.record.batch import scan_batches
from pylog.record.format import BASE_OFFSET, LEADER_EPOCH_AT, POSITION
from pylog.segment.names import DURABLE_POINT
from pylog.tools.verify import verify

SIZES = (1, 1, 1, 2, 1, 3, 1, 1)  # records of each batch
Records = dict[int, bytes | None]
pytestmark = pytest.mark.damaged("base offsets are changed")


@pytest.fixture
def segment(tmp_path: Path) -> Path:
    """A closed log of one segment; the path of its file."""
    with pylog.open(tmp_path) as store:
        store.create_topic("t")
        log = store.log("t")
        for batch, size in enumerate(SIZES):
            log.append_many([b"%d of batch %d" % (number, batch) for number in range(size)])
    return tmp_path / "t-0" / f"{0:020d}.log"


def positions_of(data: bytes) -> list[int]:
    positions: list[int] = scan_batches(np.frombuffer(data, np.uint8)).table[POSITION].tolist()
    return positions


def flipped(data: bytes, batches: tuple[int, ...], bit: int) -> bytes:
    """Returns the bytes with one bit flipped in the base offset of some batches."""
    changed, positions = bytearray(data), positions_of(data)
    for batch in batches:
        changed[positions[batch] + 7 - bit // 8] ^= 1 << bit % 8
    return bytes(changed)


def pairs() -> Iterator[tuple[tuple[int, ...], int]]:
    for batch in range(len(SIZES) - 1):
        for bit in (0, 1, 2, 5, 33):
            yield (batch, batch + 1), bit
    yield (1, 2, 3), 2
    yield (5, 6, 7), 3
    yield (2, 5), 5


def read_on(log: pylog.Log) -> tuple[Records, int]:
    """Returns the records that a reader gets who goes on after each error, and the number of errors."""
    found: Records = {}
    errors, at = 0, 0
    while True:
        try:
            for record in log.records(at):
                found[record.offset] = record.value
                at = record.offset + 1
        except CorruptionError as error:
            errors += 1
            if error.next_offset is None:
                return found, errors
            at = error.next_offset
        else:
            return found, errors


def the_truth(root: Path) -> Records:
    with pylog.open(root, "r") as store:
        return read_on(store.log("t"))[0]


def get_each(log: pylog.Log, end: int) -> Records:
    """Returns what a read of each single offset gives."""
    found: Records = {}
    for offset in range(end):
        try:
            record = log.read(offset)
        except (CorruptionError, OffsetOutOfRangeError):
            continue
        found[record.offset] = record.value
    return found


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["r", "rw"])
def test_batches_that_moved_together_in_the_active_segment_are_refused_and_cost_no_other(segment: Path, mode: str) -> None:
    root, data = segment.parents[1], segment.read_bytes()
    truth = the_truth(root)
    bases = scan_batches(np.frombuffer(data, np.uint8)).table[BASE_OFFSET].tolist()
    for batches, bit in pairs():
        segment.write_bytes(flipped(data, batches, bit))
        lost = {bases[batch] + number for batch in batches for number in range(SIZES[batch])}
        with pylog.open(root, mode) as store:
            log = store.log("t")
            singly = get_each(log, log.end_offset)
            found, errors = read_on(log)
        assert errors, (batches, bit)
        assert found == {offset: value for offset, value in truth.items() if offset not in lost}, (batches, bit)
        assert singly.items() <= found.items(), (batches, bit)
        assert not verify(str(root)).ok, (batches, bit)
        segment.write_bytes(data)


def test_an_append_does_not_make_a_changed_header_of_the_active_segment_legal(segment: Path) -> None:
    root, data = segment.parents[1], segment.read_bytes()
    with_epoch = bytearray(data)
    with_epoch[positions_of(data)[-1] + LEADER_EPOCH_AT + 3] ^= 1  # the last batch has no neighbour after it
    for changed in (flipped(data, (6, 7), 3), flipped(data, (7,), 3), flipped(data, (2, 3), 1), bytes(with_epoch)):
        segment.write_bytes(changed)
        with pylog.open(root) as store, pytest.raises(CorruptionError, match=r"base offset|leader epoch"):
            store.log("t").append(b"after the damage")
        assert segment.read_bytes() == changed
        assert not verify(str(root)).ok
        segment.write_bytes(data)


LARGE = b"x" * 24_000  # 10 of them are more than the first read of a walk
FIRST = sum(SIZES)
MOVED = tuple(range(len(SIZES) + 1, len(SIZES) + 15))  # in the first read of a walk, no batch after them contradicts them


def append_large(log: pylog.Log) -> None:
    for _ in range(17):
        log.append(LARGE, durability="os")


def refused(log: pylog.Log) -> set[int]:
    """Returns the offsets that a reader misses, who gets an error."""
    found, errors = read_on(log)
    assert errors
    assert all(value == LARGE for offset, value in found.items() if offset >= FIRST)
    return {*range(log.end_offset)} - found.keys()


@pytest.mark.parametrize("mode", ["r", "rw"])
def test_a_row_of_batches_that_moved_and_is_longer_than_one_read_is_refused(segment: Path, mode: str) -> None:
    root = segment.parents[1]
    with pylog.open(root) as store:
        append_large(store.log("t"))
    segment.write_bytes(flipped(segment.read_bytes(), MOVED, 20))
    with pylog.open(root, mode) as store:
        assert refused(store.log("t")) == {*range(FIRST + 1, FIRST + 15)}
    assert not verify(str(root)).ok


def test_batches_that_moved_while_the_log_is_open_for_writing_are_refused_there(segment: Path) -> None:
    with pylog.open(segment.parents[1]) as store:
        log = store.log("t")
        append_large(log)
        data = segment.read_bytes()
        segment.write_bytes(flipped(data, MOVED, 20))
        missing = refused(log)
        segment.write_bytes(data)
    assert missing == {*range(FIRST + 1, FIRST + 15)}


def test_a_reader_of_another_process_s_log_refuses_batches_that_moved_after_it_had_opened_it(segment: Path) -> None:
    root = segment.parents[1]
    with pylog.open(root) as store, pylog.open(root, "r") as reading:
        log = reading.log("t")
        assert read_on(log)[1] == 0
        append_large(store.log("t"))
        assert log.end_offset == FIRST + 17
        data = segment.read_bytes()
        segment.write_bytes(flipped(data, MOVED, 20))
        missing = refused(log)
        segment.write_bytes(data)
    assert missing == {*range(FIRST + 1, FIRST + 15)}


def test_gaps_that_a_truncation_inside_a_batch_leaves_are_no_damage(segment: Path) -> None:
    root = segment.parents[1]
    with pylog.open(root) as store:
        log = store.log("t")
        log.truncate(7)  # inside the batch of three records at 6
        log.append(b"after the gap")
    for _ in range(2):
        with pylog.open(root) as store:
            log = store.log("t")
            log.append(b"once more")
            assert read_on(log)[1] == 0
            assert log.read(7).value == b"after the gap"
    with pylog.open(root, "r") as store:
        assert [offset for offset in read_on(store.log("t"))[0] if offset > 4] == [5, 7, 8, 9]
    assert verify(str(root)).ok


def without_header(segment: Path) -> None:
    """Makes the log one of another program, or a copy: nothing of pylog vouches for its batch headers."""
    (segment.parent / DURABLE_POINT).unlink()


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["r", "rw"])
def test_batches_that_moved_in_a_segment_of_another_program_are_refused_where_batches_follow_them(
    segment: Path, mode: str
) -> None:
    root, data = segment.parents[1], segment.read_bytes()
    truth = the_truth(root)
    without_header(segment)
    for batches, bit in pairs():
        if batches[-1] == len(SIZES) - 1 or batches == (2, 5):
            continue
        segment.write_bytes(flipped(data, batches, bit))
        with pylog.open(root, mode) as store:
            found, errors = read_on(store.log("t"))
        assert errors, (batches, bit)
        assert found.items() <= truth.items(), (batches, bit)
        assert not verify(str(root)).ok, (batches, bit)
        assert segment.read_bytes() == flipped(data, batches, bit)  # nothing was taken for a torn tail
        segment.write_bytes(data)


def test_the_last_batches_of_a_segment_of_another_program_may_have_moved_up_unnoticed(segment: Path) -> None:
    """The limit that docs/DURABILITY.md names: nothing follows them, and nothing of pylog knows them."""
    root, data = segment.parents[1], segment.read_bytes()
    without_header(segment)
    segment.write_bytes(flipped(data, (6, 7), 5))
    with pylog.open(root, "r") as store:
        found, errors = read_on(store.log("t"))
    assert errors == 0
    assert set(found) == {*range(9), 9 + 32, 10 + 32}


def test_an_overlapping_batch_at_the_end_is_damage_and_is_not_cut_off(segment: Path) -> None:
    root, data = segment.parents[1], segment.read_bytes()
    without_header(segment)
    (root / ".kafka_cleanshutdown").unlink()
    (root / "recovery-point-offset-checkpoint").unlink()
    changed = flipped(data, (6, 7), 1)  # 11 and 8 instead of 9 and 10: no batch tells which one is right
    segment.write_bytes(changed)
    with pylog.open(root) as store, pytest.raises(CorruptionError):
        store.log("t").append(b"after the damage")
    assert segment.read_bytes() == changed
