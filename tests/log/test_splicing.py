"""Splicing, in memory: what becomes of it in a log is in tests/spark/test_commit.py."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import pylog
from pylog import limits
from pylog.log.writing.append_batches import BatchRange, FinishedBatches
from pylog.record.builder import BatchEncoder, rows_from_records
from pylog.testing import MemoryFileSystem
from support.engines import engine_of
from support.record.steps import check_steps_stay


@pytest.mark.slow
@settings(max_examples=100)
@given(st.lists(st.lists(st.sampled_from([300, 3000, 5000, 9000]), min_size=1, max_size=6), max_size=4))
def test_a_step_stays_as_it_is_while_the_next_one_is_made(parts: list[list[int]]) -> None:
    """It is being written then: batches larger than a buffer, and buffers that grew before, do not change that."""
    fs, splicer = MemoryFileSystem(), FinishedBatches()
    for name, sizes in enumerate(parts):
        rows = rows_from_records(None, [bytes([number]) * size for number, size in enumerate(sizes)], None, None, 0)
        file, position = fs.create(f"/{name}"), 0
        for piece in BatchEncoder(batch_bytes=1).encode(rows, 0, 0):
            file.write(piece.data, position)
            position += len(piece.data)
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(limits, "APPEND_CHUNK_BYTES", 4000)
            assert check_steps_stay(splicer.encode(BatchRange(file, 0, position, len(sizes)), 0, 0)) > 0


@pytest.mark.parametrize("skip", [0, 1, 2])
def test_the_rest_of_a_part_is_read_from_its_position(skip: int) -> None:
    """Of a retry the first batches may be in the log already; one batch that is left does not begin the buffer."""
    fs, rows = MemoryFileSystem(), rows_from_records(None, [b"a" * 300, b"b" * 300, b"c" * 300], None, None, 0)
    (made,) = BatchEncoder(batch_bytes=1).encode(rows, 0, 0)
    file = fs.create("/part")
    file.write(made.data, 0)
    with pylog.open("/data", fs=fs) as store:
        log = store.create_topic("t") and store.log("t")
        engine_of(log).append_batches([BatchRange(file, 0, len(made.data), 3 - skip, skip)])
        assert [record.value for record in log.records()] == [b"a" * 300, b"b" * 300, b"c" * 300][skip:]
