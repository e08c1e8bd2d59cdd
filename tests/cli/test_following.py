"""`pylog cat --follow` beside a process that deletes the topic and creates it again."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from threading import Timer

import pytest

import pylog

AGAIN = "pylog: topic 't' was deleted; if it is created again, its records follow from the first one\n"


def followed(path: Path, count: int, then: Callable[[subprocess.Popen[str]], None]) -> tuple[list[tuple[int, str]], str]:
    """Follows a topic: the first `count` rows, and those that `then` has asked for; and what was said meanwhile."""
    command = [sys.executable, "-m", "pylog", "cat", str(path), "t", "-f", "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        watchdog = Timer(300, process.kill)
        watchdog.daemon = True  # a test that fails does not wait for it
        watchdog.start()
        assert process.stdout is not None
        assert process.stderr is not None
        rows = [json.loads(process.stdout.readline()) for _ in range(count)]
        then(process)
        rows += [json.loads(process.stdout.readline()) for _ in range(count + 3)]
        process.kill()
        watchdog.cancel()
        return [(row["partition"], row["value"]) for row in rows], process.stderr.read()


@pytest.mark.slow
def test_a_topic_that_is_created_again_with_more_records_and_partitions_is_followed_from_its_start(tmp_path: Path) -> None:
    with pylog.open(tmp_path / "s") as store:
        store.create_topic("t")
        store.log("t").append_many([b"a", b"b"])

        def create_again(process: subprocess.Popen[str]) -> None:
            store.delete_topic("t")
            assert process.stderr is not None
            assert process.stderr.readline() == AGAIN  # it waits
            store.create_topic("t", partition_count=2)
            store.log("t", 0).append_many([b"c", b"d", b"e"])
            store.log("t", 1).append_many([b"f", b"g"])

        found, said = followed(tmp_path / "s", 2, create_again)
    assert found[:2] == [(0, "a"), (0, "b")]
    assert sorted(found[2:]) == [(0, "c"), (0, "d"), (0, "e"), (1, "f"), (1, "g")]
    assert said == ""
