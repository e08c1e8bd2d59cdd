"""A broker serves exactly what pylog's compaction left, also when it was killed in the middle of a swap, and both go on."""

from __future__ import annotations

import inspect
import random
from pathlib import Path

import pytest

import pylog
from pylog.segment.names import CLEANED, LOG, SWAP
from support.faults.neighbours import Neighbour
from support.kafka.adopt import AdoptedTopic, adopt
from support.kafka.harness import Broker, KafkaJars, Message, Record
from support.kafka.interop_data import NOW_MS, complaints, ends, read

TOPICS = ("plain", "packed", "numbered")
CONSUMER = {"fetch.max.wait.ms": "20"}
PATIENT = {"broker.session.timeout.ms": "9000"}


def write(store: pylog.Store, now_ms: int) -> None:
    """Topics whose segments lose most of their records: uncompressed, compressed, of a producer whose batches are numbered."""
    options = {"cleanup_policy": "compact", "segment_bytes": 2000, "index_interval_bytes": 200, "delete_retention_ms": 1 << 40}
    for topic, codec in (("plain", "none"), ("packed", "zstd"), ("numbered", "none")):
        store.create_topic(topic, **options, compression_type=codec)
        log = store.log(topic)
        for first in range(0, 600, 10):
            numbers = range(first, first + 10)
            items = [(b"k%d" % (n * n % 97), None if n % 11 == 0 else b"v%d" % n, [("h", b"1")], now_ms + n) for n in numbers]
            log.append_batch(items, producer=pylog.ProducerBatch(1 << 48, 0, first) if topic == "numbered" else None)


def seen_by_pylog(directory: Path) -> tuple[dict[str, list[Record]], dict[str, tuple[int, int]]]:
    with pylog.open(directory, mode="r") as store:
        return {topic: read(store, topic) for topic in TOPICS}, {topic: ends(store, topic)[0] for topic in TOPICS}


def seen_by(running: Broker) -> tuple[dict[str, list[Record]], dict[str, tuple[int, int]]]:
    consumed = {topic: running.consume_all(topic, config=CONSUMER) for topic in TOPICS}
    return consumed, {topic: running.offsets(topic)[0] for topic in TOPICS}


@pytest.fixture(params=["closed", "killed before the swap is decided", "killed behind it"])
def compacted(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """The directory that a process leaves which has compacted twice, so that segments were merged, or died at the second time."""
    directory = tmp_path / "data"
    killed_at = {"killed before the swap is decided": LOG + CLEANED, "killed behind it": LOG + SWAP}.get(request.param)
    with Neighbour() as other:
        other.run(inspect.getsource(write))
        other.run(
            "fs = HookedFileSystem(); store = pylog.open(path, fs=fs); write(store, now_ms)", path=str(directory), now_ms=NOW_MS
        )
        other.run(f"for topic in {TOPICS}: store.compact(topic)")
        if killed_at is None:
            other.run(f"for topic in {TOPICS}: store.compact(topic)")
            other.run("store.close()")
        else:
            other.begin(f"fs.before('rename', {killed_at!r}, send_self(signal.SIGKILL)); store.compact('plain')")
            assert other.wait() == -9
    return directory


def test_a_broker_serves_exactly_what_compaction_left_and_both_go_on(compacted: Path, kafka_jars: KafkaJars) -> None:
    with pylog.open(compacted, mode="r") as store:
        topics = store.topics().values()
        found = [AdoptedTopic(each.name, each.partition_count, str(each.id), {"retention.ms": "-1"}) for each in topics]
    records, tips = seen_by_pylog(compacted)
    counts = {topic: len(each) for topic, each in records.items()}
    assert all(48 < count < 300 for count in counts.values()), counts
    assert set(tips.values()) == {(0, 600)}

    adopt(compacted, found)
    with Broker(compacted, kafka_jars, config=PATIENT) as broker:
        assert seen_by(broker) == (records, tips)
        for topic in TOPICS:
            broker.produce(topic, [Message(b"the broker's", key=b"k1", timestamp=NOW_MS + 5000, partition=0)] * 3)
        served = seen_by(broker)
        broker.stop()
        assert complaints(broker.output()) == []

        assert seen_by_pylog(compacted) == served
        noise = random.Random(1)
        with pylog.open(compacted) as store:
            for topic in TOPICS:
                for _ in range(3):
                    store.log(topic).append(noise.randbytes(1500), key=b"k1")  # which fills a segment also when compressed
                store.compact(topic)
                assert b"the broker's" not in [record.value for record in store.log(topic).records()]
            assert [finding for finding in store.recovery_report if finding.kind != "rebuilt"] == []
            assert store.verify(records=True).ok
        expected = seen_by_pylog(compacted)
        assert all(len(expected[0][topic]) < len(served[0][topic]) for topic in TOPICS)

        broker.start()
        assert seen_by(broker) == expected
        broker.stop()
        assert complaints(broker.output()) == []
