"""A store that stays open: no public operation leaves anything behind, and a year of topics takes what one day takes."""

from __future__ import annotations

import gc
import json
import os
import subprocess
import sys
import tempfile
import tracemalloc
from collections.abc import Iterator
from pathlib import Path

import pytest

import pylog
from pylog.clock import ManualClock
from pylog.opening import open_store
from support.campaign import growth
from support.campaign.growth_scene import Scene
from support.campaign.processes import own_environment

_DAY_MS = 86_400_000
_DAYS = 365
_WARM_DAYS = 150  # caches with a bound are full then


def test_the_table_of_growth_has_every_public_operation() -> None:
    assert growth.missing() == []


@pytest.mark.slow
def test_no_public_operation_leaves_anything_behind() -> None:
    """The quick form of `./dev torture grows`, in a process of its own: memory and descriptors are the process's."""
    done = subprocess.run(
        [sys.executable, "-m", "support.campaign.growth", "0.015"],
        stdout=subprocess.PIPE,
        check=True,
        env=own_environment(),
        text=True,
    )
    found = json.loads(done.stdout)
    assert set(found) == set(growth.public_operations())
    assert [each for what in found.values() for each in what] == []


@pytest.mark.slow
@pytest.mark.parametrize("leak", ["memory", "descriptors", "files", "threads"])
def test_the_table_of_growth_notices_what_grows(leak: str, monkeypatch: pytest.MonkeyPatch) -> None:
    kept: list[object] = []
    ended = growth.threading.Event()

    def call(scene: Scene) -> None:
        if leak == "memory":
            kept.append(bytes(3000))
        elif leak == "descriptors":
            kept.append(os.open(scene.root, os.O_RDONLY))
        elif leak == "files":
            Path(scene.root, scene.name()).touch()
        else:
            growth.threading.Thread(target=ended.wait, daemon=True).start()

    monkeypatch.setitem(growth.OPERATIONS, "leak", call)
    found = growth.table(["leak"], 0.005)["leak"]
    ended.set()
    if leak == "descriptors":
        for descriptor in kept:
            assert isinstance(descriptor, int)
            os.close(descriptor)
    assert any(leak in each for each in found)


@pytest.fixture
def fast_root(tmp_path: Path) -> Iterator[Path]:
    """A directory in memory, if the system has one: a year of topics needs thousands of syncs."""
    shared = Path("/dev/shm")
    if not os.access(shared, os.W_OK):
        yield tmp_path
        return
    with tempfile.TemporaryDirectory(dir=shared) as root:
        yield Path(root)


def _held() -> tuple[int, int, int]:
    """Traced memory, descriptors, maps."""
    gc.collect()
    proc = Path("/proc/self")
    maps = (proc / "maps").read_text().count("\n") if proc.exists() else 0
    return tracemalloc.get_traced_memory()[0], len(os.listdir("/proc/self/fd" if proc.exists() else "/dev/fd")), maps


@pytest.mark.slow
@pytest.mark.pair("close", "second process")
def test_a_year_of_topics_leaves_what_one_day_leaves(fast_root: Path) -> None:
    """A topic a day is created, appended to, consumed, committed and deleted, by this store or by another one."""
    clock = ManualClock(1_700_000_000_000)
    offsets = pylog.OffsetsConfig(topic_num_partitions=1, topic_segment_bytes=50_000)
    level = pylog.Durability.OS
    with (
        open_store(str(fast_root), clock=clock, offsets=offsets, durability=level) as store,
        open_store(str(fast_root), clock=clock, offsets=offsets, durability=level) as other,
        store.producer() as producer,
        store.consumer(auto_offset_reset="earliest") as watcher,
    ):
        watcher.subscribe(pattern="day.*")
        read = 0

        def day(number: int) -> None:
            nonlocal read
            name = f"day{number}"
            store.create_topic(name)
            store.log(name).append_many([b"x" * 100] * 100)
            producer.send(name, b"y").result()
            with other.consumer(name, group_id="daily", auto_offset_reset="earliest") as consumer:
                assert sum(map(len, consumer.poll(1000, 1000).values())) == 101
                consumer.commit()
            store.offsets.commit(f"only {name}", {(name, 0): 5})
            clock.advance(1000)
            read += sum(map(len, watcher.poll(0, 1000).values()))
            (store if number % 2 else other).delete_topic(name)
            clock.advance(_DAY_MS)
            store.tick()
            other.tick()

        tracemalloc.start()
        try:
            for number in range(_WARM_DAYS):
                day(number)
            memory, descriptors, maps = _held()
            for number in range(_WARM_DAYS, _DAYS):
                day(number)
            assert read == 101 * _DAYS
            now = _held()
        finally:
            tracemalloc.stop()
        assert now[0] - memory < 1000 * (_DAYS - _WARM_DAYS), "memory"  # a topic that stays takes 60,000 bytes
        assert now[1] <= descriptors + 2
        assert now[2] <= maps + 4
        assert store.groups() == []
        assert sum(len(files) for _, _, files in os.walk(fast_root)) < 40
