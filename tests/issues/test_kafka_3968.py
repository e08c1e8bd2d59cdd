"""KAFKA-3968: the directory was not synced when a segment was made, so a power loss took synced records with it."""

from __future__ import annotations

import random

import pytest

import pylog
from pylog.testing import MemoryFileSystem, Moment, RecordingFileSystem


@pytest.mark.slow
def test_no_acknowledged_record_goes_with_the_name_of_a_new_segment() -> None:
    fs = RecordingFileSystem()
    with pylog.open("/data", fs=fs, clock=fs.clock) as store:
        store.create_topic("t", segment_bytes=200)
        log = store.log("t")
        for number in range(8):
            log.append(b"%d" % number)
            fs.recording.mark(number + 1)
        assert len(log.segments) >= 3
    for after, acknowledged in fs.recording.marks:
        moment = Moment.of(fs.recording, after)
        for crash in moment.crashes(random.Random(0), subsets=20, cuts=0):
            image = moment.state(crash)[1]
            with pylog.open("/data", fs=MemoryFileSystem(image=image, boots=2)) as store:
                values = [record.value for record in store.log("t").records()]
            assert values[:acknowledged] == [b"%d" % number for number in range(acknowledged)], crash
