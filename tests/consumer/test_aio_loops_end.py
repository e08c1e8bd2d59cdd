"""An event loop that stops or closes at any moment while a consumer's thread has a coroutine for it: the thread goes on."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest

import pylog
from pylog import ConsumerRebalanceListener, Durability, TopicPartition
from pylog.aio import AsyncConsumer
from pylog.testing import MemoryFileSystem
from support import warm

PATIENCE = 20.0
STEPS = "before the check", "after the check", "after the call is queued", "while the coroutine waits"


@pytest.fixture
def store() -> Iterator[pylog.Store]:
    with pylog.open("/s", fs=MemoryFileSystem(), durability=Durability.OS) as opened:
        opened.create_topic("t")
        opened.log("t").append(b"x")
        yield opened


class Stepped(asyncio.SelectorEventLoop):
    """A loop that ends, and is closed, at one step of the thread that gives it a coroutine."""

    def __init__(self, step: str) -> None:
        self.step = step
        self.reached, self.stopped, self.queued, self.ended = (threading.Event() for _ in range(4))
        super().__init__()

    def is_at(self, step: str) -> bool:
        return step == self.step and threading.current_thread().name.startswith("pylog-aio")

    def at(self, step: str) -> None:
        if self.is_at(step):
            self.reached.set()
            assert self.ended.wait(PATIENCE)

    def is_closed(self) -> bool:
        self.at("before the check")
        return super().is_closed()

    def is_running(self) -> bool:
        answer = super().is_running()
        self.at("after the check")
        return answer

    def call_soon_threadsafe(self, callback: Callable[..., object], *given: Any, context: Any = None) -> asyncio.Handle:
        if not self.is_at("after the call is queued") or self.reached.is_set():
            return super().call_soon_threadsafe(callback, *given, context=context)
        self.reached.set()
        assert self.stopped.wait(PATIENCE)
        handle = super().call_soon_threadsafe(callback, *given, context=context)
        self.queued.set()
        return handle


@pytest.mark.parametrize("closes", [True, False], ids=["closes", "runs again"])
@pytest.mark.parametrize("step", STEPS)
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # of the task that the loop leaves behind
def test_a_loop_that_ends_at_any_step_leaves_no_thread_that_waits_for_it(store: pylog.Store, step: str, closes: bool) -> None:
    loop = Stepped("")
    consumer = AsyncConsumer(store.consumer(group_id="g", auto_offset_reset="earliest"))
    finished = []

    class Listener(ConsumerRebalanceListener):
        def on_partitions_assigned(self, assigned: set[TopicPartition]) -> object:
            async def coroutine() -> None:
                if step == "while the coroutine waits":
                    loop.reached.set()
                    await asyncio.sleep(0.05)
                finished.append(True)

            loop.step = step
            return coroutine()

    async def program() -> Future[Any]:
        consumer.subscribe(["t"], listener=Listener())
        polling = asyncio.ensure_future(consumer.poll(1000))
        while not loop.reached.is_set():  # noqa: ASYNC110 - a thread sets it
            await asyncio.sleep(0.001)
        polling.cancel()
        assert consumer._thread._last is not None
        return consumer._thread._last

    call = loop.run_until_complete(program())
    loop.stopped.set()
    assert step != "after the call is queued" or loop.queued.wait(PATIENCE)
    if closes:
        loop.close()
    loop.ended.set()
    if not closes:
        loop.step = ""
        while not call.done():
            loop.run_until_complete(asyncio.sleep(0.01))
        loop.close()
    error = call.exception(PATIENCE / 2)  # the thread goes on
    assert (error is None) == bool(finished)
    assert isinstance(error, pylog.IllegalStateError | pylog.InvalidArgumentError | None)
    assert not closes or error is not None
    asyncio.run(consumer.close())


PROGRAM = """
import asyncio, sys, threading, pylog
from pylog.aio import AsyncConsumer
reached = threading.Event()
class Listener(pylog.ConsumerRebalanceListener):
    async def on_partitions_assigned(self, assigned):
        reached.set()
        await asyncio.Event().wait()
async def program(consumer):
    consumer.subscribe(["t"], listener=Listener())
    polling = asyncio.ensure_future(consumer.poll(1000))
    while not reached.is_set():
        await asyncio.sleep(0.001)
store = pylog.open(sys.argv[1])
store.create_topic("t")
consumer = AsyncConsumer(store.consumer(group_id="g"))
loop = asyncio.new_event_loop()
loop.run_until_complete(program(consumer))
print("the end")
"""


def test_a_program_ends_whose_loop_stopped_while_a_listeners_coroutine_waited(tmp_path: Path) -> None:
    began = time.monotonic()
    done = warm.run(["-c", PROGRAM, tmp_path / "s"], timeout=30)
    assert done.stdout == "the end\n"
    assert time.monotonic() - began < 20
