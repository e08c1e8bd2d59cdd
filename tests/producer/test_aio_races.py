"""`AsyncProducer.send` while other threads use the same producer: at no step can one of them make the event loop wait."""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from types import FrameType
from typing import Any

import pytest

import pylog
from pylog import Durability
from pylog.aio import AsyncProducer
from pylog.testing import MemoryFileSystem
from support.campaign.processes import new_seed
from support.engines import buffer_of

STEPS = 400  # more than a call of `send` has
STRIDE = 6
SENT = {
    "small": {"value": b"x"},
    "large": {"value": b"x" * 5000},
    "all": {"value": b"x", "key": b"k", "headers": [("h", b"1")], "partition": 0, "timestamp": 5},
}


def _fill(producer: pylog.Producer, store: pylog.Store) -> None:
    """Takes all the room, as threads do that send while the writer is slow."""
    buffer = buffer_of(producer)
    for _ in range(buffer.room - len(buffer.items)):
        producer.send("t", b"f")


def _alter(producer: pylog.Producer, store: pylog.Store) -> None:
    store.alter_topic("t", max_message_bytes=4000)


def _delete(producer: pylog.Producer, store: pylog.Store) -> None:
    store.delete_topic("t")


def _close(producer: pylog.Producer, store: pylog.Store) -> None:
    threading.Thread(target=producer.close).start()
    while not buffer_of(producer).is_closed:
        pass


def _at_step(number: int, change: Callable[[], None]) -> Callable[[FrameType, str, Any], Any]:
    """A trace function: another thread makes a change before the n-th line of pylog that the traced thread runs."""
    left = number

    def traced(frame: FrameType, event: str, _: Any) -> Any:
        nonlocal left
        if "/pylog/" not in frame.f_code.co_filename or frame.f_code.co_name in ("add_callback", "check_outside", "held_by_me"):
            return None
        if event == "line":
            left -= 1
            if left == 0:
                other = threading.Thread(target=change)
                other.start()
                other.join(0.2)  # it waits where the traced thread holds the buffer's lock
        return traced

    return traced


class StuckError(Exception):
    """The event loop's thread waits."""


def _first_step(sending: AsyncProducer, number: int, change: Callable[[], None], given: dict[str, Any]) -> bool:
    """Runs `send` up to its first await. Returns whether it has as many steps."""
    made = []

    def make() -> None:
        made.append(True)
        with suppress(pylog.PylogError):  # where it waited for the traced thread, the producer may be closed by then
            change()

    trace = _at_step(number, make)
    call = (sending.send if number // STRIDE % 2 else sending.send_and_wait)("t", **given)
    before = sys.gettrace()
    sys.settrace(trace)
    try:
        with suppress(StopIteration):  # `send` waits for nothing
            call.send(None)
    finally:
        sys.settrace(before)
    call.close()
    return bool(made)


@pytest.mark.slow
@pytest.mark.parametrize("change", [_fill, _alter, _delete, _close])
@pytest.mark.parametrize("kind", list(SENT))
def test_a_send_neither_waits_nor_reads_in_the_loops_thread_whatever_another_thread_does_at_any_step(
    change: Callable[[pylog.Producer, pylog.Store], None], kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits: list[str] = []
    loops_thread = threading.get_ident()
    watched = (threading.Condition, "wait_for"), (pylog.log_manager.LogManager, "topic")
    for owner, name in watched:
        real = getattr(owner, name)

        def checked(*given: Any, real: Callable[..., Any] = real, name: str = name, **more: Any) -> Any:
            if threading.get_ident() == loops_thread and sys.gettrace() is not None:
                waits.append(name)
                raise StuckError(name)
            return real(*given, **more)

        monkeypatch.setattr(owner, name, checked)

    async def program() -> int:
        for number in range(1 + new_seed() % STRIDE, STEPS, STRIDE):
            with pylog.open("/s", fs=MemoryFileSystem(), durability=Durability.OS) as store:
                store.create_topic("t")
                producer = store.producer(buffer_memory=2 << 20, linger_ms=3_600_000, batch_size=1 << 20, max_block_ms=50)
                producer.send("t", b"first")  # the topic is known, and the sender waits for more records
                async with AsyncProducer(producer) as sending:
                    there = _first_step(sending, number, lambda: change(producer, store), SENT[kind])  # noqa: B023
                if not there:
                    return number
        return STEPS

    assert 15 < asyncio.run(program()) < STEPS
    assert not waits
