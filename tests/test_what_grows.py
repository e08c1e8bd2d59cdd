"""A store that stays open: what belonged to a deleted topic goes with it, and reports hold each finding once."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
from pathlib import Path

import pytest

import pylog

_DELETE = "import sys, pylog\nwith pylog.open(sys.argv[1]) as store: [store.delete_topic(name) for name in sys.argv[2:]]"


def _delete_elsewhere(root: Path, *names: str) -> None:
    subprocess.run([sys.executable, "-c", _DELETE, str(root), *names], check=True)


def _deleted_files_that_are_open() -> int:
    gc.collect()
    count = 0
    for number in os.listdir("/proc/self/fd"):
        try:
            count += os.readlink(f"/proc/self/fd/{number}").endswith(" (deleted)")
        except OSError:
            continue
    return count


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="open files are counted in /proc")
@pytest.mark.pair("close", "second process")
def test_a_tick_closes_the_files_of_topics_that_another_process_deleted(tmp_path: Path) -> None:
    before = _deleted_files_that_are_open()
    with pylog.open(str(tmp_path), durability=pylog.Durability.OS) as store:
        for name in ("kept", "read", "written"):
            store.create_topic(name)
            store.log(name).append(b"x")
        store.tick()
        held = store.log("read")
        assert [record.value for record in held.records()] == [b"x"]
        _delete_elsewhere(tmp_path, "read", "written")
        store.tick()
        assert _deleted_files_that_are_open() == before
        store.log("kept").append(b"y")
        with pytest.raises(pylog.UnknownTopicOrPartitionError, match="deleted"):  # as before the tick: the store is open
            held.append(b"late")
        with pytest.raises(pylog.UnknownTopicOrPartitionError, match="deleted"):
            held.end_offset  # noqa: B018 - the property is the call
        assert [record.value for record in store.log("kept").records()] == [b"x", b"y"]
        assert store.log("kept") is store.log("kept")


def test_each_finding_is_reported_once_however_often_a_log_is_opened(tmp_path: Path) -> None:
    with pylog.open(str(tmp_path), durability=pylog.Durability.OS) as store:
        store.create_topic("t")
        store.log("t").append_many([b"x"] * 10)
    (tmp_path / "t-0" / "durable-point").unlink()  # as a broker leaves it
    (tmp_path / ".kafka_cleanshutdown").unlink()
    with (tmp_path / "t-0" / f"{0:020d}.log").open("ab") as file:
        file.write(b"\1" * 40)
    with pylog.open(str(tmp_path), mode="r") as store:
        for _ in range(5):
            assert store.log("t").end_offset == 10
            store.metrics()
        assert [finding.kind for finding in store.recovery_report] == ["torn"]
