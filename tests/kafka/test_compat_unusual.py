"""Less usual calls of kafka-python, against a real broker with the real package, and against the layer: the same lines."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from support.kafka.harness import Broker
from support.kafka.programs import in_the_layer, lines_of

PROGRAM = """
    import json, sys, threading, time, warnings
    warnings.simplefilter("ignore")
    from kafka import ConsumerRebalanceListener, KafkaAdminClient, KafkaConsumer, KafkaProducer, OffsetAndMetadata, TopicPartition
    from kafka.admin import NewPartitions, NewTopic
    from kafka.errors import KafkaError

    server = {"bootstrap_servers": sys.argv[1]}

    def attempt(call, *given, **named):
        try:
            return call(*given, **named)
        except Exception as error:
            return type(error).__name__

    def refused(call):
        try:
            call()
        except KafkaError:
            return True

    admin = KafkaAdminClient(**server)
    admin.create_topics([NewTopic(name, count, 1) for name, count in
                         [("threads", 3), ("codecs", 1), ("json", 1), ("moves", 2), ("txn", 1), ("late", 1)]])
    admin.wait_for_topics(["threads", "codecs", "json", "moves", "txn", "late"])

    # one producer in several threads; callbacks; a consumer that another thread closes
    producer = KafkaProducer(linger_ms=5, **server)
    called, failed = [], []
    def send(thread):
        for number in range(50):
            future = producer.send("threads", b"%d" % number, key=b"%d" % thread)
            future.add_callback(lambda metadata: called.append(metadata.partition)).add_errback(failed.append)
    workers = [threading.Thread(target=send, args=(thread,)) for thread in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    producer.flush()
    print(len(called), len(failed), sorted(producer.partitions_for("threads")))

    consumer = KafkaConsumer("threads", auto_offset_reset="earliest", group_id="g", **server)
    found, ended = {}, []
    def read():
        try:
            for message in consumer:
                found.setdefault(message.key, []).append(int(message.value))
            ended.append("end")
        except BaseException as error:
            ended.append(type(error).__name__)
    reading = threading.Thread(target=read)
    reading.start()
    while sum(map(len, found.values())) < 200:
        time.sleep(0.05)
    consumer.close()
    reading.join(30)
    print(len(ended), all(numbers == list(range(50)) for numbers in found.values()), attempt(next, consumer))

    # codecs, headers, nulls, times
    for codec in (None, "gzip"):
        with KafkaProducer(compression_type=codec, **server) as each:
            each.send("codecs", (codec or "none").encode() * 100, headers=[("codec", (codec or "none").encode()), ("twice", b"1"),
                      ("twice", b"")], timestamp_ms=5000)
            each.send("codecs", None, key=b"tombstone")
            each.send("codecs", b"", key=b"")
            print(attempt(each.send, "codecs", b"x", headers=[("null", None)]))
    print(attempt(KafkaProducer, compression_type="brotli", **server))
    consumer = KafkaConsumer("codecs", auto_offset_reset="earliest", consumer_timeout_ms=3000, **server)
    for message in consumer:
        size = message.serialized_key_size, message.serialized_value_size, message.serialized_header_size
        print(message.offset, message.key, message.value and message.value[:5], message.headers, size, message.timestamp_type)
    print(attempt(next, consumer))
    consumer.close()

    # serializers, and records that a deserializer refuses
    with KafkaProducer(value_serializer=lambda value: json.dumps(value).encode(), key_serializer=str.encode, **server) as each:
        for value in ({"a": 1}, [1], None, "x"):
            each.send("json", value, key="k")
        print(attempt(each.send, "json", {1, 2}), attempt(each.send, "json", 1, key=5))
    with KafkaProducer(**server) as each:
        each.send("json", b"no json")
        each.send("json", b"5")
    consumer = KafkaConsumer("json", auto_offset_reset="earliest", value_deserializer=json.loads, **server)
    values = []
    def take():
        for message in consumer:
            values.append(message.value)
    print(attempt(take), values)
    consumer.close()

    # assignment by hand: seek, pause, resume, poll in pieces
    with KafkaProducer(**server) as each:
        for number in range(20):
            each.send("moves", b"%d" % number, partition=number % 2)
    zero, one = places = [TopicPartition("moves", number) for number in (0, 1)]
    consumer = KafkaConsumer(auto_offset_reset="earliest", max_poll_records=3, **server)
    print(attempt(consumer.seek, zero, 0), attempt(consumer.position, zero), attempt(consumer.poll), attempt(consumer.commit))
    consumer.assign(places)
    def polled(count, **options):
        taken = []
        until = time.monotonic() + 20
        while len(taken) < count and time.monotonic() < until:
            for records in consumer.poll(timeout_ms=200, **options).values():
                taken += [(record.partition, record.offset) for record in records]
        return sorted(taken)
    print(polled(20))
    consumer.seek(zero, 7)
    consumer.seek_to_end(one)
    print(polled(3), consumer.position(zero), consumer.position(one))
    consumer.seek(zero, 8)
    print([(record.partition, record.offset) for records in [consumer.poll(timeout_ms=5000, max_records=1)]
           for each in records.values() for record in each], consumer.position(zero))
    consumer.seek(zero, 500)
    print(consumer.position(zero), polled(10)[:1], consumer.position(zero))
    pausing = KafkaConsumer(auto_offset_reset="earliest", **server)
    pausing.assign(places)
    pausing.pause(zero)
    read, consumer = consumer, pausing
    print(pausing.paused(), polled(10), pausing.highwater(one))
    pausing.resume(zero)
    print(pausing.paused(), polled(10), pausing.highwater(zero))
    pausing.close()
    consumer = read
    consumer.assign([one])
    print(consumer.assignment(), attempt(consumer.position, zero), attempt(consumer.subscribe, ["moves"]))
    consumer.unsubscribe()
    print(consumer.assignment(), consumer.subscription())
    consumer.close()
    consumer.close()
    none = KafkaConsumer("moves", auto_offset_reset="none", group_id="none", **server)
    def poll_none():
        until = time.monotonic() + 20
        while time.monotonic() < until:
            none.poll(500)
    print(attempt(poll_none))
    none.close()

    # a listener, and commits in it; patterns
    events = []
    class Listener(ConsumerRebalanceListener):
        def on_partitions_revoked(self, revoked):
            if not revoked:
                return  # kafka-python tells of none, too, before the first assignment
            events.append(("revoked", sorted(revoked)))
        def on_partitions_assigned(self, assigned):
            events.append(("assigned", sorted(assigned)))
            consumer.seek_to_end()
    consumer = KafkaConsumer(group_id="listens", auto_offset_reset="earliest", enable_auto_commit=False, **server)
    wrong = KafkaConsumer(**server)
    print(attempt(wrong.subscribe, ["moves"], listener=object()), attempt(wrong.subscribe, pattern="mo.*", topics=["x"]))
    wrong.close()
    consumer.subscribe(pattern="mov.*", listener=Listener())
    while not consumer.assignment():
        consumer.poll(200)
    print(events, consumer.subscription(), polled(0), [consumer.position(place) for place in places])
    wanted = {zero: OffsetAndMetadata(2, "", -1)}
    future = consumer.commit_async(wanted, callback=lambda offsets, response: events.append(offsets))
    while not future.is_done:
        consumer.poll(100)
    consumer.poll(100)  # calls the callback
    print(events[-1], consumer.committed(zero), consumer.committed(one), sorted(admin.list_group_offsets("listens")["listens"]))
    consumer.close()
    print(events[2:])

    # transactions
    for outcome in ("commit", "abort", "commit"):
        with KafkaProducer(transactional_id="t", **server) as each:
            print(attempt(each.send, "txn", b"early"), refused(each.begin_transaction))
            each.init_transactions()
            print(refused(each.commit_transaction))
            each.begin_transaction()
            each.send("txn", outcome.encode()).get(30)
            print(refused(each.begin_transaction))
            each.commit_transaction() if outcome == "commit" else each.abort_transaction()
    for level in ("read_committed", "read_uncommitted"):
        consumer = KafkaConsumer("txn", isolation_level=level, auto_offset_reset="earliest", consumer_timeout_ms=3000, **server)
        print([(message.offset, message.value) for message in consumer], consumer.end_offsets([TopicPartition("txn", 0)]))
        consumer.close()

    # futures and closed clients
    future = producer.send("late", b"x")
    record = future.get(timeout=30)
    print(future.succeeded(), future.failed(), future.is_done, record.topic, record.partition, record.offset)
    print(attempt(producer.send, "late", b"x", partition=5), attempt(producer.send, "late", b"x", headers={"a": b"1"}),
          attempt(producer.send, "late", b"x", timestamp_ms="now"), attempt(producer.send, 5, b"x"))
    producer.close()
    producer.close()
    print(attempt(producer.send, "late", b"x"), attempt(producer.flush), attempt(producer.partitions_for, "late"))
    print(attempt(KafkaConsumer, auto_offset="earliest", **server), attempt(KafkaProducer, batch=5, **server))
    admin.close()
    try:
        admin.list_topics()
    except RuntimeError:
        print("closed")
"""


def test_unusual_calls_print_the_same_with_a_broker_and_with_the_layer(tmp_path: Path, broker: Callable[..., Broker]) -> None:
    expected = lines_of(PROGRAM, broker().bootstrap, cwd=tmp_path)
    assert lines_of(in_the_layer(PROGRAM), f"pylog://{tmp_path / 'store'}", cwd=tmp_path) == expected
