"""The rows of `beside_calls` that call the classes of `pylog.aio`."""

from __future__ import annotations

import asyncio
import itertools
from contextlib import suppress
from typing import TYPE_CHECKING, Final

import pyarrow as pa

import pylog
from pylog import TopicPartition, aio
from support.campaign.beside_changes import check_value, new_value

if TYPE_CHECKING:
    from support.campaign.beside_calls import Caller

PLACE: Final = TopicPartition("t", 0)


ALSO_ASYNC: Final = {  # see `read_async` for the others
    "AsyncStore": (
        *("create_topic", "add_partitions", "alter_topic", "delete_topic", "groups", "flush", "tick", "retain", "compact"),
        *("check", "verify", "metrics", "producer", "consumer", "close"),
    ),
    "AsyncLog": (
        *(
            "append",
            "append_many",
            "append_arrow",
            "flush",
            "delete_records",
            "truncate",
            "read",
            "read_many",
            "offset_for_timestamp",
        ),
    ),
}


def produce_async(caller: Caller) -> None:
    async def work() -> None:
        producer = aio.AsyncProducer(caller.store.producer())
        try:
            value = new_value()
            sent = await producer.send_and_wait("t", value, key=value, partition=0)
            caller.note(sent.offset, value)
            await producer.send_arrow("t", pa.table({"key": [value], "value": [value]}))
            batch = producer.create_batch()
            batch.append(key=value, value=value)
            await (await producer.send_batch(batch, "t", partition=0))
            assert 0 in await producer.partitions_for("t")
            await producer.flush()
        finally:
            with suppress(pylog.ClosedError):
                await producer.close()

    asyncio.run(work())


def consume_async(caller: Caller) -> None:
    async def work() -> None:
        consumer = aio.AsyncConsumer(caller.store.consumer("t", auto_offset_reset="earliest"))
        try:
            for record in itertools.chain.from_iterable((await consumer.poll(5, max_records=20)).values()):
                check_value(record.value)
            await consumer.poll_arrow(1, max_records=20)
            for record in itertools.chain.from_iterable((await consumer.getmany(timeout_ms=5, max_records=20)).values()):
                check_value(record.value)
            assert isinstance(await consumer.run(pylog.Consumer.topics), set)
            consumer.wakeup()
        finally:
            await consumer.close()

    asyncio.run(work())


def read_async(caller: Caller) -> None:
    async def work() -> None:
        store = aio.AsyncStore(caller.store)
        assert all(isinstance(name, str) for name in await store.topics())
        assert (await store.topic("t")).partition_count
        await store.start_and_end_offsets([PLACE])
        log = await store.log("t")
        end = await log.end_offset()
        start = max(await log.start_offset(), end - 20)
        async with log.records(start) as records:
            async for record in records:
                check_value(record.value)
        for reading in (log.scan(start), log.follow(start, timeout_ms=1)):
            async with reading:
                async for frame in reading:
                    for value in frame["value"].to_pylist():
                        check_value(value)

    asyncio.run(work())
