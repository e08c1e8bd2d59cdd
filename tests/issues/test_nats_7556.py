"""NATS 7556: a flipped bit in a metadata snapshot made streams look like orphans, and their data was deleted."""

from __future__ import annotations

from contextlib import suppress

import pytest

import pylog
from pylog.clock import ManualClock
from pylog.testing import MemoryFileSystem

NOW = 1_700_000_000_000
CENTURY_MS = 100 * 365 * 86_400_000


@pytest.mark.slow
def test_no_damage_to_other_files_makes_a_segment_disappear() -> None:
    """Whatever is flipped in the catalog, checkpoints, headers and markers; retention runs, and the topic keeps for ever."""
    fs = MemoryFileSystem(clock=ManualClock(NOW))
    with pylog.open("/data", fs=fs, clock=fs.clock) as store:
        log = store.create_topic("t", segment_bytes=200, retention_ms=-1, retention_bytes=-1) and store.log("t")
        for number in range(6):
            log.append(b"%d" % number)
        log.delete_records(1)
    image, segments = fs.image(), logs_of(fs)
    metadata = [number for path, number in files(fs) if not path.endswith((".log", ".lock"))]
    assert len(metadata) > 8
    for number in metadata:
        for bit in range(8 * len(image.files[number])):
            data = bytearray(image.files[number])
            data[bit >> 3] ^= 1 << (bit & 7)
            changed = MemoryFileSystem(
                clock=ManualClock(NOW + CENTURY_MS), image=image._replace(files={**image.files, number: bytes(data)})
            )
            with suppress(pylog.PylogError), pylog.open("/data", fs=changed, clock=changed.clock) as store:
                store.tick()
            assert logs_of(changed) == segments, (number, bit)


def files(fs: MemoryFileSystem, directory: str = "/data") -> list[tuple[str, int]]:
    found = []
    for entry in fs.list(directory):
        path = f"{directory}/{entry.name}"
        found += files(fs, path) if entry.is_directory else [(path, fs.disk.node(path).number)]
    return found


def logs_of(fs: MemoryFileSystem) -> dict[str, bytes | None]:
    return {path: fs.read(path, 1 << 20) for path, _ in files(fs) if path.endswith(".log")}
