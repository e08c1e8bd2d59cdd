"""One asyncio program against a real broker with the real aiokafka, and against the layer: the same lines."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from support.kafka.harness import Broker
from support.kafka.programs import in_the_layer, lines_of

PROGRAM = """
    import asyncio, sys
    from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, ConsumerRebalanceListener, TopicPartition
    from aiokafka.admin import AIOKafkaAdminClient, NewPartitions, NewTopic, RecordsToDelete
    from aiokafka.admin.config_resource import ConfigResource
    from aiokafka.errors import ConsumerStoppedError, IllegalOperation, KafkaError

    server = {"bootstrap_servers": sys.argv[1]}
    place, other = TopicPartition("orders", 0), TopicPartition("orders", 1)

    async def attempt(call, *arguments):
        try:
            found = call(*arguments)
            return await found if asyncio.iscoroutine(found) else found
        except (KafkaError, ValueError, TypeError, AssertionError, IllegalOperation, ConsumerStoppedError) as error:
            return type(error).__name__

    class Listener(ConsumerRebalanceListener):
        def on_partitions_revoked(self, revoked):
            print("revoked", sorted(revoked))

        async def on_partitions_assigned(self, assigned):
            print("assigned", sorted(assigned))

    async def main():
        admin = AIOKafkaAdminClient(**server)
        await admin.start()
        made = await admin.create_topics([NewTopic("orders", 1, 1, topic_configs={"retention.ms": "-1"})])
        print([row[:2] for row in made.topic_errors])
        print([row[:2] for row in (await admin.create_topics([NewTopic("orders", 1, 1)])).topic_errors])
        await admin.create_topics([NewTopic("quiet", 1, 1), NewTopic("moved", 1, 1)])
        await admin.create_partitions({"orders": NewPartitions(2)})
        print(await attempt(admin.create_partitions, {"orders": NewPartitions(1)}))
        while len((topic := (await admin.describe_topics(["orders"]))[0])["partitions"]) < 2:
            await asyncio.sleep(0.1)  # a broker hears of them a moment later
        print(topic["error_code"], topic["topic"], sorted(each["partition"] for each in topic["partitions"]), sorted(topic))
        wanted = ConfigResource("TOPIC", "orders", {"retention.ms": "-1"})
        print([row[:2] for row in (await admin.describe_configs([wanted]))[0].resources[0][4]])

        producer = AIOKafkaProducer(**server)
        await producer.start()
        for number in range(5):
            headers = [("n", b"%d" % number)]
            print(await producer.send_and_wait("orders", b"%d" % number, b"k%d" % number, 0, 1000 + number, headers))
        print([(await producer.send_and_wait("orders", b"x", key)).partition for key in (b"a", b"b", b"c", b"d")])
        batch = producer.create_batch()
        while batch.append(timestamp=5000, key=None, value=b"y" * 100) is not None:
            pass
        sent = await (await producer.send_batch(batch, "orders", partition=1))
        print(batch.record_count(), batch.size(), batch.closed(), sent.partition)
        for arguments in (("orders",), ("orders", "text"), ("orders", b"x", None, 9), ("orders", b"x" * 2000000)):
            print(await attempt(producer.send, *arguments))
        print(await attempt(producer.begin_transaction))
        await producer.stop()
        print(await attempt(producer.send, "orders", b"x"))
        async with AIOKafkaProducer(acks=0, **server) as quiet:
            print(await quiet.send_and_wait("quiet", b"x"))

        options = {"group_id": "billing", "auto_offset_reset": "earliest", "enable_auto_commit": False} | server
        consumer = AIOKafkaConsumer(**options)
        consumer.subscribe(["orders"], listener=Listener())
        await consumer.start()
        print(sorted(consumer.assignment()), consumer.subscription())
        first = await consumer.getone(place)
        print(first)
        print(await consumer.position(place), await consumer.committed(place))
        found = await consumer.getmany(place, timeout_ms=5000, max_records=4)
        print([(record.offset, record.timestamp, record.value) for record in found[place]])
        await consumer.commit({place: (3, "note")})
        print(await consumer.committed(place), await consumer.seek_to_committed(place), await consumer.position(place))
        print(await consumer.beginning_offsets([place]), (await consumer.end_offsets([place]))[place] >= 5)
        print(await consumer.offsets_for_times({place: 1002, other: 9_999_999_999_999}))
        for call in ((consumer.seek, place, -1), (consumer.seek, TopicPartition("orders", 7), 1),
                     (consumer.position, TopicPartition("orders", 7)), (consumer.pause, TopicPartition("orders", 7)),
                     (consumer.commit, {place: "x"}), (consumer.commit, {TopicPartition("orders", 7): 1}),
                     (consumer.assign, [place]), (consumer.highwater, TopicPartition("orders", 7)), (consumer.subscribe,)):
            print(await attempt(*call))
        consumer.pause(place)
        print(consumer.paused(), await consumer.getmany(place, timeout_ms=100))
        consumer.resume(place)

        async with AIOKafkaProducer(transactional_id="mover", **server) as mover:
            print(await attempt(mover.send, "orders", b"x"))
            async with mover.transaction():
                await mover.send_and_wait("moved", b"1")
                await mover.send_offsets_to_transaction({place: 4}, "billing")
            while await consumer.committed(place) != 4:
                await asyncio.sleep(0.1)  # a broker writes the marker a moment after the commit
            await mover.begin_transaction()
            print(await attempt(mover.begin_transaction))
            await mover.send_and_wait("moved", b"2")
            await mover.abort_transaction()
        await consumer.stop()
        for call in (consumer.getone, consumer.getmany):
            print(await attempt(call))
        print([record.value async for record in consumer.__class__.__aiter__(consumer)] if not consumer._closed else "closed")
        reader = AIOKafkaConsumer("moved", isolation_level="read_committed", auto_offset_reset="earliest", **server)
        await reader.start()
        print((await reader.getone()).value, await reader.getmany(timeout_ms=500), await attempt(reader.commit))
        await reader.stop()
        print({key: tuple(each) for key, each in (await admin.list_consumer_group_offsets("billing")).items()})
        print(await admin.delete_records({place: RecordsToDelete(2)}))
        print(await attempt(admin.delete_records, {place: RecordsToDelete(9999)}))
        print(sorted((await admin.delete_topics(["orders", "none"])).topic_error_codes))
        await admin.close()

    asyncio.run(main())
"""


def test_an_asyncio_program_prints_the_same_with_a_broker_and_with_the_layer(
    tmp_path: Path, broker: Callable[..., Broker]
) -> None:
    expected = lines_of(PROGRAM, broker().bootstrap, cwd=tmp_path)
    assert lines_of(in_the_layer(PROGRAM), f"pylog://{tmp_path / 'store'}", cwd=tmp_path) == expected
    assert lines_of(in_the_layer(PROGRAM), "pylog+memory://same", cwd=tmp_path) == expected
