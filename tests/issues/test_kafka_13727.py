"""KAFKA-13727: cleaning half a segment left aborted transactions out of its index, and their records became committed ones."""

from __future__ import annotations

from pathlib import Path

import pytest

import pylog
from pylog.index.transaction_index import ENTRY_SIZE
from support.golden.data import GoldenPartition, partitions
from support.golden.rows import COLUMNS, rows

ABORTING = [each for each in partitions() if each.id in ("4.3.0/txn/txn-0", "4.3.0/compact-txn/before/compact-txn-0")]


def nothing(_: bytes) -> bytes:
    return b""


def without_last_entry(data: bytes) -> bytes:
    return data[:-ENTRY_SIZE]


def of_another_producer(data: bytes) -> bytes:
    """One flipped bit in the first entry's producer id."""
    return data[:9] + bytes((data[9] ^ 1,)) + data[10:]


@pytest.mark.damaged("its transaction index was damaged")
@pytest.mark.parametrize("mode", ["r", "rw"])
@pytest.mark.parametrize("change", [without_last_entry, of_another_producer, nothing, None])
@pytest.mark.parametrize("golden", ABORTING, ids=lambda golden: golden.id)
def test_an_aborted_record_stays_aborted_when_the_transaction_index_does_not_know_it(
    golden: GoldenPartition, change: object, mode: str, tmp_path: Path
) -> None:
    directory = golden.copy(tmp_path / "copy")
    for path in directory.rglob("*.txnindex"):
        if callable(change):
            path.write_bytes(change(path.read_bytes()))
        else:
            path.unlink()
    with pylog.open(directory, mode) as store:
        log = store.log(golden.topic, golden.partition)
        assert list(rows(log.scan(columns=COLUMNS, isolation_level="read_committed"))) == golden.expected_committed()
