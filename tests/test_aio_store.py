"""A store and its logs from asyncio: `pylog.aio.open`, `AsyncStore`, `AsyncLog` and their iterations."""

from __future__ import annotations

import asyncio
import concurrent.futures.thread
import gc
import inspect
import threading
import time
from itertools import chain
from pathlib import Path
from typing import Any

import pytest

import pylog
from pylog import TopicPartition
from pylog.aio import AsyncIteration, AsyncLog, AsyncStore


def run(work: Any) -> Any:
    return asyncio.run(asyncio.wait_for(work, 60))


@pytest.mark.parametrize(("made", "of"), [(AsyncStore, pylog.Store), (AsyncLog, pylog.Log)])
def test_each_coroutine_has_the_arguments_of_the_plain_call(made: type, of: type) -> None:
    shared = [
        name
        for name, found in inspect.getmembers(made, inspect.isfunction)
        if inspect.isfunction(inspect.getattr_static(of, name, None)) and inspect.iscoroutinefunction(found)
    ]
    shared = [name for name in shared if not name.startswith("_")]
    assert len(shared) >= 8
    for name in shared:
        plain, awaited = (list(inspect.signature(getattr(each, name)).parameters.values())[1:] for each in (of, made))
        assert awaited == plain, name


def test_a_store_is_administered_without_a_plain_call(tmp_path: Path) -> None:
    async def work() -> None:
        async with pylog.aio.open(tmp_path / "d", durability="os") as store:
            topic = await store.create_topic("orders", 2, retention_ms=-1)
            assert topic == (await store.topics())["orders"] == await store.topic("orders")
            assert (await store.add_partitions("orders", 3)).partition_count == 3
            assert (await store.alter_topic("orders", retention_bytes=5)).config.retention_bytes == 5
            with pytest.raises(pylog.TopicAlreadyExistsError):
                await store.create_topic("orders")
            async with await store.producer() as producer:
                await producer.send_and_wait("orders", b"paid", partition=0)
            async with await store.consumer("orders", group_id="g", auto_offset_reset="earliest") as consumer:
                assert (await consumer.getone()).value == b"paid"
                await consumer.commit()
            assert await store.groups() == ["g"]
            assert (await store.run(lambda each: each.group("g").describe())).group_id == "g"
            place = TopicPartition("orders", 0)
            assert await store.start_and_end_offsets([place]) == {place: (0, 1)}
            assert await store.tick() == 0
            assert await store.retain(dry_run=True) == []
            assert (await store.verify()).ok
            await store.delete_topic("orders")
            assert "orders" not in await store.topics()
        with pytest.raises(pylog.ClosedError):
            await store.topics()
        await store.close()

    run(work())


def test_a_partition_is_written_read_scanned_and_followed(tmp_path: Path) -> None:
    async def work() -> None:
        store = await pylog.aio.open(tmp_path / "d", durability="os")
        await store.create_topic("t")
        log = await store.log("t")
        assert await log.append(b"0", key=b"k") == 0
        assert await log.append_many([b"%d" % number for number in range(1, 1200)]) == range(1, 1200)
        assert (await log.read(7)).value == b"7"
        assert [record.offset async for record in log.records()] == list(range(1200))
        assert [batch.num_rows async for batch in log.scan(100, 1100, max_rows=600)] == [600, 400]
        assert [batch.num_rows async for batch in log.follow(1190, timeout_ms=1)] == [10]
        assert (await log.start_offset(), await log.end_offset()) == (0, 1200)
        with pytest.raises(pylog.OffsetOutOfRangeError):
            await anext(log.records(9999))
        with pytest.raises(pylog.InvalidArgumentError):
            await anext(log.follow(0, columns=["no"]))
        await store.close()
        with pytest.raises(pylog.ClosedError):
            await anext(log.records())

    run(work())


def test_a_cancelled_step_of_an_iteration_loses_no_record(tmp_path: Path) -> None:
    async def work() -> None:
        async with pylog.aio.open(tmp_path / "d", durability="os") as store:
            await store.create_topic("t")
            log = await store.log("t")
            found: list[int] = []
            async with log.follow(0, columns=["offset"]) as following:
                for number in range(20):
                    step = asyncio.ensure_future(anext(following))
                    await asyncio.sleep(0.001 * (number % 4))
                    await log.append(b"x")
                    await asyncio.sleep(0.001 * (number % 3))
                    if step.cancel():
                        await asyncio.wait([step])
                    if not step.cancelled():
                        found += (await step)["offset"].to_pylist()
                while len(found) < 20:
                    found += (await anext(following))["offset"].to_pylist()
            assert found == list(range(20))
            assert [each async for each in following] == []

    run(work())


def test_records_before_damage_are_returned_before_the_error(tmp_path: Path) -> None:
    with pylog.open(tmp_path / "d") as plain:
        log = plain.create_topic("t", segment_bytes=1000) and plain.log("t")
        for number in range(30):
            log.append(b"%d" % number * 50)
    damaged = sorted((tmp_path / "d" / "t-0").glob("*.log"))[1]
    content = bytearray(damaged.read_bytes())
    content[70] ^= 1
    damaged.write_bytes(content)

    async def work() -> list[int]:
        async with pylog.aio.open(tmp_path / "d", mode="r") as store:
            found: list[int] = []
            log = await store.log("t")

            async def read() -> None:
                async for record in log.records():
                    found.append(record.offset)  # noqa: PERF401 - those before the error count

            with pytest.raises(pylog.CorruptionError):
                await read()
            return found

    found = run(work())
    assert found == list(range(int(damaged.stem)))
    assert found


