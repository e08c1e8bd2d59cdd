"""NATS 6888: after a few processes were killed, a stream that had been acknowledged was not known any more."""

from __future__ import annotations

import random

import pytest

import pylog
from pylog.testing import MemoryFileSystem, Moment, RecordingFileSystem


@pytest.mark.slow
def test_a_topic_that_was_acknowledged_is_known_whenever_a_process_dies() -> None:
    """And one whose making was under way is known or not, but never in the way of the next attempt."""
    fs = RecordingFileSystem()
    with pylog.open("/data", fs=fs, clock=fs.clock) as store:
        store.create_topic("first", partition_count=2)
        fs.recording.mark({"first"})
        store.create_topic("second")
        fs.recording.mark({"first", "second"})
        store.log("second").append(b"kept")
    for after in range(len(fs.recording) + 1):
        known = fs.recording.known_after(after) or set()
        moment = Moment.of(fs.recording, after)
        for crash in (*moment.deaths(random.Random(after), cuts=2), *moment.crashes(random.Random(after), subsets=6, cuts=4)):
            image = moment.state(crash)[1]
            left = MemoryFileSystem(image=image, boots=1 + crash.power)
            with pylog.open("/data", fs=left, clock=left.clock) as store:
                assert known <= set(store.topics()), crash
                for name in {"first", "second"} - set(store.topics()):
                    store.create_topic(name)
                assert store.log("second").append(b"next") >= 0
