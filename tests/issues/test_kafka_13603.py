"""KAFKA-13603: an emptied log kept its end in the name of an empty segment alone, and a clean shutdown did not sync that."""

from __future__ import annotations

import pytest

import pylog
from pylog.testing import MemoryFileSystem


@pytest.mark.parametrize("lost", [(), (".index", ".timeindex")], ids=["all files", "no index files"])
def test_an_emptied_log_goes_on_where_it_ended_after_a_clean_shutdown_and_a_power_loss(lost: tuple[str, ...]) -> None:
    fs = MemoryFileSystem()
    with pylog.open("/data", fs=fs, clock=fs.clock) as store:
        log = store.create_topic("t", segment_bytes=200) and store.log("t")
        log.append_many([b"%d" % number for number in range(20)])
        end = log.end_offset
        log.delete_records(end)
        store.tick()
        assert list(log.records()) == []
    for entry in fs.list("/data/t-0"):
        if entry.name.endswith(lost or ("nothing",)):
            fs.remove(f"/data/t-0/{entry.name}")
    fs.sync_directory("/data/t-0")
    fs = fs.crash()
    with pylog.open("/data", fs=fs, clock=fs.clock) as store:
        log = store.log("t")
        assert (log.start_offset, log.end_offset) == (end, end)
        assert [finding for finding in log.recovery_report if finding.kind != "rebuilt"] == []
        assert log.append(b"next") == end
