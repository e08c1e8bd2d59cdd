"""Producers in processes that are killed, fork, and end: what is acknowledged is in the log once."""

from __future__ import annotations

import subprocess
import sys
import textwrap
import threading
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import pylog
from pylog import Durability
from pylog.errors import ClosedError
from pylog.log.log import Log
from pylog.store import Store
from support import warm
from support.engines import buffer_of, producers_of
from support.faults.neighbours import Neighbour
from support.producer import PATIENCE, Gate


def values(log: Log) -> list[bytes | None]:
    return [record.value for record in log.records()]


# ---- processes -------------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_records_acknowledged_before_a_kill_are_there_once_and_the_rest_is_a_prefix(tmp_path: Path) -> None:
    with pylog.open(tmp_path / "s") as store:
        store.create_topic("t", partition_count=2, segment_bytes=20_000)
    program = """
        import sys, pylog
        producer = pylog.open(sys.argv[1], durability=pylog.Durability.OS).producer(linger_ms=0, batch_size=1000)
        def told(error, metadata, number):
            print(number, metadata.partition, metadata.offset, flush=True)
        for number in range(1_000_000):
            producer.send("t", b"%d" % number, partition=number % 2, on_delivery=lambda e, m, n=number: told(e, m, n))
    """
    acknowledged = {}
    command = [sys.executable, "-c", textwrap.dedent(program), str(tmp_path / "s")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            number, partition, offset = map(int, line.split())
            acknowledged[number] = (partition, offset)
            if len(acknowledged) == 3000:
                process.kill()
                break
    with pylog.open(tmp_path / "s") as store:
        for partition in range(2):
            found = [int(value or b"") for value in values(store.log("t", partition))]
            assert found == list(range(partition, partition + 2 * len(found), 2))
            for number, place in acknowledged.items():
                assert place[0] != partition or found[place[1]] == number


CHILD = """
import os, sys, pylog, threading
store = pylog.open(sys.argv[1])
store.create_topic("t", max_message_bytes=8 << 20)
producer = store.producer(linger_ms=10**9, max_request_size=8 << 20)
future = producer.send("t", b"parent")
child = os.fork()
if child == 0:
    refused = []
    for call in (lambda: producer.send("t", b"child"), producer.flush, lambda: future.result(1), store.producer):
        try:
            call()
        except pylog.ClosedError:
            refused.append(True)
    producer.close()
    os._exit(0 if len(refused) == 4 else 1)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
producer.send("t", bytes(5 << 20))
"""


def run(program: str, path: Path, *more: str) -> None:
    warm.run(["-c", program, path, *more], timeout=PATIENCE, check=True)


@pytest.mark.slow
def test_a_forked_childs_producer_raises_and_the_parents_is_closed_with_its_interpreter(tmp_path: Path) -> None:
    run(CHILD, tmp_path / "s")
    with pylog.open(tmp_path / "s") as store:
        assert values(store.log("t")) == [b"parent", bytes(5 << 20)]


@pytest.mark.slow
def test_a_child_does_not_end_in_a_lock_that_its_parents_threads_held(tmp_path: Path) -> None:
    program = """
import os, sys, pylog, threading
store = pylog.open(sys.argv[1], durability=pylog.Durability.OS)
store.create_topic("t")
producer = store.producer(buffer_memory=20_000)
stop = threading.Event()
def send():
    while not stop.is_set():
        producer.send("t", b"v" * 100)
threads = [threading.Thread(target=send) for _ in range(3)]
for thread in threads: thread.start()
for _ in range(8):
    child = os.fork()
    if child == 0:
        try:
            producer.send("t", b"child")
        except pylog.ClosedError:
            producer.close()
            os._exit(0)
        os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
stop.set()
for thread in threads: thread.join()
store.close()
"""
    run(program, tmp_path / "s")
    with pylog.open(tmp_path / "s") as store:
        assert set(values(store.log("t"))) == {b"v" * 100}


def test_a_flush_that_counts_a_record_which_came_too_late_ends_when_that_is_refused(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    producer = store.producer()
    producer.send("t", b"0").result(PATIENCE)
    buffer = buffer_of(producer)
    wake = buffer.wake

    class ClosesFirst(list[Any]):
        """The producer is closed between a record's look for room and its being added."""

        def append(self, item: Any) -> None:
            producer.close()
            super().append(item)

    flushing = threading.Thread(target=partial(producer.flush, PATIENCE))

    def flush_first() -> None:
        flushing.start()
        while not buffer._progress._waiters:  # type: ignore[attr-defined]
            pass
        wake()

    monkeypatch.setattr(buffer, "items", ClosesFirst())
    monkeypatch.setattr(buffer, "wake", flush_first)
    late = producer.send("t", b"late")
    flushing.join(PATIENCE / 2)
    assert not flushing.is_alive()
    assert isinstance(late.exception(0), ClosedError)


CLOSED_IN_A_CALLBACK = """
import sys, threading, pylog
store = pylog.open(sys.argv[1])
store.create_topic("t")
producer = store.producer()
begun, sent, closed = threading.Event(), threading.Event(), threading.Event()
def close(error, metadata):
    begun.set()
    sent.wait()
    producer.close()
    closed.set()
    if sys.argv[2] == "exit":
        threading.main_thread().join()  # over when the interpreter ends
producer.send("t", b"first", on_delivery=close)
begun.wait()
for number in range(100):
    producer.send("t", b"%d" % number)
sent.set()
closed.wait()
if sys.argv[2] == "store":
    store.close()
"""


@pytest.mark.slow
@pytest.mark.parametrize("end", ["exit", "store"])
def test_accepted_records_are_in_the_log_when_a_callback_has_closed_the_producer_and_the_program_ends(
    tmp_path: Path, end: str
) -> None:
    run(CLOSED_IN_A_CALLBACK, tmp_path / "s", end)
    with pylog.open(tmp_path / "s") as store:
        assert values(store.log("t")) == [b"first", *(b"%d" % number for number in range(100))]


def test_a_store_forgets_a_producer_that_a_callback_has_closed_once_everything_is_appended(store: Store) -> None:
    gate = Gate()
    producer = store.producer()

    def close(*_: object) -> None:
        producer.close()
        gate()

    last = producer.send("t", b"0", on_delivery=close)
    assert gate.reached.wait(PATIENCE)
    assert producers_of(store) == [producer._core]
    gate.open()
    producer.close()
    assert producers_of(store) == []
    assert last.result(0).offset == 1


WORKER = """
import multiprocessing, sys, pylog
def work(path):
    producer = pylog.open(path).producer(linger_ms=10**9)
    pylog.open(path).producer().close()
    for number in range(100):
        producer.send("t", b"%d" % number)
if __name__ == "__main__":
    context = multiprocessing.get_context(sys.argv[2])
    process = context.Process(target=work, args=(sys.argv[1],))
    process.start()
    process.join()
    sys.exit(process.exitcode)
"""


@pytest.mark.slow
@pytest.mark.parametrize("method", ["fork", "forkserver", "spawn"])
def test_records_that_a_child_of_multiprocessing_sent_are_in_the_log_when_it_returns(tmp_path: Path, method: str) -> None:
    with pylog.open(tmp_path / "s") as store:
        store.create_topic("t")
    program = tmp_path / "program.py"
    program.write_text(WORKER)
    command = [sys.executable, str(program), str(tmp_path / "s"), method]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    with pylog.open(tmp_path / "s") as store:
        assert values(store.log("t")) == [b"%d" % number for number in range(100)]


@pytest.mark.slow
def test_two_processes_produce_to_one_partition_and_each_keeps_its_order(tmp_path: Path) -> None:
    with pylog.open(tmp_path / "s", durability=Durability.OS) as store, Neighbour() as other:
        store.create_topic("t")
        other.run("store = pylog.open(path, durability=pylog.Durability.OS); producer = store.producer()", path=store.path)
        other.begin("for n in range(5000): future = producer.send('t', b't%d' % n)\nproducer.flush()")
        with store.producer() as producer:
            for number in range(5000):
                producer.send("t", b"o%d" % number)
        other.answer()
        other.run("store.close()")
        found = values(store.log("t"))
    for who in (b"o", b"t"):
        assert [value for value in found if value and value.startswith(who)] == [who + b"%d" % number for number in range(5000)]
