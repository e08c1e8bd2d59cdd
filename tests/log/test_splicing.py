"""Splicing, in memory: what becomes of it in a log is in tests/spark/test_commit.py."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pylog import limits
from pylog.log.splicing import Part, Splicer
from pylog.record.builder import BatchEncoder, rows_from_records
from pylog.testing import MemoryFileSystem
from steps import check_steps_stay


@settings(max_examples=100)
@given(st.lists(st.lists(st.sampled_from([300, 3000, 5000, 9000]), min_size=1, max_size=6), max_size=4))
def test_a_step_stays_as_it_is_while_the_next_one_is_made(parts: list[list[int]]) -> None:
    """It is being written then: batches larger than a buffer, and buffers that grew before, do not change that."""
    fs, splicer = MemoryFileSystem(), Splicer()
    for name, sizes in enumerate(parts):
        rows = rows_from_records(None, [bytes([number]) * size for number, size in enumerate(sizes)], None, None, 0)
        file, position = fs.create(f"/{name}"), 0
        for piece in BatchEncoder(batch_bytes=1).encode(rows, 0, 0):
            file.write(piece.data, position)
            position += len(piece.data)
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(limits, "APPEND_CHUNK_BYTES", 4000)
            assert check_steps_stay(splicer.encode(Part(file, 0, position, len(sizes)), 0, 0)) > 0
