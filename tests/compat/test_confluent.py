"""The names of confluent-kafka: its programs with transactions run with another import and another address."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import pylog
import pylog.compat.confluent as confluent
from pylog.compat.clusters import CLUSTERS, MEMORY
from pylog.compat.confluent.errors import error_of
from support.kafka.exactly_once import program_for
from support.kafka.programs import lines_of

EXPECTED = [
    "3",
    "2",
    "3",
    "(False, False)",
    "(True, False)",
    "end lines 0 8",
    "4",
    "0 8 (0, 8)",
]


@pytest.fixture
def server() -> Iterator[dict[str, str]]:
    yield {"bootstrap.servers": "pylog+memory://confluent"}
    CLUSTERS.forget(MEMORY + "confluent")


@pytest.mark.slow
def test_a_read_process_write_program_for_confluent_kafka_copies_each_record_once(tmp_path: Path):
    lines = lines_of(program_for("pylog.compat.confluent"), f"pylog://{tmp_path / 'store'}", cwd=tmp_path)
    assert lines[:8] == EXPECTED
    with pylog.open(tmp_path / "store", mode="r") as store:
        copies = store.log("copies").records(isolation_level="read_committed")
        assert [record.value for record in copies] == [b"LINE %d" % number for number in range(7)]
        assert store.offsets.position("copies", ("lines", 0)) == 8
        states = {each.transactional_id: each.state for each in store.transactions.list()}
    assert states == {"exactly-once": "CompleteCommit", "input": "CompleteCommit"}


def test_a_producer_reports_deliveries_and_counts_what_waits(server: dict[str, str]):
    told: list[tuple[object, int | None]] = []
    producer = confluent.Producer(server, on_delivery=lambda error, message: told.append((error, message.offset())))
    producer.produce("orders", "tea", key="k", headers={"n": b"1"}, timestamp=1000)
    producer.produce("orders", value=None, key=b"k")
    assert producer.flush() == len(producer) == 0
    assert told == [(None, 0), (None, 1)]
    with pytest.raises(TypeError, match="neither bytes nor text"):
        producer.produce("orders", 7)  # type: ignore[arg-type]
    producer.close()
    consumer = confluent.Consumer(server, **{"group.id": "g", "auto.offset.reset": "earliest"})
    consumer.assign([confluent.TopicPartition("orders", 0)])
    first, second = (*consumer.consume(1, 5), *consumer.consume(1, 5))
    assert (first.key(), first.value(), first.headers(), first.timestamp()) == (b"k", b"tea", [("n", b"1")], (1, 1000))
    assert (second.value(), len(second), second.error()) == (None, 0, None)
    assert consumer.poll(0) is None
    consumer.commit(second, asynchronous=False)
    assert consumer.committed([confluent.TopicPartition("orders", 0)])[0].offset == 2
    consumer.close()


def test_a_member_of_a_group_commits_in_transactions_and_is_told_of_its_partitions(server: dict[str, str]):
    told: list[tuple[str, list[confluent.TopicPartition]]] = []
    producer = confluent.Producer({"transactional.id": "t", **server})
    producer.init_transactions()
    producer.begin_transaction()
    producer.produce("orders", b"tea")
    producer.commit_transaction()
    consumer = confluent.Consumer({"group.id": "g", "auto.offset.reset": "earliest", **server})
    consumer.subscribe(["orders"], on_assign=lambda _, parts: told.append(("assigned", parts)))
    message = consumer.poll(10)
    assert message is not None
    assert message.value() == b"tea"
    producer.begin_transaction()
    positions = consumer.position(consumer.assignment())
    producer.send_offsets_to_transaction(positions, consumer.consumer_group_metadata())
    producer.commit_transaction()
    assert consumer.committed(consumer.assignment())[0].offset == 1
    assert told == [("assigned", [confluent.TopicPartition("orders", 0)])]
    assert consumer.memberid()
    consumer.close()
    producer.close()


@pytest.mark.parametrize(
    ("error", "name", "flags"),
    [
        (pylog.ProducerFencedError("x", producer_id=1, epoch=1, sequence=0, expected=2), "_FENCED", (True, False, False)),
        (pylog.FencedMemberError("x"), "ILLEGAL_GENERATION", (False, False, True)),
        (pylog.TransactionAbortedError("x"), "TRANSACTION_ABORTABLE", (False, False, True)),
        (pylog.InvalidTransactionStateError("x"), "_STATE", (False, False, False)),
        (pylog.StoreLockedError("x"), "_TIMED_OUT", (False, False, True)),
        (pylog.SyncFailedError("x"), "KAFKA_STORAGE_ERROR", (True, False, False)),
    ],
)
def test_an_error_of_a_transaction_tells_whether_to_retry_abort_or_give_up(
    error: pylog.PylogError, name: str, flags: tuple[bool, bool, bool]
):
    found = error_of(error, in_transaction=True)
    assert (found.name(), (found.fatal(), found.retriable(), found.txn_requires_abort())) == (name, flags)
    if name == "_TIMED_OUT":
        assert error_of(error).retriable()


def test_a_short_session_timeout_is_accepted_with_the_heartbeat_of_the_default(server: dict[str, str]):
    consumer = confluent.Consumer(server | {"group.id": "g", "session.timeout.ms": 6000})
    consumer.close()
