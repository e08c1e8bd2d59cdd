"""Stores to be checked, and what `check` finds in them."""

from __future__ import annotations

import itertools
from pathlib import Path

import pylog
from pylog.fs import OsFileSystem
from pylog.segment.seal import digest_of, make_seal, write_seal
from support.engines import segments_of

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


def seal_all(log: pylog.Log) -> None:
    segments = segments_of(log)
    for segment, following in itertools.pairwise(segments):
        digest = digest_of(segment, segment.size, 100)
        write_seal(FS, segment.directory, make_seal(segment.base_offset, following.base_offset, digest))
