"""etcd 3.5.0 to 3.5.2: the index of the last applied entry could be saved without what it stands for, and members fell apart."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest

import pylog
from pylog import Durability, ProducerBatch
from pylog.log.durable_point import SLOT_SIZE, parse_slot
from pylog.testing import Crash, MemoryFileSystem, Moment, Recording, RecordingFileSystem

PRODUCER = 1 << 48
VALUES = [b"%d" % number for number in range(7)]


def sent(log: pylog.Log, sequence: int, **options: Durability) -> pylog.BatchMetadata:
    return log.append_batch([VALUES[sequence]], producer=ProducerBatch(PRODUCER, 0, sequence), **options)


def recorded() -> RecordingFileSystem:
    """Some idempotent appends, at two levels, over three segments; a mark for each that outlives a power loss."""
    fs = RecordingFileSystem()
    with pylog.open("/data", fs=fs, clock=fs.clock) as store:
        log = store.create_topic("t", segment_bytes=200) and store.log("t")
        for sequence in range(len(VALUES) - 1):
            sent(log, sequence, durability=Durability.OS if sequence % 3 else Durability.SYNC)
            fs.recording.mark(log.durable_offset)
        assert len(log.segments) >= 3
    return fs


def some_crashes(recording: Recording) -> Iterator[tuple[Moment, Crash]]:
    """Three ways to crash at each moment."""
    for after in range(len(recording) + 1):
        moment, rng = Moment.of(recording, after), random.Random(after)
        ways = [*moment.deaths(rng, cuts=1), *moment.crashes(rng, subsets=6, cuts=2)]
        yield from ((moment, crash) for crash in rng.sample(ways, min(3, len(ways))))


@pytest.mark.slow
def test_no_crash_leaves_a_producers_number_without_its_record_or_a_record_without_its_number() -> None:
    """The producer starts again from its first batch, as one does that lost its answers: each record is there once."""
    recording = recorded().recording
    for moment, crash in some_crashes(recording):
        fs = MemoryFileSystem(image=moment.state(crash)[1], boots=1 + crash.power)
        with pylog.open("/data", fs=fs, clock=fs.clock) as store:
            if "t" not in store.topics():
                continue
            log = store.log("t")
            end = log.end_offset
            assert end >= (recording.known_after(crash.after) or 0), crash
            answers = [sent(log, sequence) for sequence in range(max(0, end - 1), len(VALUES))]
            assert [record.value for record in log.records()] == VALUES, crash
            assert [answer.duplicate for answer in answers] == [True] * min(1, end) + [False] * (len(VALUES) - end), crash


@pytest.mark.slow
def test_the_header_and_the_recovery_point_never_say_more_than_is_on_the_disk() -> None:
    recording = recorded().recording
    for moment, crash in some_crashes(recording):
        fs = MemoryFileSystem(image=moment.state(crash)[1], boots=1 + crash.power)
        if fs.exists("/data/t-0"):
            with pylog.open("/data", "r", fs=fs, clock=fs.clock) as store:
                assert said_to_be_durable(fs) <= store.log("t").end_offset, crash


def said_to_be_durable(fs: MemoryFileSystem) -> int:
    """The largest offset that any slot of the header, or the recovery point, calls durable."""
    header = fs.read("/data/t-0/durable-point", 1024) or b""
    slots = [parse_slot(header[start : start + SLOT_SIZE]) for start in (0, SLOT_SIZE)]
    newest = max((slot for slot in slots if slot is not None), key=lambda slot: slot.counter, default=None)
    lines = (fs.read("/data/recovery-point-offset-checkpoint", 1024) or b"0\n0\n").decode().split()[2:]
    return max([0 if newest is None else newest.durable_offset, *map(int, lines[2::3])])
