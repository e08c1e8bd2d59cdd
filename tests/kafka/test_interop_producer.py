"""A broker serves what pylog's producer wrote, with the numbers of its batches, and Kafka's producer goes on beside it."""

from __future__ import annotations

import re
from pathlib import Path

import pylog
from support.kafka.adopt import AdoptedTopic, adopt
from support.kafka.harness import Broker, KafkaJars, Message
from support.kafka.interop_data import NOW_MS, complaints, faults, read

KEYS = [b"key %d" % number for number in range(40)]


def test_kafkas_consumer_reads_a_producers_records_and_kafkas_producer_sends_the_same_keys_to_the_same_partitions(
    tmp_path: Path, kafka_jars: KafkaJars
) -> None:
    directory = tmp_path / "data"
    with pylog.open(directory) as store:
        topic = store.create_topic("orders", partition_count=3, retention_ms=-1)
        with store.producer(linger_ms=10**9, compression="zstd") as producer:
            for _ in range(2):
                for number, key in enumerate(KEYS):
                    producer.send("orders", b"ours", key, [("n", b"%d" % number)], timestamp=NOW_MS + number)
                for _ in range(5):
                    producer.send("orders", b"no key", timestamp=NOW_MS)
                producer.flush()
        expected = read(store, "orders")
    adopt(directory, [AdoptedTopic("orders", 3, str(topic.id), {"retention.ms": "-1"})])
    with Broker(directory, kafka_jars) as broker:
        assert broker.consume_all("orders") == expected
        sent = broker.produce("orders", [Message(b"theirs", key=key) for key in KEYS])
        broker.stop()
        assert complaints(broker.output()) == []
        files = sorted(map(str, directory.glob("orders-*/*.log")))
        dumped = broker.run_tool("dump-log", "--files", ",".join(files)).check()
    places = {record.key: record.partition for record in expected}
    assert [partition for partition, _ in sent] == [places[key] for key in KEYS]
    assert faults(dumped) == []
    batches = re.findall(r"baseSequence: (\d+) lastSequence: (\d+) producerId: (\d+) producerEpoch: (\d+)", dumped.stdout)
    ours = [tuple(map(int, batch)) for batch in batches if int(batch[2]) >= 1 << 48]
    assert len({batch[2:] for batch in ours}) == 1
    for first, second in zip(ours[::2], ours[1::2], strict=True):  # of each partition
        assert (first[0], second[0]) == (0, first[1] + 1)
    assert sum(last - first + 1 for first, last, *_ in ours) == len(expected)
