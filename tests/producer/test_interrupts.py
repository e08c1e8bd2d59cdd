"""An interrupt (Ctrl-C, a signal handler that raises) may come at any step of a producer's calls. Afterwards the producer goes
on, for this thread and for others: each record that was taken is answered and in the log once, and nothing waits for ever.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import pylog
from pylog import Producer
from pylog.producer import buffer as buffers
from pylog.producer.future import FutureRecordMetadata
from pylog.store import Store
from pylog.testing import MemoryFileSystem
from support.engines import buffer_of
from support.faults.interruptions import in_another_thread, interrupted_at_step, steps

PATIENCE = 20.0  # seconds that a test waits for what takes milliseconds
ROOM = 20_000  # bytes
LARGE = 15_000  # two do not fit
Sent = list[FutureRecordMetadata]


@pytest.fixture
def store() -> Iterator[Store]:
    with pylog.open("/s", fs=MemoryFileSystem()) as made:
        made.create_topic("t", max_message_bytes=1 << 20)
        yield made


def full(producer: Producer) -> threading.Thread:
    """Fills the buffer while nothing can be appended, up to a moment later."""
    buffer, is_kept = buffer_of(producer), threading.Event()

    def keep() -> None:
        with buffer.waiting.turn:
            is_kept.set()
            threading.Event().wait(0.003)

    thread = threading.Thread(target=keep)
    thread.start()
    assert is_kept.wait(PATIENCE)
    return thread


def send_small(producer: Producer, sent: Sent) -> None:
    sent.append(producer.send("t", b"small"))


def send_large(producer: Producer, sent: Sent) -> None:
    sent.append(producer.send("t", b"x" * LARGE))


def send_large_when_full(producer: Producer, sent: Sent) -> None:
    """It waits for room."""
    keeper = full(producer)
    try:
        send_large(producer, sent)
        send_large(producer, sent)
    finally:
        keeper.join()


def send_and_wait(producer: Producer, sent: Sent) -> None:
    send_small(producer, sent)
    sent[-1].result(PATIENCE)


def send_and_flush(producer: Producer, sent: Sent) -> None:
    send_small(producer, sent)
    producer.flush()


def close(producer: Producer, sent: Sent) -> None:
    send_small(producer, sent)
    producer.close()


@pytest.mark.slow
@pytest.mark.parametrize("call", [send_small, send_large, send_large_when_full, send_and_wait, send_and_flush])
def test_wherever_an_interrupt_comes_the_producer_goes_on(store: Store, call: Callable[[Producer, Sent], None]) -> None:
    for number in steps(3):
        producer, sent = store.producer(buffer_memory=ROOM, max_block_ms=int(PATIENCE * 1000)), Sent()
        before = store.log("t").end_offset
        came = interrupted_at_step(number, lambda: call(producer, sent), str(Path(buffers.__file__).parent))  # noqa: B023
        for later in (send_small, send_large, send_and_wait):
            in_another_thread(lambda later=later: later(producer, sent))  # noqa: B023
        send_and_flush(producer, sent)
        in_another_thread(lambda: producer.close() is None)  # noqa: B023
        offsets = [future.result(0).offset for future in sent]
        assert offsets == sorted(set(offsets))
        assert offsets[-1] + 1 == store.log("t").end_offset
        assert len(offsets) <= store.log("t").end_offset - before <= len(offsets) + 1  # whose future did not arrive
        if not came:
            break
    assert number > 10


def test_wherever_an_interrupt_comes_during_close_a_second_close_ends_it(store: Store) -> None:
    for number in itertools.count(1):
        producer, sent = store.producer(), Sent()
        came = interrupted_at_step(number, lambda: close(producer, sent), str(Path(buffers.__file__).parent))  # noqa: B023
        in_another_thread(lambda: producer.close() is None)  # noqa: B023
        assert all(future.result(0).offset >= 0 for future in sent)
        if not came:
            break
    assert number > 10
