"""A process that may start no more threads gets pylog's own error, or reads in the caller's thread. Nothing is called damaged."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import pylog
import pylog.aio
from pylog.objects import remote_file

TIERED = {"remote_storage_enable": True, "segment_bytes": 300, "local_retention_bytes": 400, "retention_ms": -1}


@pytest.fixture
def store(tmp_path: Path) -> Iterator[pylog.Store]:
    """A store whose topic `orders` is mostly in its archive, in a process that may start no thread."""
    with pylog.open(tmp_path / "shop", archive=str(tmp_path / "archive")) as made:
        made.create_topic("orders", **TIERED)
        for number in range(20):
            made.log("orders").append(b"%d" % number * 50)
        made.tick()
        assert made.log("orders").local_start_offset > 10
        yield made


@pytest.fixture
def no_threads(store: pylog.Store, monkeypatch: pytest.MonkeyPatch) -> None:
    def start(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(remote_file, "READERS", remote_file._Readers())
    monkeypatch.setattr(threading.Thread, "start", start)


def make_producer(store: pylog.Store) -> None:
    store.producer()


def poll(store: pylog.Store) -> None:
    with store.consumer("orders", group_id="billing") as consumer:
        consumer.poll()


def append_at_intervals(store: pylog.Store) -> None:
    store.log("orders").append(b"x", durability=pylog.Durability.INTERVAL(50))


def serve_metrics(store: pylog.Store) -> None:
    store.serve_metrics(0)


def serve_ui(store: pylog.Store) -> None:
    store.serve_ui(0)


def open_with_asyncio(store: pylog.Store) -> None:
    async def main() -> None:
        async with pylog.aio.open(store.path):
            pass

    asyncio.run(main())


NEED_A_THREAD = (make_producer, poll, append_at_intervals, serve_metrics, serve_ui, open_with_asyncio)


@pytest.mark.parametrize("call", NEED_A_THREAD, ids=lambda call: call.__name__)
@pytest.mark.usefixtures("no_threads")
def test_a_call_that_needs_a_thread_says_that_there_is_none(call: Callable[[pylog.Store], None], store: pylog.Store) -> None:
    with pytest.raises(pylog.StorageFailedError, match=r"cannot start another thread .* raise its limit \(ulimit -u\)"):
        call(store)


@pytest.mark.usefixtures("no_threads")
def test_archived_records_are_read_and_verified_without_another_thread(store: pylog.Store, tmp_path: Path) -> None:
    assert [record.offset for record in store.log("orders").records()] == list(range(20))
    assert not store.verify(records=True).findings
    assert store.archive(str(tmp_path / "second")).url
    store.tick()
