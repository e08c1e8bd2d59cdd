"""Planning large stores: what it costs grows with the partitions that are read, not with what they hold."""

from __future__ import annotations

import pickle
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from pylog.errors import OffsetOutOfRangeError
from pylog.fs import OsFileSystem
from pylog.spark import parallel
from pylog.spark.options import read_options
from pylog.spark.planner import LogSlice, plan
from support.faults.sparse_log import TOPIC, make_store

GIB = 1 << 30


def planned(directory: Path, **options: str) -> list[LogSlice]:
    return plan(read_options({"path": str(directory), "subscribe": TOPIC} | options))


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How often the file system was asked for what."""
    found: Counter[str] = Counter()

    def counted(name: str) -> Any:
        real = getattr(OsFileSystem, name)

        def call(self: OsFileSystem, path: str, *rest: Any, **named: Any) -> Any:
            found[name] += 1
            return real(self, path, *rest, **named)

        return call

    for name in ("open", "read", "list", "exists", "map"):
        monkeypatch.setattr(OsFileSystem, name, counted(name))
    return found


def cost(directory: Path, calls: Counter[str], **shape: int) -> Counter[str]:
    """The calls for one more partition of that shape."""
    totals = []
    for partitions in (3, 13):
        store = directory / "-".join(map(str, [partitions, *shape.values()]))
        make_store(store, partitions=partitions, **shape)
        calls.clear()
        assert planned(store, maxBytesPerPartition=str(GIB))
        totals.append(calls.copy())
    few, many = totals
    assert not any((many[name] - few[name]) % 10 for name in many), "each partition costs the same"
    return Counter({name: (many[name] - few[name]) // 10 for name in many})


def test_a_partition_costs_one_listing_and_a_few_files_however_many_segments_it_has(tmp_path: Path, calls: Counter[str]):
    small, large = (cost(tmp_path, calls, segments=segments) for segments in (2, 40))
    assert small == large
    assert large["list"] == 1
    assert large["open"] + large["read"] <= 12


def test_a_segment_is_read_only_where_it_is_cut(tmp_path: Path, calls: Counter[str]):
    make_store(tmp_path / "store", partitions=1, segments=20)
    counts = []
    for size in (200_000_000, 60_000_000):  # two segments of a hundred million bytes to a task, or each one cut
        calls.clear()
        parts = planned(tmp_path / "store", maxBytesPerPartition=str(size))
        assert [part.start for part in parts[1:]] == [part.end for part in parts[:-1]]
        counts.append((len(parts), calls["open"] + calls["read"]))
    (whole, opened), (cut, opened_to_cut) = counts
    assert whole == 10
    assert cut > 20
    assert opened_to_cut - opened >= 2 * 19


def test_a_plan_is_small(tmp_path: Path):
    make_store(tmp_path / "a-store-with-a-name-of-usual-length", partitions=20, segments=50)
    parts = planned(tmp_path / "a-store-with-a-name-of-usual-length", maxBytesPerPartition=str(GIB))
    assert len(parts) == 20 * 5  # 5 GB to a partition
    path = len(str(tmp_path)) + len("/a-store-with-a-name-of-usual-length")
    assert max(len(pickle.dumps(part, protocol=5)) for part in parts) < path + 90


def test_partitions_that_predicates_leave_out_are_not_opened(tmp_path: Path, calls: Counter[str]):
    from pyspark.sql.datasource import EqualTo

    from pylog.spark.pushdown import pruning

    make_store(tmp_path / "store", partitions=30, segments=3)
    options = read_options({"path": str(tmp_path / "store"), "subscribe": TOPIC})
    calls.clear()
    assert {part.partition for part in plan(options, pruning([EqualTo(("partition",), 7)])[0])} == {7}
    assert calls["list"] <= 4


def test_several_processes_plan_the_same_and_fail_alike(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    store = tmp_path / "store"
    make_store(store, partitions=9, segments=3)
    alone = planned(store, maxBytesPerPartition="100000000")
    monkeypatch.setattr(parallel, "ITEMS_OF_A_PROCESS", 4)
    monkeypatch.setattr(parallel.multiprocessing, "cpu_count", lambda: 2)
    assert planned(store, maxBytesPerPartition="100000000") == alone
    ends = ",".join(f'"{number}": {10**9 if number == 7 else 5}' for number in range(9))
    with pytest.raises(OffsetOutOfRangeError, match=f"ending offset 1000000000 of {TOPIC}-7 does not exist yet") as caught:
        planned(store, endingOffsets=f'{{"{TOPIC}": {{{ends}}}}}')
    assert caught.value.offset == 10**9
