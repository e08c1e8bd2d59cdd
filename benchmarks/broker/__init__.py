"""Beside Kafka itself: a broker on this machine with Kafka's own clients, and its storage module in one JVM without a broker.

A client, a network and another process are between a program and a broker: pylog has none of them, and so the first comparison is
one of two ways to keep events, not of two engines. The second one is of engines. The JVMs are set as Kafka's scripts set them.
"""

from __future__ import annotations

import itertools
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final, Self

import pylog
from benchmarks.data import new_log, pairs_of, plain_rows
from benchmarks.measure import NO_WRITES, Sample, Settings, millions, race
from benchmarks.scan import scanned

if TYPE_CHECKING:
    from support.kafka.harness import Broker, KafkaJars

PROJECT: Final = Path(__file__).resolve().parent.parent.parent
sys.path.append(str(PROJECT / "tests"))  # the harness that runs a broker
TUNED: Final = ("-Xms1g", "-Xmx1g", "-server", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20", "-XX:InitiatingHeapOccupancyPercent=35")
OS_LEVEL: Final = "Durability.OS"
PRODUCER: Final = "Kafka's producer-perf-test to a broker on this machine, acks=1, batches of 128 KiB (process)"
CONSUMER: Final = "Kafka's consumer-perf-test from a broker on this machine"
STORAGE: Final = "Kafka's storage module in a warm JVM, no broker"


def run(settings: Settings) -> None:
    """Reports pylog beside a broker, and beside Kafka's storage module."""
    jars = tuned_jars()
    _beside_a_broker(settings, jars)
    _beside_its_storage(settings, jars)


def tuned_jars() -> KafkaJars:
    """Kafka's jars, fetched if they are not there, for JVMs that are to be fast; those of the tests are to start quickly."""
    from support.kafka.harness import KafkaJars

    return replace(KafkaJars.fetch(PROJECT / ".cache" / "kafka"), tuning=TUNED)


# ---- a broker ----------------------------------------------------------------------------------------------------------------


def _beside_a_broker(settings: Settings, jars: KafkaJars) -> None:
    from support.kafka.harness import Broker

    count = settings.scaled(2_000_000, 500_000)
    directory = Path(settings.directory)
    values = [b"%0100d" % number for number in range(count)]
    with Broker(directory / "broker", jars) as broker, new_log(directory / "backlog") as log:
        log.append_many(values)
        topics = (f"events{number}" for number in itertools.count())
        topic = ""

        def produce() -> float:
            nonlocal topic
            topic = next(topics)
            broker.create_topic(topic)
            return _produced(broker, topic, count)

        contestants: dict[str, Callable[[], float]] = {
            PRODUCER: produce,
            CONSUMER: lambda: _consumed(broker, topic, count),
            "producer.send(topic, value)": lambda: _sent(directory / "sent", values),
            "consumer.poll": lambda: _polled(directory / "backlog", count),
            "consumer.poll_arrow": lambda: _polled(directory / "backlog", count, arrow=True),
        }
        speed = race(contestants, settings.repeated(3, 1))
    of = f"{count / 1e6:g} M values of 100 bytes"
    _report(settings, f"producer.send(topic, value), {of}", OS_LEVEL, speed["producer.send(topic, value)"], PRODUCER, speed)
    for how in ("consumer.poll", "consumer.poll_arrow"):
        _report(settings, f"{how}, {of}", NO_WRITES, speed[how], CONSUMER, speed)


def _produced(broker: Broker, topic: str, count: int) -> float:
    """Millions of records a second once it is warm: the tool's own figure."""
    warm_up = count // 4
    properties = ("acks=1", f"batch.size={128 << 10}", "linger.ms=5", "buffer.memory=67108864")
    counts = ("--num-records", str(count + warm_up), "--warmup-records", str(warm_up))
    options = ("--topic", topic, *counts, "--record-size", "100", "--throughput", "-1", "--command-property", *properties)
    said = broker.run_tool("producer-perf-test", *options).check().stdout.splitlines()
    return float(said[-1].partition(" records/sec")[0].split()[-1]) / 1e6


def _consumed(broker: Broker, topic: str, count: int) -> float:
    """The same of a consumer; joining the group is left out."""
    options = ("--topic", topic, "--num-records", str(count), "--hide-header", "--fetch-size", str(1 << 20))
    said = broker.run_tool("consumer-perf-test", *options).check().stdout.strip().splitlines()
    return float(said[-1].split(",")[-1]) / 1e6  # fetch.nMsg.sec


def _sent(directory: Path, values: list[bytes]) -> float:
    """All values through a producer of pylog, each with its future."""

    def send() -> None:
        for value in values:
            producer.send("events", value)
        producer.flush()

    with pylog.open(directory, durability=pylog.Durability.OS) as store:
        store.create_topic("events")
        with store.producer() as producer:
            rate = millions(len(values), send)
    shutil.rmtree(directory)
    return rate


def _polled(directory: Path, count: int, *, arrow: bool = False) -> float:
    """All of them through a consumer of pylog, as records or as columns."""

    def poll() -> None:
        found = 0
        while found < count:
            if arrow:
                found += sum(batch.num_rows for batch in consumer.poll_arrow(timeout_ms=1_000).values())
            else:
                found += sum(map(len, consumer.poll(timeout_ms=1_000, max_records=5_000).values()))

    with (
        pylog.open(directory, mode="r") as store,
        store.consumer("events", auto_offset_reset="earliest") as consumer,
    ):
        return millions(count, poll)


def _report(settings: Settings, work: str, durability: str, ours: Sample, rival: str, speed: dict[str, Sample]) -> None:
    settings.report_ratio("Kafka", work, "M records/s", ours, rival, speed[rival], durability=durability)


# ---- its storage module --------------------------------------------------------------------------------------------------------


def _beside_its_storage(settings: Settings, jars: KafkaJars) -> None:
    count = settings.scaled(1_000_000, 200_000)
    rows = plain_rows(0, count)
    pairs = pairs_of(rows)
    directory = Path(settings.directory)
    appending, scanning = f"{STORAGE}, batches built and appended (process)", f"{STORAGE}, records read one by one"
    with _Storage(jars, count) as storage, new_log(directory / "full") as full:
        full.append_arrow(rows)
        last = [0.0, 0.0]

        def appended() -> float:
            last[:] = storage.seconds(directory / "storage")
            return count / last[0] / 1e6

        contestants: dict[str, Callable[[], float]] = {
            appending: appended,
            scanning: lambda: count / last[1] / 1e6,
            "append_arrow": lambda: _appended(directory, count, lambda log: log.append_arrow(rows)),
            "append_many": lambda: _appended(directory, count, lambda log: log.append_many(pairs)),
            "scan": lambda: millions(count, lambda: scanned(full, 0, count)),
            "for record in log.records()": lambda: millions(count, lambda: sum(1 for _ in full.records())),
        }
        speed = race(contestants, settings.rounds)
    of = f"{count / 1e6:g} M records of 8 + 100 bytes"
    for how in ("append_arrow", "append_many"):
        _report(settings, f"{how}, {of}", OS_LEVEL, speed[how], appending, speed)
    for how in ("scan", "for record in log.records()"):
        _report(settings, f"{how}, {of}", NO_WRITES, speed[how], scanning, speed)


def _appended(directory: Path, count: int, append: Callable[[pylog.Log], object]) -> float:
    with new_log(directory / "log") as log:
        rate = millions(count, lambda: append(log))
    shutil.rmtree(directory / "log")
    return rate


class _Storage:
    """A JVM with Kafka's storage module, which appends and scans when it is asked to. Its first rounds compile its code."""

    def __init__(self, jars: KafkaJars, count: int) -> None:
        command = jars.java(str(Path(__file__).with_name("KafkaStorage.java")), str(count))
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def __enter__(self) -> Self:
        self._line()  # "ready"
        return self

    def __exit__(self, *_: object) -> None:
        self._process.communicate()

    def seconds(self, directory: Path) -> tuple[float, float]:
        """How long appending took, and scanning."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{directory / 'events-0'}\n")
        self._process.stdin.flush()
        appended, scanned = map(float, self._line().split())
        shutil.rmtree(directory)
        return appended, scanned

    def _line(self) -> str:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise SystemExit("Kafka's storage module ended; what it said is above")
        return line
