"""Stores to be checked, and what `check` finds in them."""

from __future__ import annotations

import hashlib
import itertools
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import pylog
from pylog.fs import OsFileSystem
from pylog.log.checking.check import check_store
from pylog.log.checking.report import Partition, Report
from pylog.log.durable_point import DurablePoint
from pylog.log.recovery.findings import Finding
from pylog.record.types import TopicPartition
from pylog.segment.header_digest import digest_of
from pylog.segment.seal import make_seal, write_seal
from support.engines import engine_of, segments_of

T0 = TopicPartition("t", 0)


FS = OsFileSystem()

SMALL = {"segment_bytes": 600, "index_interval_bytes": 100}


def filled(root: Path, records: int = 30, **config: int) -> None:
    """A store with some small segments, each but the last one sealed."""
    with pylog.open(root) as store:
        store.create_topic("t", **(config or SMALL))
        log = store.log("t")
        for number in range(records):
            log.append(b"value %d" % number, timestamp=1_000 + number)
        seal_all(log)


def listing(root: Path) -> dict[str, tuple[str, int]]:
    """The digest and the time of change of each file below a directory."""
    return {
        str(path): (hashlib.sha256(path.read_bytes()).hexdigest(), path.stat().st_mtime_ns)
        for path in root.rglob("*")
        if path.is_file()
    }


def seal_all(log: pylog.Log) -> None:
    segments = segments_of(log)
    for segment, following in itertools.pairwise(segments):
        digest = digest_of(segment, segment.size, 100)
        write_seal(FS, segment.directory, make_seal(segment.base_offset, following.base_offset, digest))


def partition_of(log: pylog.Log, root: Path, **changes: Any) -> Partition:
    """A partition as its log sees it."""
    directory = str(root / f"{log.partition.topic}-{log.partition.partition}")
    return Partition(FS, log.partition, directory, engine_of(log).known, True, True, log.recovery_report)._replace(**changes)


def checked(log: pylog.Log, root: Path, **changes: Any) -> Report:
    return check_store(FS, str(root), [lambda: partition_of(log, root, **changes)])


def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("sound") / "store"
    filled(root)
    return root


def root(sound: Path, tmp_path: Path) -> Path:
    """A closed store of 30 records in four segments or more, for a test to damage."""
    return shutil.copytree(sound, tmp_path / "store")


def directory(root: Path) -> Path:
    return root / "t-0"


def bases(directory: Path) -> list[int]:
    return sorted(int(path.stem) for path in directory.glob("*.log"))


def findings(root: Path, **changes: Any) -> list[Finding]:
    """What `check` says of a store that is open for reading, taken for one that nobody else has open."""
    with pylog.open(root, mode="r") as store:
        return list(checked(store.log("t"), root, **({"writable": False} | changes)).findings)


def told(root: Path, **changes: Any) -> list[tuple[str, str]]:
    return [(finding.kind, Path(finding.path).name) for finding in findings(root, **changes)]


def flip(path: Path, position: int, bits: int = 1) -> None:
    data = bytearray(path.read_bytes())
    data[position] ^= bits
    path.write_bytes(data)


def header(directory: Path, change: Callable[[bytes], bytes]) -> None:
    path = directory / "durable-point"
    path.write_bytes(change(path.read_bytes()))


def newest(root: Path) -> DurablePoint:
    with pylog.open(root, mode="r") as store:
        slot = partition_of(store.log("t"), root).slot()
    assert slot is not None
    return slot
