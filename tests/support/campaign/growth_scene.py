"""A store and its clients, whose operations the table of growth repeats."""

from __future__ import annotations

import asyncio
import gc
import os
import shutil
from contextlib import ExitStack
from typing import Any, Final, Self

import pylog
from pylog.aio import AsyncConsumer, AsyncProducer, AsyncStore
from support.campaign.processes import new_directory

T: Final = pylog.TopicPartition("t", 0)


class Scene:
    """A store with topics, clients and a group, in a directory of its own; a context manager."""

    def __enter__(self) -> Self:
        self._last = ExitStack()
        self.root = str(new_directory("growth"))
        self._last.callback(shutil.rmtree, self.root)
        self.path = os.path.join(self.root, "store")
        self.file = os.path.join(self.root, "offsets.csv")
        self.number = 0
        config = pylog.OffsetsConfig(topic_num_partitions=1, topic_segment_bytes=50_000)
        few = pylog.TransactionsConfig(topic_num_partitions=1, topic_segment_bytes=50_000)
        opened = pylog.open(self.path, durability=pylog.Durability.OS, offsets=config, transactions=few)
        self.store = self._last.enter_context(opened)
        self.store.create_topic("t", segment_bytes=50_000, retention_bytes=100_000, producer_id_expiration_ms=1)
        self.store.create_topic("c", cleanup_policy="compact", segment_bytes=5_000)
        self.log = self.store.log("t")
        self.log.append_many([b"x" * 100] * 200)
        self.store.offsets.commit("g", {T: 3})
        self.producer = self._last.enter_context(self.store.producer())
        self.consumer = self._last.enter_context(self.store.consumer(auto_offset_reset="earliest", group_id="read"))
        self.consumer.assign([T])
        self.loop = asyncio.new_event_loop()
        self._last.callback(self.loop.close)
        self.sending = AsyncProducer(self.store.producer())
        self.reading = AsyncConsumer(self.store.consumer(auto_offset_reset="earliest"))
        self.run(self.reading.run(pylog.Consumer.assign, [T]))
        self.administering = AsyncStore(self.store)
        return self

    def __exit__(self, *error: object) -> None:
        self.run(self.sending.close())
        self.run(self.reading.close())
        self._last.__exit__(None, None, None)

    def run(self, call: Any) -> Any:
        """Awaits a coroutine in the scene's event loop."""
        return self.loop.run_until_complete(call)

    def rest(self) -> None:
        """Lets retention, compaction and the collector do their work, so that only what stays is measured."""
        self.store.flush()
        self.store.tick()
        self.store.compact("c")
        gc.collect()

    def name(self) -> str:
        """A name that was not used before."""
        self.number += 1
        return f"name{self.number}"

    def of(self, kind: str) -> Any:
        """The object of a class whose parameterless methods and properties are called."""
        return {
            "Store": lambda: self.store,
            "Log": lambda: self.log,
            "Producer": lambda: self.producer,
            "Consumer": lambda: self.consumer,
            "Group": lambda: self.store.group("g"),
            "OffsetStore": lambda: self.store.offsets,
            "TransactionAdmin": lambda: self.store.transactions,
            "FutureRecordMetadata": lambda: self.producer.send("t", b"x"),
            "AsyncConsumer": lambda: self.reading,
            "AsyncProducer": lambda: self.sending,
            "AsyncStore": lambda: self.administering,
            "AsyncLog": lambda: self.run(self.administering.log("t")),
        }[kind]()
