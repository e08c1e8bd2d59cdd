"""P2: record by record. A producer's `send` with a future each, and `append_many`, against confluent-kafka and bare memory.

confluent-kafka sends to the mock broker of its own library, in the same process: no disk, no second process. The bare loop is
what a `send` can cost at least: a future a record, columns, batches with their CRC, every future answered; one thread, no log.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from operator import attrgetter
from pathlib import Path
from typing import Any

import confluent_kafka  # type: ignore[import-untyped]
import msgspec
import pyarrow as pa

import pylog
from benchmarks.data import RECORD_BYTES
from benchmarks.measure import Row, Settings, at_least, millions, race
from pylog.record.builder import BatchEncoder
from pylog.record.from_arrow import rows_from_arrow

OS_LEVEL, SYNC_LEVEL = "Durability.OS", "Durability.SYNC"
NOTHING = "none"
TAKE = 16_384  # records that the bare loop works on at a time
LIST = 10_000  # values of one append_many


class _Future(msgspec.Struct, gc=False):
    value: bytes
    key: bytes | None = None
    outcome: object = None
    index: int = 0


def run(settings: Settings) -> None:
    """Reports the rows of P2."""
    count = settings.scaled(1_000_000, 200_000)
    values = [b"%0100d" % number for number in range(count)]
    keys = [b"%08d" % number for number in range(count)]
    _sending(settings, values, keys)
    _many(settings, values)


def _sending(settings: Settings, values: list[bytes], keys: list[bytes]) -> None:
    count = len(values)

    def pylogs(level: pylog.Durability, partitions: int, *, keyed: bool) -> Callable[[], float]:
        return lambda: _to_pylog(Path(settings.directory), level, partitions, values, keys if keyed else None)

    taken = race(
        {
            "OS": pylogs(pylog.Durability.OS, 1, keyed=False),
            "bare": lambda: millions(count, lambda: _to_memory(values)),
            "confluent": lambda: _to_mock_broker(values),
            "keyed": pylogs(pylog.Durability.OS, 4, keyed=True),
            "SYNC": pylogs(pylog.Durability.SYNC, 1, keyed=False),
        },
        settings.rounds,
        written=int(count * RECORD_BYTES),
    )
    report = settings.report
    send = "producer.send(topic, value), 100 B, a future each"
    unit = "M records/s"
    for name, work, durability, target in (
        ("OS", send, OS_LEVEL, at_least(1.2)),
        ("SYNC", send, SYNC_LEVEL, None),
        ("keyed", f"{send}, with keys, 4 partitions", OS_LEVEL, None),
    ):
        for rival, told in (("confluent", "confluent-kafka to its mock broker, a callback each"), ("bare", "the bare loop")):
            report(
                Row(
                    part="P2",
                    work=work,
                    unit=unit,
                    measured=taken[name],
                    durability=durability,
                    rival=f"{told} ({NOTHING})",
                    rival_measured=taken[rival],
                    ratio=taken[name].over(taken[rival]),
                    target=target if rival == "confluent" else None,
                )
            )


def _to_pylog(directory: Path, level: pylog.Durability, partitions: int, values: list[bytes], keys: list[bytes] | None) -> float:
    """All records through a producer, and into the log."""
    with pylog.open(directory / "store", durability=level) as store:
        store.create_topic("events", partition_count=partitions)
        with store.producer() as producer:
            producer.send("events", values[0]).result()
            send = producer.send

            def work() -> None:
                if keys is None:
                    for value in values:
                        send("events", value)
                else:
                    for value, key in zip(values, keys, strict=True):
                        send("events", value, key)
                producer.flush()

            rate = millions(len(values), work)
    shutil.rmtree(directory / "store")
    return rate


def _to_memory(values: list[bytes]) -> None:
    """The least that any producer has to do."""
    encoder, items, offset = BatchEncoder(), [], 0

    def flush() -> None:
        nonlocal offset
        taken = items[:]
        items.clear()
        columns = {name: pa.array([*map(attrgetter(name), taken)], pa.binary()) for name in ("key", "value")}
        for rows in rows_from_arrow(pa.record_batch(columns), 0):
            for _ in encoder.encode(rows, offset, 0):
                pass
        for index, future in enumerate(taken):
            future.index = index
            future.outcome = columns
        offset += len(taken)

    def send(value: bytes) -> _Future:
        future = _Future(value)
        items.append(future)
        if len(items) >= TAKE:
            flush()
        return future

    for value in values:
        send(value)
    if items:
        flush()


def _to_mock_broker(values: list[bytes]) -> float:
    """The same records through librdkafka, with what its documentation recommends for throughput."""
    delivered = [0]

    def told(error: Any, _: Any) -> None:
        assert error is None
        delivered[0] += 1

    settings = {"bootstrap.servers": "mock", "test.mock.num.brokers": 1, "queue.buffering.max.messages": 10**7, "linger.ms": 5}
    producer = confluent_kafka.Producer(settings)
    producer.produce("events", values[0], on_delivery=told)
    producer.flush()

    def work() -> None:
        for number, value in enumerate(values):
            producer.produce("events", value, on_delivery=told)
            if not number % 10_000:
                producer.poll(0)
        producer.flush()

    rate = millions(len(values), work)
    assert delivered[0] == len(values) + 1
    return rate


def _many(settings: Settings, values: list[bytes]) -> None:
    """Lists of values in one call each."""
    lists = [values[first : first + LIST] for first in range(0, len(values), LIST)]

    def append() -> float:
        with pylog.open(Path(settings.directory) / "store", durability=pylog.Durability.OS) as store:
            store.create_topic("events")
            log = store.log("events")
            log.append_many(lists[0])
            rate = millions(len(values), lambda: [log.append_many(each) for each in lists])
        shutil.rmtree(Path(settings.directory) / "store")
        return rate

    bare = lambda: millions(len(values), lambda: [*map(_encoded, lists)])  # noqa: E731 - a contestant
    taken = race({"pylog": append, "bare": bare}, settings.rounds, written=int(len(values) * RECORD_BYTES))
    settings.report_ratio(
        "P2",
        f"append_many(list of {LIST:,} values), 100 B",
        "M records/s",
        taken["pylog"],
        f"lists to columns to batches, no log ({NOTHING})",
        taken["bare"],
        durability=OS_LEVEL,
        target=at_least(6),
    )


def _encoded(values: list[bytes]) -> None:
    """The least that an append of a list has to do."""
    encoder = BatchEncoder()
    for rows in rows_from_arrow(pa.record_batch({"value": pa.array(values, pa.binary())}), 0):
        for _ in encoder.encode(rows, 0, 0):
            pass
