"""KAFKA-15572: a segment rolled while its directory was renamed; syncing a missing directory took all topics offline."""

from __future__ import annotations

import pytest

import pylog
from pylog.testing import MemoryFileSystem


@pytest.mark.parametrize("segment_bytes", [200, 1 << 20], ids=["the next append rolls", "it does not"])
def test_deleting_a_topic_under_a_writer_ends_only_that_writer(segment_bytes: int) -> None:
    fs = MemoryFileSystem()
    store = pylog.open("/data", fs=fs, clock=fs.clock)
    for topic in ("going", "staying"):
        store.create_topic(topic, segment_bytes=segment_bytes)
        store.log(topic).append(b"first")
        store.log(topic).append(b"second")
    other = fs.process()
    with pylog.open("/data", fs=other, clock=other.clock) as elsewhere:
        elsewhere.delete_topic("going")
    with pytest.raises(pylog.UnknownTopicOrPartitionError):
        store.log("going").append(b"to nowhere")
    assert store.log("staying").append(b"third") == 2
    store.flush()
    store.close()
    assert [entry.name for entry in fs.list("/data") if entry.is_directory] == ["staying-0"]
