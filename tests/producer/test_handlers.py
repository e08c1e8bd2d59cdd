"""Handlers of signals that use the producer: they run during any of its calls, in the same thread, and nothing waits forever."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

import pyarrow as pa
import pytest

import pylog
from pylog import Producer
from pylog.errors import ClosedError, IllegalStateError
from pylog.log.partition_log import PartitionLog
from pylog.producer import buffer as buffers
from pylog.producer.future import FutureRecordMetadata
from pylog.store import Store
from pylog.testing import MemoryFileSystem
from support.engines import buffer_of
from support.faults.interruptions import in_another_thread

CALLS = ["send", "send_large", "send_and_wait", "send_and_be_told", "flush", "close"]
PATIENCE = 60.0  # seconds that a test waits for what takes milliseconds


@pytest.fixture
def memory_store() -> Iterator[Store]:
    with pylog.open("/s", fs=MemoryFileSystem()) as made:
        made.create_topic("t", max_message_bytes=1 << 20)
        yield made


def handled_at(number: int, work: Callable[[], Any], handler: Callable[[], Any]) -> bool:
    """Does some work; a handler runs at that line of the buffer. Whether it came so far."""
    lines = itertools.count(1)
    came = False

    def trace(frame: FrameType, event: str, _: object) -> Any:
        nonlocal came
        if frame.f_code.co_filename != buffers.__file__:
            return None
        if event == "line" and next(lines) == number:
            came = True
            handler()
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        work()
    finally:
        sys.settrace(before)
    return came


def calls_of(producer: Producer, sent: list[FutureRecordMetadata]) -> dict[str, Callable[[], Any]]:
    """What programs call, by name; what was sent is in the list."""

    def send(value: bytes, **more: Any) -> FutureRecordMetadata:
        sent.append(producer.send("t", value, **more))
        return sent[-1]

    return {
        "send": lambda: send(b"small"),
        "send_large": lambda: send(b"x" * 5000),
        "send_and_wait": lambda: send(b"small").result(PATIENCE),
        "send_and_be_told": lambda: send(b"small", on_delivery=lambda *_: None),
        "flush": producer.flush,
        "close": producer.close,
    }


@pytest.mark.sampled(3)
@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("handled", CALLS)
def test_a_handler_during_any_call_is_served_or_refused_and_each_record_is_answered(
    memory_store: Store, call: str, handled: str
) -> None:
    sent: list[FutureRecordMetadata] = []
    told: list[str] = []

    def attempt(what: Callable[[], Any]) -> None:
        try:
            what()
        except IllegalStateError as error:
            told.append(str(error))
        except ClosedError:
            assert buffer_of(producer)._closed

    for number in itertools.count(1):
        producer = memory_store.producer()
        buffer_of(producer).attention = -1  # each `send` wakes the thread
        calls = calls_of(producer, sent)
        work, handler = lambda: attempt(calls[call]), lambda: attempt(calls[handled])  # noqa: B023
        came = in_another_thread(lambda: (handled_at(number, work, handler),))[0]  # noqa: B023
        in_another_thread(lambda: producer.close() is None)  # noqa: B023
        if not came:
            break
    assert all("set a flag there, and send, flush or close after that call" in each for each in told)
    appended = [future.result(0).offset for future in sent if future.exception(0) is None]
    assert sorted(appended) == list(range(memory_store.log("t").end_offset))
    assert {type(future.exception(0)) for future in sent} <= {type(None), ClosedError}


def test_a_handler_during_the_append_of_a_table_does_not_wait_for_it(
    memory_store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    append = PartitionLog.append
    told: list[str] = []
    producer = memory_store.producer()

    def handled(log: PartitionLog, *given: Any, **options: Any) -> Any:
        for call in (producer.close, producer.flush):
            with pytest.raises(IllegalStateError, match="interrupts another call of the same thread") as refused:
                call()
            told.append(str(refused.value))
        return append(log, *given, **options)

    monkeypatch.setattr(PartitionLog, "append", handled)
    in_another_thread(lambda: producer.send_arrow("t", pa.table({"value": [b"a"]})))
    monkeypatch.undo()
    assert len(told) == 2
    producer.close()
