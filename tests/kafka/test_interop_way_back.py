"""A directory goes from a broker to pylog and back, again and again, and nobody loses anything."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Mapping
from pathlib import Path

import psutil
import pytest

import pylog
from support.kafka.harness import Broker, KafkaError, Message, Record
from support.kafka.interop_data import CODECS, NOW_MS, complaints, ends, faults, read, rows_of

FAST = {"fetch.max.wait.ms": "20"}
UNENDING = {"retention.ms": "-1"}
WEEK_MS = 7 * 86_400_000
FAR_MS = NOW_MS + 2000 * WEEK_MS  # behind the present, which a broker's own markers carry
MARKER = ".kafka_cleanshutdown"
ISOLATIONS = ("read_uncommitted", "read_committed")
TOPICS = ("codecs", "plain", "ledger")

Views = dict[tuple[str, str], list[Record]]  # by topic and isolation


def messages(count: int, partition: int = 0, seed: int = 0) -> list[Message]:
    return [Message(value, key, headers, stamp, partition) for key, value, headers, stamp in rows_of(count, seed=seed)]


def as_consumers_see(running: Broker) -> Views:
    return {(topic, level): running.consume_all(topic, level, config=FAST) for topic in TOPICS for level in ISOLATIONS}


def as_pylog_sees(store: pylog.Store) -> Views:
    return {(topic, level): read(store, topic, level) for topic in TOPICS for level in ISOLATIONS}


def ends_of_broker(running: Broker) -> dict[str, dict[int, tuple[int, int]]]:
    return {topic: running.offsets(topic) for topic in TOPICS}


def ends_of_pylog(store: pylog.Store) -> dict[str, dict[int, tuple[int, int]]]:
    return {topic: ends(store, topic) for topic in TOPICS}


def broker_appends(running: Broker, seed: int) -> dict[tuple[str, int, int], bytes | None]:
    """Batches of all codecs, idempotent and not, and transactions that commit and abort. Returns what was acknowledged."""
    acknowledged: dict[tuple[str, int, int], bytes | None] = {}

    def produce(topic: str, sent: list[Message], **how: object) -> None:
        places = running.produce(topic, sent, **how)  # type: ignore[arg-type]
        acknowledged.update({(topic, *place): message.value for place, message in zip(places, sent, strict=True)})

    for number, codec in enumerate(CODECS):
        produce("codecs", messages(30, number % 2, seed + number), compression=codec)
    produce("plain", messages(20, seed=seed), config={"enable.idempotence": "false", "acks": "1"})
    for number, end in enumerate(("commit", "abort", "commit")):
        produce("ledger", messages(7, seed=seed + number), transactional_id=f"teller-{number % 2}", transaction=end)
    produce("ledger", messages(5, seed=seed), compression="lz4")
    return acknowledged


def pylog_appends(store: pylog.Store, seed: int) -> None:
    for topic in TOPICS:
        store.alter_topic(topic, message_timestamp_after_max_ms=2**63 - 1)
        for partition in store.topics()[topic].partition_ids:
            log = store.log(topic, partition)
            for number, codec in enumerate(CODECS):
                log.append_many(rows_of(10, seed=seed + number), compression=codec)
            segments = len(log.segments)
            log.append(b"one", b"k", [("h", None)], FAR_MS + seed * WEEK_MS)  # more than a segment's time: a new one begins
            assert len(log.segments) == segments + 1


def acknowledged_in(view: Views) -> dict[tuple[str, int, int], bytes | None]:
    return {(topic, each.partition, each.offset): each.value for topic in TOPICS for each in view[topic, "read_uncommitted"]}


def test_broker_and_pylog_append_in_turns_and_both_read_everything(broker) -> None:
    running = broker()
    for topic, partitions in zip(TOPICS, (2, 1, 1), strict=True):
        running.create_topic(topic, partitions, UNENDING)
    acknowledged = broker_appends(running, 0)
    crashed = {"transaction.timeout.ms": "900000"}  # the coordinator lets it stand that long
    running.produce("ledger", messages(3), transactional_id="crashed", transaction="leave open", config=crashed)
    running.produce("ledger", messages(4))  # committed readers wait for the open transaction
    seen, tips = as_consumers_see(running), ends_of_broker(running)
    assert len(seen["ledger", "read_committed"]) < len(seen["ledger", "read_uncommitted"])
    running.stop()

    after = pylog_takes_its_turn(running.log_dir, seen, tips, seed=100)
    assert (running.log_dir / MARKER).exists()

    running.start()
    assert_broker_sees(running, after)
    running.produce("ledger", messages(2), transactional_id="crashed")  # aborts what it had left open, then commits
    acknowledged |= broker_appends(running, 200)
    seen, tips = as_consumers_see(running), ends_of_broker(running)
    assert ("k", b"one") not in seen["ledger", "read_committed"]
    assert seen["ledger", "read_committed"][-1] == seen["ledger", "read_uncommitted"][-1]
    running.stop()

    after = pylog_takes_its_turn(running.log_dir, seen, tips, seed=300)
    assert_dump_tool_agrees(running)

    running.start()
    assert_broker_sees(running, after)
    acknowledged |= broker_appends(running, 400)
    seen, tips = as_consumers_see(running), ends_of_broker(running)
    running.kill()
    assert not (running.log_dir / MARKER).exists()

    after = pylog_takes_its_turn(running.log_dir, seen, tips, seed=500)
    assert not (running.log_dir / MARKER).exists(), "the partitions of the broker's own topics still need its recovery"
    assert acknowledged.items() <= acknowledged_in(after).items()

    running.start()
    assert_broker_sees(running, after)
    running.stop()


def pylog_takes_its_turn(directory: Path, seen: Views, tips: Mapping[str, object], seed: int) -> Views:
    """pylog reads what consumers saw, appends to every partition and closes. Returns what it sees then."""
    with pylog.open(directory) as store:
        assert as_pylog_sees(store) == seen
        assert ends_of_pylog(store) == tips
        pylog_appends(store, seed)
        after = as_pylog_sees(store)
        assert acknowledged_in(seen).items() <= acknowledged_in(after).items()
        assert [finding for finding in store.recovery_report if finding.kind != "rebuilt"] == []
    with pylog.open(directory, mode="r") as store:
        assert as_pylog_sees(store) == after
    return after


def assert_broker_sees(running: Broker, expected: Views) -> None:
    assert as_consumers_see(running) == expected
    assert complaints(running.output()) == []


def assert_dump_tool_agrees(stopped: Broker) -> None:
    """Every batch is whole, and every entry of an index names one."""
    names = [
        path
        for topic in TOPICS
        for path in stopped.log_dir.glob(f"{topic}-*/*")
        if path.suffix in (".log", ".index", ".timeindex")
    ]
    dumped = stopped.run_tool("dump-log", "--deep-iteration", "--files", ",".join(map(str, names))).check()
    assert faults(dumped) == []


# ---- at the same time ------------------------------------------------------------------------------------------------------


def listing(directory: Path) -> dict[str, tuple[int, int, int]]:
    """Inode, size and time of last change of everything below a directory."""
    stats = {str(path.relative_to(directory)): path.stat() for path in directory.rglob("*")}
    return {name: (stat.st_ino, stat.st_size, stat.st_mtime_ns) for name, stat in stats.items()}


def settled_listing(directory: Path) -> dict[str, tuple[int, int, int]]:
    """The same once it stays as it is: a process that is stopped may finish a write that it is in."""
    while True:
        before = listing(directory)
        time.sleep(0.3)
        if listing(directory) == before:
            return before


def owner_of(directory: Path) -> psutil.Process:
    """The process that keeps pylog from opening a directory for writing, as the error names it."""
    with pytest.raises(pylog.StoreLockedError, match="Kafka broker") as refused:
        pylog.open(directory)
    assert refused.value.pid is not None
    return psutil.Process(refused.value.pid)


def test_pylog_reads_beside_a_running_broker_writes_nothing_and_is_kept_from_writing(broker) -> None:
    running = broker()
    running.create_topic("busy", partitions=2, config=UNENDING)
    running.produce("busy", messages(50, 0) + messages(50, 1))
    seen = running.consume_all("busy", config=FAST)

    process = owner_of(running.log_dir)
    assert "kafka.Kafka" in process.cmdline()

    process.suspend()  # still running, but it does not change its files while they are compared
    try:
        before = settled_listing(running.log_dir)
        with pylog.open(running.log_dir, mode="r") as store:
            assert read(store, "busy") == seen
            assert store.log("busy").offset_for_timestamp(0) is not None
            with pytest.raises(pylog.ReadOnlyError):
                store.log("busy").append(b"no")
        assert owner_of(running.log_dir) == process
        assert listing(running.log_dir) == before
    finally:
        process.resume()

    reads_while_the_broker_writes(running)


def reads_while_the_broker_writes(running: Broker) -> None:
    """Each reading is a beginning of the next one, and the last one is everything."""

    def produce() -> None:
        for number in range(8):
            running.produce("busy", messages(100, 0, seed=number), config={"batch.size": "500"})

    readings: list[list[Record]] = []
    producing = threading.Thread(target=produce)
    producing.start()
    try:
        while producing.is_alive():
            with pylog.open(running.log_dir, mode="r") as store:
                readings.append([each for each in read(store, "busy") if each.partition == 0])
                assert store.recovery_report == ()
    finally:
        producing.join()
    with pylog.open(running.log_dir, mode="r") as store:
        last = read(store, "busy")
    assert last == running.consume_all("busy", config=FAST)
    readings.append([each for each in last if each.partition == 0])
    assert len({len(reading) for reading in readings}) > 2, "the broker was done before pylog looked"
    for earlier, later in itertools.pairwise(readings):
        assert later[: len(earlier)] == earlier


def test_a_broker_does_not_start_while_pylog_writes_but_does_while_pylog_reads(broker) -> None:
    running = broker()
    running.create_topic("shared", config=UNENDING)
    running.produce("shared", messages(10))
    seen = running.consume_all("shared", config=FAST)
    running.stop()

    with pylog.open(running.log_dir) as store:
        store.log("shared")
        with pytest.raises(KafkaError, match="has ended"):
            running.start()
        assert f"Failed to acquire lock on file .lock in {running.log_dir}" in running.output()
        assert (running.log_dir / MARKER).exists()
        store.log("shared").append(b"mine")
        assert not (running.log_dir / MARKER).exists()

    with pylog.open(running.log_dir, mode="r") as store:
        mine = read(store, "shared")
        running.start()
        assert mine[:-1] == seen
        assert running.consume_all("shared", config=FAST) == mine
        assert read(store, "shared") == mine
    running.stop()
