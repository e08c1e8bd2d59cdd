"""The operations of `growth` that belong to an `AsyncStore` and its logs."""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

import pyarrow as pa

import pylog
import pylog.aio

if TYPE_CHECKING:
    from pylog.aio import AsyncLog
    from support.campaign.growth_scene import Scene

T: Final = pylog.TopicPartition("t", 0)
TABLE: Final = pa.table({"value": [b"x" * 100] * 50})


def _async_store_of_its_own(s: Scene) -> None:
    path = os.path.join(s.root, s.name())

    async def use() -> None:
        async with pylog.aio.open(path, durability="os") as store:
            await store.create_topic("t")
            await store.add_partitions("t", 2)
            await store.alter_topic("t", retention_bytes=1000)
            async with await store.producer() as producer:
                await producer.send_and_wait("t", b"x")
            async with await store.consumer("t", auto_offset_reset="earliest") as consumer:
                await consumer.getone()
            await store.delete_topic("t")

    asyncio.run(use())
    shutil.rmtree(path)


def _async_log(s: Scene) -> None:
    log = s.run(s.administering.log("t"))
    first = s.run(log.append(b"x" * 100))
    s.run(log.append_many([b"x" * 100] * 50))
    s.run(log.append_arrow(TABLE))
    s.run(log.read(first))
    s.run(log.read_many([first]))
    s.run(log.offset_for_timestamp(s.number))
    s.run(_read_async(log, first))
    s.run(log.truncate(first))
    s.run(log.delete_records(first - 200))


async def _read_async(log: AsyncLog, first: int) -> None:
    for reading in (log.records(first), log.scan(first), log.follow(first, timeout_ms=1)):
        async with reading:
            assert [each async for each in reading]


OPERATIONS: Final[dict[str, Callable[[Scene], object]]] = {
    **dict.fromkeys(
        [
            f"AsyncStore.{name}"
            for name in ("close", "create_topic", "add_partitions", "alter_topic", "delete_topic", "producer", "consumer")
        ],
        _async_store_of_its_own,
    ),
    "AsyncStore.log": lambda s: s.run(s.administering.log("t")),
    "AsyncStore.topic": lambda s: s.run(s.administering.topic("t")),
    "AsyncStore.compact": lambda s: (s.store.log("c").append(b"x" * 100, key=b"k"), s.run(s.administering.compact("c"))),
    "AsyncStore.start_and_end_offsets": lambda s: s.run(s.administering.start_and_end_offsets([T])),
    "AsyncStore.run": lambda s: s.run(s.administering.run(pylog.Store.topics)),
    "AsyncLog.run": lambda s: s.run(s.of("AsyncLog").run(pylog.Log.flush)),
    **dict.fromkeys([f"AsyncLog.{name}" for name in ("append", "append_many", "append_arrow", "read", "records")], _async_log),
    **dict.fromkeys([f"AsyncLog.{name}" for name in ("scan", "follow", "truncate", "delete_records")], _async_log),
    "AsyncLog.offset_for_timestamp": _async_log,
    "AsyncLog.read_many": _async_log,
}
