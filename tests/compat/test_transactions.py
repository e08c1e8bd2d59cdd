"""kafka-python's transactional calls on the layer."""

from __future__ import annotations

from typing import Any

import pytest

import pylog.compat.kafka as kafka
from compat.conftest import Servers
from pylog.compat.kafka import errors


def test_the_transactions_of_the_library_s_own_page_commit_and_abort(memory: Servers) -> None:
    producer = kafka.KafkaProducer(**memory, transactional_id="fizzbuzz")
    producer.init_transactions()
    producer.begin_transaction()
    assert producer.send("txn_topic", value=b"yes").get().offset == 0
    producer.commit_transaction()
    producer.begin_transaction()
    assert producer.send("txn_topic", value=b"no").get().offset > 0
    producer.abort_transaction()
    assert "transactional_id=fizzbuzz" in str(producer)
    producer.close()
    options: dict[str, Any] = {**memory, "auto_offset_reset": "earliest", "consumer_timeout_ms": 100}
    consumer = kafka.KafkaConsumer("txn_topic", isolation_level="read_committed", **options)
    assert [record.value for record in consumer] == [b"yes"]
    consumer.close()


def test_offsets_are_committed_in_a_transaction_for_a_consumer_or_for_a_group_without_any(memory: Servers) -> None:
    with kafka.KafkaProducer(**memory) as plain:
        plain.send("orders", b"x").get(timeout=60)
    place, other = kafka.TopicPartition("orders", 0), kafka.KafkaProducer(**memory, transactional_id="mine")
    consumer = kafka.KafkaConsumer("orders", group_id="billing", auto_offset_reset="earliest", **memory)
    assert consumer.poll(1000)
    with kafka.KafkaProducer(**memory, transactional_id="mine") as producer:
        other.init_transactions()
        other.begin_transaction()
        other.send_offsets_to_transaction({place: kafka.OffsetAndMetadata(0, "", -1)}, "alone")
        producer.init_transactions()
        with pytest.raises(errors.ProducerFencedError):
            other.commit_transaction()
        producer.begin_transaction()
        producer.send_offsets_to_transaction({place: kafka.OffsetAndMetadata(1, "", -1)}, consumer.group_metadata())
        producer.send_offsets_to_transaction({place: kafka.OffsetAndMetadata(1, "", -1)}, "alone")
        producer.commit_transaction()
        assert consumer.committed(place) == 1
        metadata = consumer.group_metadata()
        consumer.close()
        producer.begin_transaction()
        producer.send_offsets_to_transaction({place: kafka.OffsetAndMetadata(0, "", -1)}, metadata)
        with pytest.raises(errors.CommitFailedError):
            producer.commit_transaction()
        producer.abort_transaction()
        producer.begin_transaction()
        for wrong in (5, None, kafka.ConsumerGroupMetadata()):
            with pytest.raises(TypeError):
                producer.send_offsets_to_transaction({place: kafka.OffsetAndMetadata(0, "", -1)}, wrong)
        with pytest.raises(TypeError):
            producer.send_offsets_to_transaction({place: 1}, "alone")
    other.close()
