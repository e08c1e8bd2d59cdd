"""NATS 7549: one flipped bit in a block file lost hundreds of thousands of acknowledged messages around it."""

from __future__ import annotations

import pytest

import pylog
from pylog.testing import MemoryFileSystem

RECORDS = [b"record %d" % number for number in range(30)]


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["r", "rw"])
def test_a_flipped_bit_costs_the_batch_that_it_is_in(mode: str) -> None:
    fs = MemoryFileSystem()
    with pylog.open("/data", fs=fs, clock=fs.clock) as store:
        log = store.create_topic("t", segment_bytes=900) and store.log("t")
        for value in RECORDS:
            log.append(value)
        names = [segment.path for segment in log.segments]
    image = fs.image()
    for path in names:
        number = fs.disk.node(path).number
        data = image.files[number]
        for at in range(0, len(data), 41):
            flipped = data[:at] + bytes((data[at] ^ 16,)) + data[at + 1 :]
            changed = MemoryFileSystem(image=image._replace(files={**image.files, number: flipped}))
            with pylog.open("/data", mode, fs=changed, clock=changed.clock) as store:
                got = read_on(store.log("t"))
            assert len(got) >= len(RECORDS) - 1, (path, at)
            assert [RECORDS[offset] for offset in got] == list(got.values()), (path, at)


def read_on(log: pylog.Log) -> dict[int, bytes | None]:
    """What can be read, going on behind errors."""
    got: dict[int, bytes | None] = {}
    start: int | None = log.start_offset
    while start is not None:
        try:
            for record in log.records(start):
                got[record.offset] = record.value
            return got
        except pylog.CorruptionError as error:
            start = error.next_offset
    return got
