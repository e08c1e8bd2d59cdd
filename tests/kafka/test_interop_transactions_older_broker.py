"""Transactions of older brokers in pylog's hands and pylog's in theirs. Brokers make the directories: `graduate` is for 4.3."""

from __future__ import annotations

from dataclasses import dataclass
from unittest.mock import patch

import pytest

import pylog
from pylog.store import Store
from pylog.transactions.coordinator import TransactionCoordinator
from support.kafka.harness import Broker, KafkaJars, Message
from support.kafka.interop_data import complaints
from support.transactional import committed, count_open

VERSIONS = "3.9.1", "4.1.1"  # the last one without KIP-890's epochs, and one of the first with them
ID, OPEN, PREPARED = "teller", "left open", "prepared"
GROUP = "billing"
PARTITIONS = 2
FAST = {"fetch.max.wait.ms": "20"}
Values = list[bytes]


@dataclass(frozen=True)
class Turns:
    """Committed values, as each side reads them after the turn of the other one.

    Attributes:
        before: those that pylog reads of the broker's.
        states: of the transactional ids, as pylog lists them then.
        broker: those that the broker's consumers read after pylog's turn.
        offsets: of the group, as the broker knows them.
        hanging: the output of the broker's tool that finds hanging transactions.
        last: those that pylog reads in the end.
        output: of the broker.
    """

    before: Values
    states: dict[str, str]
    broker: Values
    offsets: dict[tuple[str, int], int]
    hanging: str
    last: Values
    output: str


def transact(store: Store, transactional_id: str, value: bytes, offset: int) -> None:
    with store.transaction(transactional_id) as transaction:
        for partition in range(PARTITIONS):
            transaction.append("out", value, partition=partition)
        transaction.send_offsets(GROUP, {("in", 0): offset})


def produce(broker: Broker, transactional_id: str, value: bytes, end: str) -> None:
    sent = [Message(value, partition=number) for number in range(PARTITIONS)]
    broker.produce("out", sent, transactional_id=transactional_id, transaction=end)  # type: ignore[arg-type]


def as_the_broker_reads(broker: Broker, wanted: bytes) -> Values:
    """What the broker's consumers read. It finishes a decided transaction soon after its start."""
    for _ in range(50):
        found = sorted(record.value or b"" for record in broker.consume_all("out", "read_committed", config=FAST))
        if wanted in found:
            return found
    return found


@pytest.fixture(scope="module", params=VERSIONS)
def turns(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, kafka_jars: KafkaJars) -> Turns:
    directory = tmp_path_factory.mktemp("older") / "data"
    older = KafkaJars.fetch(kafka_jars.directory.parent, request.param)
    with Broker(directory, older) as broker:
        broker.create_topic("in", config={"retention.ms": "-1"})
        broker.create_topic("out", PARTITIONS, {"retention.ms": "-1"})
        broker.produce("in", [Message(b"%d" % number, partition=0) for number in range(20)])
        produce(broker, ID, b"broker commit", "commit")
        produce(broker, ID, b"broker abort", "abort")
        produce(broker, OPEN, b"broker open", "leave open")
        broker.commit(GROUP, "in", {0: 1})
        broker.stop()
    with pylog.open(directory) as store:
        before = committed(store, "out")
        states = {each.transactional_id: each.state for each in store.transactions.list()}
        transact(store, ID, b"pylog 1", 2)
        transact(store, OPEN, b"pylog 2", 3)  # which aborts what the broker's client had left open
        aborted = store.transaction(ID)
        aborted.append("out", b"aborted by pylog", partition=0)
        aborted.flush()
        aborted.abort()
        killed = pylog.StorageFailedError("the process is killed here")
        with patch.object(TransactionCoordinator, "write_markers", side_effect=killed):
            transact(store, PREPARED, b"pylog 3", 4)
    with Broker(directory, older) as broker:
        read = as_the_broker_reads(broker, b"pylog 3")
        offsets = broker.committed(GROUP)
        hanging = broker.run_tool("transactions", "find-hanging", "--broker-id", "1").check().stdout
        for name in (ID, PREPARED):
            produce(broker, name, b"broker again", "commit")
        broker.stop()
        output = broker.output()
    with pylog.open(directory) as store:
        last = committed(store, "out")
        assert count_open(store, "out") == 0
        assert not store.verify().findings
    return Turns(before, states, read, offsets, hanging, last, output)


def twice(*values: bytes) -> Values:
    return sorted(value for value in values for _ in range(PARTITIONS))


BROKERS, PYLOGS = (b"broker commit",), (b"pylog 1", b"pylog 2", b"pylog 3")


@pytest.mark.slow
def test_pylog_reads_the_transactions_of_an_older_broker(turns: Turns) -> None:
    assert turns.states == {ID: "CompleteAbort", OPEN: "Ongoing"}
    assert turns.before == twice(*BROKERS)


@pytest.mark.slow
def test_an_older_broker_finishes_and_reads_pylogs_transactions(turns: Turns) -> None:
    assert turns.broker == twice(*BROKERS, *PYLOGS)
    assert turns.offsets == {("in", 0): 4}
    assert not [line for line in turns.hanging.splitlines() if "out" in line], turns.hanging


@pytest.mark.slow
def test_a_client_of_an_older_broker_goes_on_with_pylogs_ids(turns: Turns) -> None:
    assert turns.last == twice(*BROKERS, *PYLOGS, b"broker again", b"broker again")
    assert complaints(turns.output) == []
