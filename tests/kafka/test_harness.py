"""The broker of the tests is a real one: it keeps what it was sent over a clean stop and over a kill."""

from __future__ import annotations

from support.kafka.harness import Message


def test_a_broker_keeps_records_over_a_clean_stop_and_over_a_kill(broker):
    running = broker()
    running.create_topic("orders", partitions=2)
    sent = [Message(b"paid", key=b"42", headers=(("source", None),), timestamp=1_700_000_000_000, partition=1)]
    assert running.produce("orders", sent, compression="zstd") == [(1, 0)]

    running.stop()
    assert (running.log_dir / ".kafka_cleanshutdown").exists()
    running.start()
    running.kill()
    assert not (running.log_dir / ".kafka_cleanshutdown").exists()
    running.start()

    (record,) = running.consume_all("orders")
    assert (record.partition, record.offset, record.timestamp) == (1, 0, 1_700_000_000_000)
    assert (record.key, record.value, record.headers) == (b"42", b"paid", (("source", None),))
