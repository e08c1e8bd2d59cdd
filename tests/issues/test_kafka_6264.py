"""KAFKA-6264: a segment with offsets more than 2^31 - 1 above its base overflowed its indexes and killed the cleaner's thread."""

from __future__ import annotations

import pytest

import pylog
from pylog.testing import MemoryFileSystem
from pylog.testing.disk import Image
from support.engines import segments_of
from support.reference.records import Batch, Record

FAR = 2**31 + 5
NAME = f"{0:020d}.log"


def a_segment_that_reaches_too_far() -> bytes:
    near = [Batch([Record(0, 0, None, b"near %d" % offset)], offset, 0).encoded() for offset in range(3)]
    return b"".join(near) + Batch([Record(0, 0, None, b"far")], FAR, 0).encoded()


@pytest.mark.parametrize("mode", ["r", "rw"])
def test_offsets_that_no_index_can_hold_are_reported_and_cost_nothing_else(mode: str) -> None:
    data = a_segment_that_reaches_too_far()
    fs = MemoryFileSystem(image=Image({4: data}, {1: {"data": 2}, 2: {"t-0": 3}, 3: {NAME: 4}}, 4))
    with pylog.open("/data", mode, fs=fs, clock=fs.clock) as store:
        log = store.log("t")
        assert [record.value for record in log.records(0, 3)] == [b"near 0", b"near 1", b"near 2"]
        assert [finding.kind for finding in log.recovery_report] == ["corrupt"]
        assert "cannot hold" in log.recovery_report[0].message
        index = segments_of(log)[0].offset_index()
        assert [entry for entry in map(index.entry, range(len(index))) if entry.offset > 2] == []
    assert fs.read(f"/data/t-0/{NAME}", 1 << 20) == data
