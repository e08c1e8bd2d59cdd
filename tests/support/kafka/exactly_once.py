"""A read-process-write program for confluent-kafka, with the calls of the library's own example in the same order.

It prints what it sees.
"""

from __future__ import annotations

PROGRAM = """
    import sys, time
    from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition

    server = {"bootstrap.servers": sys.argv[1]}
    place = TopicPartition("lines", 0)

    def told(call):
        try:
            return call()
        except KafkaException as raised:
            error = raised.args[0]
            return error.fatal(), error.txn_requires_abort()

    def reported(error, message):
        if error or message.error():
            print("not delivered", error)

    def begun(transactional_id="exactly-once"):
        producer = Producer({"transactional.id": transactional_id, **server})
        producer.init_transactions()
        producer.begin_transaction()
        return producer

    def consumer_of(**more):
        options = {"group.id": "copies", "auto.offset.reset": "earliest", "enable.auto.commit": False}
        made = Consumer({"enable.partition.eof": True, **options, **server, **more})
        for _ in range(60):  # until a broker that has just begun has loaded its groups
            try:
                made.committed([place])
                break
            except KafkaException:
                time.sleep(0.5)
        made.assign([TopicPartition("lines", 0)])
        return made

    def copy(producer, consumer, most):
        count = 0
        while count < most:
            producer.poll(0)
            message = consumer.poll(timeout=1.0)
            if message is None:
                continue
            if message.error():
                assert message.error().code() == KafkaError._PARTITION_EOF
                print("end", message.topic(), message.partition(), message.offset())
                break
            count += 1
            producer.produce("copies", message.value().upper(), message.key(), on_delivery=reported)
        producer.send_offsets_to_transaction(consumer.position(consumer.assignment()), consumer.consumer_group_metadata())
        return count

    def seen(topic, level):
        consumer = Consumer({"group.id": "none", "auto.offset.reset": "earliest", "enable.partition.eof": True,
                             "enable.auto.commit": False, "isolation.level": level, **server})
        consumer.assign([TopicPartition(topic, 0)])
        found = []
        while True:
            message = consumer.poll(1.0)
            if message is None:
                continue
            if message.error():
                consumer.close()
                return found
            found.append((message.offset(), message.key(), message.value()))

    first = begun("input")  # so that the input ends with a marker
    for number in range(7):
        first.produce("lines", b"line %d" % number, b"k%d" % number)
    first.commit_transaction()

    producer, consumer = begun(), consumer_of()
    print(copy(producer, consumer, 3))
    producer.commit_transaction()
    producer.begin_transaction()
    print(copy(producer, consumer, 2))
    producer.flush()
    producer.abort_transaction()
    consumer.close()
    print(consumer_of().committed([place])[0].offset)

    print(told(lambda: Producer({"transactional.id": "other", **server}).begin_transaction()))
    again = begun()  # fences the first one

    def too_late():
        producer.begin_transaction()
        copy(producer, consumer_of(), 1)
        producer.commit_transaction()

    print(told(too_late))
    consumer = consumer_of()
    print(copy(again, consumer, 100))
    again.commit_transaction()
    print(again.flush(10), consumer.committed([place])[0].offset, consumer.get_watermark_offsets(place))
    consumer.close()
    print(seen("copies", "read_committed"))
    print(len(seen("copies", "read_uncommitted")))
"""


def program_for(module: str) -> str:
    """Returns the program with another import, and nothing else changed."""
    return PROGRAM.replace("from confluent_kafka import", f"from {module} import")
