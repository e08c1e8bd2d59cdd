"""The machine of a store on real files: partitions are links, the directory is another owner's, and commands change it too."""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import invariant, precondition, rule

import pylog
from pylog import OffsetsConfig
from support.campaign.retention_model import starts_allowed
from support.campaign.store_machine import Shape, StoreMachine, World, log_of, names, numbers, options, processes
from support.cli import call
from support.trust.features import covers

OWNER = 12_345  # of the directory, where this process may give files away
MAY_GIVE_AWAY = os.geteuid() == 0


class DiskMachine(StoreMachine):
    """Two stores of one process. A crash takes more than a process can do to itself: the machine in memory has it."""

    def __init__(self) -> None:
        self.home = Path(tempfile.mkdtemp(prefix="pylog-machine-"))
        self.path = self.home / "store"
        self.path.mkdir()
        if MAY_GIVE_AWAY:
            os.chown(self.path, OWNER, OWNER)
        super().__init__()

    def teardown(self) -> None:
        super().teardown()
        shutil.rmtree(self.home)

    def process(self, who: int) -> pylog.Store:
        store = self.stores[who]
        if store is None:
            store = self.stores[who] = pylog.open(self.path, clock=self.clock, offsets=OffsetsConfig(topic_num_partitions=1))
        return store

    @contextmanager
    def doing(self, asked: list[World]) -> Iterator[None]:
        """Nothing crashes here."""
        self.uncertain = None
        yield

    def kill(self, who: int) -> None:
        """Not here."""

    def crash(self, kind: str, part: float, seed: int) -> None:
        """Not here."""

    @rule(who=processes, name=names)
    @covers(("links", "second process"))
    def delete(self, who: int, name: str) -> None:
        """Nothing outside of the directory is deleted: a topic with a linked partition stays."""
        if any(path.is_symlink() for path in self.path.glob(f"{name}-*")):
            with pytest.raises(pylog.IllegalStateError):
                self.process(who).delete_topic(name)
        else:
            super().delete(who, name)

    def append_to(self, who: int, name: str, partition: int, given: list[Shape], level: str, *, keyed: bool = True) -> None:
        """The log of a topic that the other store created again may say so at its first append; it is got again then."""
        try:
            super().append_to(who, name, partition, given, level, keyed=keyed)
        except pylog.UnknownTopicOrPartitionError:
            super().append_to(who, name, partition, given, level, keyed=keyed)

    # ---- what only real files have -------------------------------------------------------------------------------------------

    @precondition(lambda self: self.world)
    @rule(number=numbers)
    @covers(
        *(("links", name) for name in ("close", "retention by time", "retention by size", "truncation", "delete_records")),
        *(
            ("links", name)
            for name in ("option change", "compaction", "groups", "scan and follow", "timestamps", "second process")
        ),
    )
    def move_to_another_disk(self, number: int) -> None:
        """A partition's directory is moved, and a link to it is left, while no store is open."""
        for who in (0, 1):
            self.close(who)
        name = f"{self.existing(number)}-0"
        partition = self.path / name
        if partition.is_dir() and not partition.is_symlink():
            elsewhere = Path(tempfile.mkdtemp(dir=self.home)) / name
            shutil.move(partition, elsewhere)
            partition.symlink_to(elsewhere)

    @precondition(lambda self: self.world)
    @rule(number=numbers, changed=st.fixed_dictionaries({}, optional=options).filter(bool))
    @covers(("option change", "links"), ("option change", "second process"))
    def alter_by_command(self, number: int, changed: dict[str, Any]) -> None:
        """The open stores go by what the command has set."""
        name = self.existing(number)
        given = [part for key, value in changed.items() for part in ("--set", f"{key.replace('_', '.')}={value}")]
        done = call("config", self.path, name, *given)
        assert done.code == 0, done.complaints
        self.world = {**self.world, name: replace(self.world[name], config={**self.world[name].config, **changed})}

    @precondition(lambda self: self.world)
    @rule(who=processes)
    @covers(("retention by time", "links"), ("retention by size", "links"), ("retention by time", "second process"))
    def retain_by_command(self, who: int) -> None:
        """By the system's clock, by which all that is here is years old."""
        store, allowed = self.process(who), {}
        for name, topic in self.world.items():
            for partition, promise in enumerate(topic.promises):
                times = self.times.get(self.place(name, partition), [])
                log, now_ms = log_of(store, name, partition), time.time_ns() // 1_000_000
                allowed[name, partition] = starts_allowed(log, promise, topic.config, times, now_ms)
                self.disturb(name, partition)
        done = call("retain", self.path, "--yes")
        assert done.code == 0, done.complaints
        self.adopt_starts(store, allowed)

    @invariant()
    def files_belong_to_the_owner_of_the_directory(self) -> None:
        if MAY_GIVE_AWAY:
            others = [path for path in self.path.rglob("*") if path.lstat().st_uid != OWNER and not path.is_symlink()]
            assert others == []