def test_a_follower_ends_when_its_store_is_closed_or_it_is_closed_itself(tmp_path: Path) -> None:
    async def work() -> None:
        async with pylog.aio.open(tmp_path / "d", durability="os") as store:
            await store.create_topic("t")
            log = await store.log("t")
            own, others = log.follow(), log.follow()
            steps = [asyncio.ensure_future(anext(each)) for each in (own, others)]
            await asyncio.sleep(0.05)
            await own.aclose()
            with pytest.raises(StopAsyncIteration):
                await steps[0]
        with pytest.raises(pylog.ClosedError):
            await steps[1]
        with pytest.raises((pylog.ClosedError, StopAsyncIteration)):
            await anext(others)

    run(work())


def test_iterations_that_are_dropped_leave_no_thread(tmp_path: Path) -> None:
    async def work() -> None:
        async with pylog.aio.open(tmp_path / "d", durability="os") as store:
            await store.create_topic("t")
            log = await store.log("t")
            await log.append_many([b"x"] * 2000)
            for _ in range(5):
                assert await anext(log.records())
                async for _ in log.scan(max_rows=10):
                    break
                with pytest.raises(TimeoutError):
                    await asyncio.wait_for(anext(log.follow()), 0.001)
            gc.collect()

    run(work())
    until = time.monotonic() + 20
    while any(each.name.startswith("pylog-aio") for each in threading.enumerate()):
        gc.collect()
        assert time.monotonic() < until, threading.enumerate()
        time.sleep(0.01)


def test_an_iteration_that_is_collected_inside_a_thread_pool_waits_for_no_lock(tmp_path: Path) -> None:
    async def work() -> None:
        async with pylog.aio.open(tmp_path / "d", durability="os") as store:
            await store.create_topic("t")
            log = await store.log("t")
            await log.append_many([b"x"] * 2000)
            reading = [log.records()]
            await anext(reading[0])
            submits = concurrent.futures.thread._global_shutdown_lock  # type: ignore[attr-defined] # held by each submit

            def collect() -> None:
                with submits:
                    reading.clear()
                    gc.collect()

            collecting = threading.Thread(target=collect, daemon=True)
            collecting.start()
            collecting.join(20)
            stuck = collecting.is_alive()
            if stuck:
                submits.release()
            assert not stuck

    run(work())


def test_coroutines_that_share_an_iteration_get_each_item_once() -> None:
    async def work() -> list[int]:
        numbers = AsyncIteration(lambda: iter([[number] for number in range(100)]))

        async def take() -> list[int]:
            return [number async for number in numbers]

        return sorted(chain.from_iterable(await asyncio.gather(*(take() for _ in range(5)))))

    assert run(work()) == list(range(100))


def test_a_store_whose_opening_was_cancelled_is_closed(tmp_path: Path) -> None:
    async def work() -> None:
        for _ in range(3):
            opening = asyncio.ensure_future(pylog.aio.open(tmp_path / "d").__aenter__())
            await asyncio.sleep(0)
            opening.cancel()
            with pytest.raises(asyncio.CancelledError):
                await opening
        for _ in range(1000):
            try:
                return await (await pylog.aio.open(tmp_path / "d", exclusive=True, lock_timeout_ms=0)).close()
            except pylog.StoreLockedError:
                await asyncio.sleep(0.005)
        raise AssertionError("the directory is still open")

    run(work())


def test_a_cancelled_call_that_fails_later_is_no_forgotten_error(tmp_path: Path) -> None:
    forgotten: list[Any] = []

    async def work() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, context: forgotten.append(context))
        async with pylog.aio.open(tmp_path / "d") as store:
            begun, release = threading.Event(), threading.Event()

            def fail(_: pylog.Store) -> None:
                begun.set()
                release.wait(10)
                raise pylog.ClosedError("too late")

            call = asyncio.ensure_future(store.run(fail))
            await asyncio.to_thread(begun.wait, 10)
            call.cancel()
            with pytest.raises(asyncio.CancelledError):
                await call
            release.set()
        gc.collect()

    run(work())
    assert forgotten == []


def test_a_close_does_not_wait_for_calls_that_keep_all_threads_busy(tmp_path: Path) -> None:
    async def work() -> None:
        store = await pylog.aio.open(tmp_path / "d")
        release = threading.Event()
        busy = [asyncio.ensure_future(store.run(lambda _: release.wait(30))) for _ in range(6)]
        await asyncio.sleep(0.01)
        await asyncio.wait_for(store.close(), 20)
        release.set()
        assert await asyncio.gather(*busy) == [True] * 6

    run(work())


def test_wrong_arguments_of_the_plain_questions_raise_errors_of_pylog(tmp_path: Path) -> None:
    async def work() -> None:
        async with pylog.aio.open(tmp_path / "d", durability="os") as store:
            await store.create_topic("t", 2)
            consumer = await store.consumer()
            place = TopicPartition("t", 1)
            consumer.assign([place])
            assert consumer.partitions_for_topic("t") is None
            assert (consumer.last_stable_offset(place), consumer.last_poll_timestamp(place)) == (None, None)
            await consumer.getmany(timeout_ms=1)
            assert consumer.partitions_for_topic("t") == {0, 1}
            assert consumer.last_stable_offset(place) == consumer.highwater(place) == 0
            assert abs((consumer.last_poll_timestamp(place) or 0) - time.time() * 1000) < 60_000
            for wrong in (object(), 5, 1.5, "x", b"x", [], {}, None):
                for ask in (consumer.last_stable_offset, consumer.last_poll_timestamp, consumer.highwater):
                    with pytest.raises(pylog.PylogError):
                        ask(wrong)
                if not isinstance(wrong, str):
                    with pytest.raises(pylog.PylogError):
                        consumer.partitions_for_topic(wrong)
            await consumer.stop()

    run(work())
