"""KAFKA-12520: completing a segment's swap at startup threw the producer state away; making it again took hours."""

from __future__ import annotations

import pylog
from pylog import ProducerBatch
from pylog.testing import MemoryFileSystem

PARTITION = "/data/t-0"


def test_completing_a_swap_keeps_the_producers_and_their_newest_snapshot() -> None:
    fs = MemoryFileSystem()
    with pylog.open("/data", fs=fs, clock=fs.clock) as store:
        log = store.create_topic("t", segment_bytes=200) and store.log("t")
        for sequence in range(6):
            log.append_batch([b"%d" % sequence], producer=ProducerBatch(7, 0, sequence))
        assert len(log.segments) >= 3
    for suffix in (".log", ".index", ".timeindex"):
        fs.rename(f"{PARTITION}/{0:020d}{suffix}", f"{PARTITION}/{0:020d}{suffix}.swap")
    newest = max(entry.name for entry in fs.list(PARTITION) if entry.name.endswith(".snapshot"))
    snapshot = fs.read(f"{PARTITION}/{newest}", 1000)
    with pylog.open("/data", fs=fs, clock=fs.clock) as store:
        log = store.log("t")
        assert fs.exists(f"{PARTITION}/{0:020d}.log")
        assert fs.read(f"{PARTITION}/{newest}", 1000) == snapshot
        assert log.append_batch([b"5"], producer=ProducerBatch(7, 0, 5)).duplicate
        assert log.append_batch([b"6"], producer=ProducerBatch(7, 0, 6)).offsets == range(6, 7)
        assert [record.value for record in log.records()] == [b"%d" % number for number in range(7)]
