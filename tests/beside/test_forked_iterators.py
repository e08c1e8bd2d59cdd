"""Iterators that were begun before a fork: in the child each says that the store cannot be used there, and reads nothing."""

from __future__ import annotations

import os
import textwrap
from pathlib import Path

import pytest

from support import warm

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork"),
]

PROGRAM = """
    import asyncio, itertools, os, sys, pylog
    from pylog import aio
    path, kind, compression, mode = sys.argv[1:]

    def values(frames):
        for frame in frames:
            yield from frame["value"].to_pylist()

    def polled(consumer):
        while True:
            for records in consumer.poll(50, max_records=1).values():
                yield from (record.value for record in records)

    def polled_arrow(consumer):
        while True:
            yield from values(consumer.poll_arrow(50, max_records=1).values())

    def sliced():
        from pylog.spark.options import ScanOptions
        from pylog.spark.planner import LogSlice
        from pylog.spark.reader import read_slice
        frames = read_slice(LogSlice(path, "t", 0, 0, 600), ScanOptions(("value",), "read_committed", True, True))
        for frame in frames:
            yield from frame.column("value").to_pylist()

    def by_reading():
        for offset in itertools.count():
            yield log.read(offset).value

    def consumer(**options):
        return store.consumer("t", auto_offset_reset="earliest", **options)

    KINDS = {
        "scan": lambda: values(log.scan(max_rows=1)),
        "scan read_committed": lambda: values(log.scan(max_rows=1, isolation_level="read_committed")),
        "records": lambda: (record.value for record in log.records()),
        "records of a part": lambda: (record.value for record in log.records(0, 600, isolation_level="read_committed")),
        "follow": lambda: values(log.follow(0, max_rows=1)),
        "read": by_reading,
        "consumer": lambda: (record.value for record in consumer()),
        "consumer of a group": lambda: (record.value for record in consumer(group_id="g")),
        "poll": lambda: polled(consumer()),
        "poll_arrow": lambda: polled_arrow(consumer()),
        "read_batches": lambda: values(pylog.read_batches(path, "t", columns=["value"])),
        "spark": sliced,
    }
    with pylog.open(path, durability=pylog.Durability.OS) as store:
        store.create_topic("t", segment_bytes=20_000)
        for first in range(0, 600, 20):
            store.log("t").append_many([b"%d " % number * 40 for number in range(first, first + 20)], compression=compression)
    store = pylog.open(path, mode=mode, durability=pylog.Durability.OS)
    log = store.log("t")
    values_there = KINDS[kind]()
    assert next(values_there).startswith(b"0 ")
    descriptors = sorted(int(each) for each in os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else []
    child = os.fork()
    if child == 0:
        others = [os.open("/dev/zero", os.O_RDONLY) for _ in range(50)]  # whatever number is free is now that of another file
        served = 0
        try:
            for value in values_there:
                served += 1
                if value != b"%d " % served * 40:
                    os._exit(3)
            os._exit(4 if served < 599 else 0)  # all of them, and right
        except pylog.ClosedError as error:
            os._exit(0 if "fork" in str(error) else 5)
        except BaseException as error:
            print(repr(error), file=sys.stderr, flush=True)
            os._exit(6)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    rest = list(itertools.islice(values_there, 599))
    assert rest == [b"%d " % number * 40 for number in range(1, 600)], rest[:3]  # the parent goes on
    print("right")
    os._exit(0)
"""
KINDS = (
    *("scan", "scan read_committed", "records", "records of a part", "follow", "read", "consumer", "consumer of a group"),
    *("poll", "poll_arrow", "read_batches", "spark"),
)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("compression", "mode"), [("none", "rw"), ("zstd", "r")])
def test_an_iterator_begun_before_a_fork_serves_the_right_records_or_a_closed_error_in_the_child(
    tmp_path: Path, kind: str, compression: str, mode: str
) -> None:
    mode = "rw" if "group" in kind else mode  # a member writes
    command = ["-W", "ignore::DeprecationWarning", "-c", textwrap.dedent(PROGRAM)]
    done = warm.run([*command, tmp_path / "store", kind, compression, mode])
    assert done.stdout == "right\n", (done.returncode, done.stderr[-2000:])
