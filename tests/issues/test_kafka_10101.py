"""KAFKA-10101: recovery moved the recovery point over records that it had found and not flushed, and the next crash lost them."""

from __future__ import annotations

import pytest

import pylog
from pylog import Durability
from pylog.testing import MemoryFileSystem


@pytest.mark.parametrize("closed", [False, True], ids=["power lost", "closed, then power lost"])
def test_records_that_recovery_calls_durable_are_on_the_disk(closed: bool) -> None:
    fs = MemoryFileSystem()
    store = pylog.open("/data", fs=fs, clock=fs.clock, durability=Durability.OS)
    store.create_topic("t")
    store.log("t").append_many([b"%d" % number for number in range(5)])
    fs.kill()

    fs = fs.process()
    store = pylog.open("/data", fs=fs, clock=fs.clock, durability=Durability.OS)
    log = store.log("t")
    log.append(b"makes the log ready for writing")
    durable = log.durable_offset
    if closed:
        store.close()
        durable = 6

    fs = fs.crash()
    with pylog.open("/data", fs=fs, clock=fs.clock) as store:
        values = [record.value for record in store.log("t").records()]
        assert len(values) >= durable
        assert values[:5] == [b"%d" % number for number in range(min(5, len(values)))]
        assert store.check().ok
