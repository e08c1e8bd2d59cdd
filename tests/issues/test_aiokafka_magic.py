"""aiokafka's decoder: the magic byte of a buffer's first batch was taken for that of all, so mixed formats were read as one."""

from __future__ import annotations

import itertools

import pytest

import pylog
from pylog.testing import MemoryFileSystem
from pylog.testing.disk import Image
from support.reference.legacy import GZIP, Message, entry, message_set, wrapper
from support.reference.records import Batch, Record

NAME = f"{0:020d}.log"


def of_format(magic: int, offset: int, *, compressed: bool) -> bytes:
    """Two records from an offset on, in one of the three formats."""
    values = [b"format %d, offset %d" % (magic, number) for number in (offset, offset + 1)]
    if magic == 2:
        return Batch([Record(0, 0, None, values[0]), Record(1, 0, None, values[1])], offset, base_timestamp=7).encoded()
    relative = 0 if magic == 1 and compressed else offset
    messages = [Message(relative + number, 7, None, value) for number, value in enumerate(values)]
    if compressed:
        return wrapper(magic, offset + 1, 7, GZIP, message_set(magic, messages))
    return b"".join(entry(magic, message) for message in messages)


@pytest.mark.parametrize("mode", ["r", "rw"])
@pytest.mark.parametrize("compressed", [False, True], ids=["plain", "compressed"])
@pytest.mark.parametrize("order", list(itertools.permutations((0, 1, 2))), ids=lambda order: "".join(map(str, order)))
def test_each_batch_is_read_by_its_own_magic(order: tuple[int, ...], compressed: bool, mode: str) -> None:
    formats = [*order, order[0]]
    data = b"".join(of_format(magic, 2 * number, compressed=compressed) for number, magic in enumerate(formats))
    fs = MemoryFileSystem(image=Image({4: data}, {1: {"data": 2}, 2: {"t-0": 3}, 3: {NAME: 4}}, 4))
    wanted = [b"format %d, offset %d" % (magic, 2 * number + each) for number, magic in enumerate(formats) for each in (0, 1)]
    with pylog.open("/data", mode, fs=fs, clock=fs.clock) as store:
        log = store.log("t")
        records = list(log.records())
        assert [record.value for record in records] == wanted
        assert [record.offset for record in records] == list(range(len(wanted)))
        stamps = [-1 if magic == 0 else 7 for magic in formats for _ in (0, 1)]
        assert [record.timestamp for record in records] == stamps
        assert [log.read(offset).value for offset in range(len(wanted))] == wanted
        assert store.verify(records=True).ok
