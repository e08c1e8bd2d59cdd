"""Reading a sealed segment: what no checksum of Kafka's covers is covered by the seal, and costs no neighbour."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import pylog
from pylog.record.batch import scan_batches
from pylog.record.format import POSITION, PREFIX_SIZE

RECORDS = 60
COLUMNS = ("offset", "value", "leader_epoch")


def sealed_log(path: Path) -> Path:
    """A log of several segments with many batches an index interval; returns the first segment."""
    with pylog.open(path) as store:
        store.create_topic("t", segment_bytes=6000)
        log = store.log("t")
        for number in range(RECORDS):
            log.append(b"value %d" % number * 20)
    return min((path / "t-0").glob("*.log"))


def read_on(path: Path) -> tuple[dict[int, tuple[bytes, int]], int]:
    """What can be read, going on behind each error, and how many errors there were."""
    found: dict[int, tuple[bytes, int]] = {}
    errors = 0
    with pylog.open(path, mode="r") as store:
        log = store.log("t")
        start: int | None = 0
        while start is not None:
            try:
                for frame in log.scan(start, columns=COLUMNS):
                    offsets, values, epochs = (column.to_pylist() for column in frame.columns)
                    found |= dict(zip(offsets, zip(values, epochs, strict=True), strict=True))
                break
            except pylog.CorruptionError as error:
                errors += 1
                start = error.next_offset
    return found, errors


@pytest.mark.slow
@pytest.mark.parametrize("byte", range(PREFIX_SIZE))
def test_a_flipped_bit_of_a_sealed_batch_header_is_never_served_and_costs_one_batch_only(tmp_path: Path, byte: int) -> None:
    segment = sealed_log(tmp_path)
    data = segment.read_bytes()
    positions = scan_batches(np.frombuffer(data, np.uint8)).table[POSITION].tolist()
    whole, errors = read_on(tmp_path)
    assert (len(whole), errors) == (RECORDS, 0)
    for batch in (0, 5, len(positions) - 1):
        for bit in range(8):
            damaged = bytearray(data)
            damaged[positions[batch] + byte] ^= 1 << bit
            segment.write_bytes(damaged)
            found, errors = read_on(tmp_path)
            assert errors == 1, (batch, bit)
            assert found == {offset: held for offset, held in whole.items() if offset != batch}, (batch, bit)


@pytest.mark.slow
def test_two_flipped_bits_of_one_interval_are_refused_with_what_lies_between_its_marks(tmp_path: Path) -> None:
    segment = sealed_log(tmp_path)
    data = bytearray(segment.read_bytes())
    positions = scan_batches(np.frombuffer(bytes(data), np.uint8)).table[POSITION].tolist()
    whole, _ = read_on(tmp_path)
    for batch in range(len(positions)):
        data[positions[batch] + 15] ^= 1  # another leader epoch all over: no neighbour tells
    segment.write_bytes(data)
    found, errors = read_on(tmp_path)
    assert errors >= 1
    assert all(whole[offset] == held for offset, held in found.items())
    assert set(range(len(positions), RECORDS)) <= set(found)


def test_the_seal_of_another_file_says_nothing(tmp_path: Path) -> None:
    """A broker that compacts a segment leaves the seal as it was."""
    segment = sealed_log(tmp_path)
    data = segment.read_bytes()
    positions = scan_batches(np.frombuffer(data, np.uint8)).table[POSITION].tolist()
    segment.write_bytes(data[: positions[3]] + data[positions[4] :])
    found, errors = read_on(tmp_path)
    assert errors == 0
    assert sorted(found) == [offset for offset in range(RECORDS) if offset != 3]
