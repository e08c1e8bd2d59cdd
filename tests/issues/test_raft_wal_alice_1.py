"""raft-wal, ALICE 1: the metadata named a new segment before its file was there, and after a crash nothing could be opened."""

from __future__ import annotations

import random

import pytest

import pylog
from pylog.log.durable_point import SLOT_SIZE, parse_slot
from pylog.testing import MemoryFileSystem, Moment, RecordingFileSystem
from pylog.testing.disk import Image

PARTITION = "/data/t-0"


def rolled_and_trimmed() -> RecordingFileSystem:
    fs = RecordingFileSystem()
    with pylog.open("/data", fs=fs, clock=fs.clock) as store:
        log = store.create_topic("t", segment_bytes=200) and store.log("t")
        for number in range(6):
            log.append(b"%d" % number)
        log.truncate(3)
        log.append(b"3 again")
        log.delete_records(2)
    return fs


def active_files(image: Image) -> list[tuple[int, bool]]:
    """The base offset that each valid slot names as active, and whether the slot's segment is in the directory."""
    fs = MemoryFileSystem(image=image)
    header = fs.read(f"{PARTITION}/durable-point", 1024) if fs.exists(PARTITION) else None
    slots = [parse_slot((header or b"")[start : start + SLOT_SIZE]) for start in (0, SLOT_SIZE)]
    bases = [slot.active_base for slot in slots if slot is not None and slot.epoch % 2 == 0]
    return [(base, fs.exists(f"{PARTITION}/{base:020d}.log")) for base in bases[-1:]]


@pytest.mark.slow
def test_no_crash_leaves_a_header_at_rest_that_names_a_segment_which_is_not_there() -> None:
    recording = rolled_and_trimmed().recording
    seen = set()
    for after in range(len(recording) + 1):
        moment = Moment.of(recording, after)
        for crash in moment.crashes(random.Random(after), subsets=12, cuts=0):
            for base, there in active_files(moment.state(crash)[1]):
                seen.add(base)
                assert there, (crash, base)
    assert len(seen) >= 3


def test_a_log_whose_header_names_a_missing_segment_is_opened_and_says_what_is_missing() -> None:
    """No crash of pylog's leaves it so, but another hand may: what there is must still be readable."""
    fs = rolled_and_trimmed().process()
    newest = max(entry.name for entry in fs.list(PARTITION) if entry.name.endswith(".log"))
    fs.remove(f"{PARTITION}/{newest}")
    for mode in ("r", "rw"):
        with pylog.open("/data", mode, fs=fs, clock=fs.clock) as store:
            log = store.log("t")
            assert [record.offset for record in log.records()] == list(range(2, int(newest[:20])))
            assert [finding.kind for finding in log.recovery_report] == ["missing"]


@pytest.mark.slow
def test_a_topic_whose_directories_were_not_made_any_more_is_there_all_the_same() -> None:
    """`pylog.json` decides that a topic exists; its directories follow, and the power may go in between."""
    fs = RecordingFileSystem()
    with pylog.open("/data", fs=fs, clock=fs.clock) as store:
        store.create_topic("t", partition_count=2)
    found = set()
    for after in range(len(fs.recording) + 1):
        moment = Moment.of(fs.recording, after)
        for crash in moment.crashes(random.Random(after), subsets=12, cuts=0):
            left = MemoryFileSystem(image=moment.state(crash)[1], boots=2)
            there = tuple(left.exists(f"/data/t-{number}") for number in (0, 1))
            with pylog.open("/data", fs=left, clock=left.clock) as store:
                for topic in store.topics():
                    found.add(there)
                    assert [store.log(topic, number).append(b"first") for number in (0, 1)] == [0, 0], crash
                assert {finding.kind for finding in store.check().findings} <= {"leftover"}, crash
    assert {(False, False), (True, True)} <= found
