"""Transactions of pylog in a broker's hands, and a broker's in pylog's: the same ids, the same group, each of them whole."""

from __future__ import annotations

from dataclasses import dataclass
from unittest.mock import patch

import pytest

import pylog
from pylog import OffsetsConfig, TransactionsConfig
from pylog.store import Store
from pylog.transactions.coordinator import TransactionCoordinator
from support.cli import call
from support.kafka.harness import Broker, KafkaJars, Message
from support.kafka.interop_data import complaints
from support.transactional import committed, count_open

ID = "teller"
GROUP = "billing"
PARTITIONS = 2
FAST = {"fetch.max.wait.ms": "20"}
FEW = {"offsets": OffsetsConfig(topic_num_partitions=3), "transactions": TransactionsConfig(topic_num_partitions=3)}
Values = list[bytes]


@dataclass(frozen=True)
class Turns:
    """Committed values by turn, as the side that did not write them reads them, and as pylog reads them in the end.

    Attributes:
        broker_first, broker_second: values that the broker's consumers read after pylog's first and second turn.
        pylog_between: values that pylog reads after the broker's turn.
        offsets: of the group, as the broker knows them after each of pylog's turns.
        hanging: the output of the broker's tool that finds hanging transactions.
        listed: the output of the broker's tool that lists transactions.
        output: of the broker.
    """

    broker_first: Values
    pylog_between: Values
    broker_second: Values
    pylog_last: Values
    offsets: list[dict[tuple[str, int], int]]
    hanging: str
    listed: str
    output: str


def as_the_broker_reads(broker: Broker) -> Values:
    return sorted(record.value or b"" for record in broker.consume_all("out", "read_committed", config=FAST))


def transact(store: Store, value: bytes, offset: int) -> None:
    with store.transaction(ID) as transaction:
        for partition in range(PARTITIONS):
            transaction.append("out", value, partition=partition)
        transaction.send_offsets(GROUP, {("in", 0): offset})


def abort(store: Store, transactional_id: str, value: bytes) -> None:
    transaction = store.transaction(transactional_id)
    transaction.append("out", value, partition=1)
    transaction.flush()
    transaction.abort()


def leave_decided(store: Store, value: bytes, offset: int) -> None:
    """Decides that a transaction is committed, and writes none of its markers, as a process that is killed then."""
    killed = pylog.StorageFailedError("the process is killed here")
    with patch.object(TransactionCoordinator, "write_markers", side_effect=killed):
        transact(store, value, offset)


@pytest.fixture(scope="module")
def turns(tmp_path_factory: pytest.TempPathFactory, kafka_jars: KafkaJars) -> Turns:
    directory = tmp_path_factory.mktemp("transactions") / "data"
    with pylog.open(directory, **FEW) as store:  # type: ignore[arg-type]
        store.create_topic("in", retention_ms=-1)
        store.create_topic("out", PARTITIONS, retention_ms=-1)
        store.log("in").append_many([b"%d" % number for number in range(20)])
        transact(store, b"pylog 1", 1)
        abort(store, ID, b"aborted by pylog")
        abort(store, "other", b"aborted by pylog")
        transact(store, b"pylog 2", 2)
    done = call("graduate", directory, "--yes", "--json")
    assert done.code == 0, done.complaints
    properties = {name: value for name, value in done.json["properties"].items() if name not in ("node.id", "log.dirs")}
    offsets = []
    with Broker(directory, kafka_jars, config=properties) as broker:
        first = as_the_broker_reads(broker)
        offsets.append(broker.committed(GROUP))
        for end in ("commit", "abort"):
            sent = [Message(b"broker " + end.encode(), partition=number) for number in range(PARTITIONS)]
            broker.produce("out", sent, transactional_id=ID, transaction=end)
        broker.stop()
    with pylog.open(directory) as store:
        between = committed(store, "out")
        transact(store, b"pylog 3", 3)
        abort(store, "other", b"aborted by pylog")
        leave_decided(store, b"pylog 4", 4)
    with Broker(directory, kafka_jars, config=properties) as broker:
        listed = broker.run_tool("transactions", "list").check().stdout
        second = _until(broker, b"pylog 4")
        offsets.append(broker.committed(GROUP))
        hanging = broker.run_tool("transactions", "find-hanging", "--broker-id", "1").stdout
        sent = [Message(b"broker again", partition=number) for number in range(PARTITIONS)]
        broker.produce("out", sent, transactional_id=ID, transaction="commit")
        broker.stop()
        output = broker.output()
    with pylog.open(directory) as store:
        last = committed(store, "out")
        assert count_open(store, "out") == 0
        assert not store.verify().findings
    return Turns(first, between, second, last, offsets, hanging, listed, output)


def _until(broker: Broker, value: bytes) -> Values:
    """The broker finishes a decided transaction soon after its start."""
    for _ in range(50):
        found = as_the_broker_reads(broker)
        if value in found:
            return found
    return found


def twice(*values: bytes) -> Values:
    return sorted(value for value in values for _ in range(PARTITIONS))


def test_a_brokers_consumers_read_pylogs_transactions_whole(turns: Turns) -> None:
    assert turns.broker_first == twice(b"pylog 1", b"pylog 2")


def test_a_group_goes_on_from_the_offsets_that_pylog_committed_in_transactions(turns: Turns) -> None:
    assert turns.offsets == [{("in", 0): 2}, {("in", 0): 4}]


def test_a_kafka_client_goes_on_with_the_transactional_id_and_pylog_after_it(turns: Turns) -> None:
    assert turns.pylog_between == twice(b"pylog 1", b"pylog 2", b"broker commit")
    assert turns.pylog_last == twice(b"pylog 1", b"pylog 2", b"broker commit", b"pylog 3", b"pylog 4", b"broker again")


def test_a_broker_finishes_a_transaction_that_pylog_had_decided(turns: Turns) -> None:
    assert turns.broker_second == twice(b"pylog 1", b"pylog 2", b"broker commit", b"pylog 3", b"pylog 4")


def test_the_brokers_tools_list_pylogs_ids_and_find_nothing_that_hangs(turns: Turns) -> None:
    assert ID in turns.listed
    assert "other" in turns.listed
    assert not [line for line in turns.hanging.splitlines() if "out" in line], turns.hanging


def test_the_broker_has_nothing_to_say_against_pylogs_transactions(turns: Turns) -> None:
    assert complaints(turns.output) == []
