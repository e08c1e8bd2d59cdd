"""One program against a real broker with the real kafka-python, and against the layer: the same lines."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from support.kafka.harness import Broker
from support.kafka.programs import in_the_layer, lines_of

PROGRAM = """
    import sys, time, warnings
    warnings.simplefilter("ignore")
    from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, OffsetAndMetadata, TopicPartition
    from kafka.admin import ConfigResource, OffsetSpec
    from kafka.errors import KafkaError

    server = {"bootstrap_servers": sys.argv[1]}
    place = TopicPartition("orders", 0)

    def attempt(call):
        try:
            return call()
        except (KafkaError, ValueError, TypeError, KeyError) as error:
            return type(error).__name__

    admin = KafkaAdminClient(**server)
    configs = {"retention.ms": "86400000"}
    admin.create_topics({"orders": {"num_partitions": 2, "replication_factor": 1, "configs": configs}}, wait_for_metadata=True)
    print(attempt(lambda: admin.create_topics(["orders"])), attempt(lambda: admin.delete_topics(["missing"])))
    print(attempt(lambda: admin.create_partitions({"orders": 1})), sorted(admin.list_topics()))
    topic = admin.describe_topics(["orders"])[0]
    print(sorted(each["partition_index"] for each in topic["partitions"]), topic["error_code"])
    print(admin.describe_configs([ConfigResource("TOPIC", "orders")])["topic"]["orders"]["retention.ms"]["value"])

    with KafkaProducer(**server) as producer:
        for number in range(5):
            found = producer.send("orders", b"%d" % number, key=b"k%d" % number, partition=0, timestamp_ms=1000 + number,
                                  headers=[("n", b"%d" % number)]).get(30)
            print(found)
        print([producer.send("orders", b"x", key=key).get(30).partition for key in (b"a", b"b", b"c", b"d")])
        for call in (lambda: producer.send("orders"), lambda: producer.send("orders", "text"),
                     lambda: producer.send("orders", b"x", partition=9), lambda: producer.send("or ders", b"x"),
                     lambda: producer.send("orders", b"x" * 2000000)):
            print(attempt(call))

    options = {"group_id": "billing", "auto_offset_reset": "earliest", "enable_auto_commit": False} | server
    consumer = KafkaConsumer(**options)
    consumer.assign([place])
    records = []
    while len(records) < 5:
        records += consumer.poll(timeout_ms=1000).get(place, [])
    print(records[0])
    print([(record.offset, record.timestamp, record.value) for record in records[:5]])
    print(consumer.end_offsets([place])[place] >= 5, consumer.beginning_offsets([place]))
    print({key: found[:2] for key, found in consumer.offsets_for_times({place: 1002}).items()})
    print(consumer.committed(place))
    consumer.commit({place: OffsetAndMetadata(3, "note", -1)})
    print(consumer.committed(place), consumer.committed(place, metadata=True))
    consumer.commit({place: OffsetAndMetadata(999, "", -1)})
    print(consumer.committed(place))
    consumer.commit({place: OffsetAndMetadata(3, "", -1)})
    for call in (lambda: consumer.seek(place, -1), lambda: consumer.seek(TopicPartition("orders", 7), 1),
                 lambda: consumer.position(TopicPartition("orders", 7)), lambda: consumer.pause(TopicPartition("orders", 7)),
                 lambda: consumer.commit({place: 3}), lambda: consumer.subscribe(["orders"])):
        print(attempt(call))
    consumer.close()
    print(attempt(lambda: consumer.poll()))

    consumer = KafkaConsumer(**options)
    consumer.assign([place])
    first = None
    while first is None:
        first = next(iter(consumer.poll(timeout_ms=1000, max_records=1).get(place, [])), None)
    print(first.offset, consumer.position(place))
    consumer.close()
    print({name: {key: tuple(found)[:2] for key, found in offsets.items()} for name, offsets in
           admin.list_group_offsets("billing").items()})
    print(admin.delete_groups(["billing"]))
    print(admin.list_partition_offsets({place: OffsetSpec.EARLIEST})[place].offset)
    print(admin.delete_records({place: 2})[place]["low_watermark"])
    print(attempt(lambda: admin.delete_records({place: 9999})))
    admin.delete_topics(["orders"])
    admin.close()
"""


def test_a_program_prints_the_same_with_a_broker_and_with_the_layer(tmp_path: Path, broker: Callable[..., Broker]) -> None:
    expected = lines_of(PROGRAM, broker().bootstrap, cwd=tmp_path)
    assert lines_of(in_the_layer(PROGRAM), f"pylog://{tmp_path / 'store'}", cwd=tmp_path) == expected
    assert lines_of(in_the_layer(PROGRAM), "pylog+memory://same", cwd=tmp_path) == expected
