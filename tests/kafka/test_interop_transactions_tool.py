"""`pylog transactions` and Kafka's own tool give the same answers about a directory."""

from __future__ import annotations

import re
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import pylog
from pylog import OffsetsConfig, TransactionsConfig
from support.cli import call
from support.kafka.harness import Broker, KafkaJars
from support.left_open import leave_decided, leave_hanging, leave_open

FEW = {"offsets": OffsetsConfig(topic_num_partitions=1), "transactions": TransactionsConfig(topic_num_partitions=2)}
HOUR_MS = 3_600_000
Rows = list[dict[str, str]]


@dataclass(frozen=True)
class Seen:
    """What Kafka's tool prints of a directory with each kind of transaction, and what pylog says of it beside the broker."""

    listed: Rows
    described: Rows
    hanging: Rows
    mine: dict[str, Any]
    my_hanging: list[dict[str, Any]]
    my_table: str


def rows_of(printed: str) -> Rows:
    """The table that Kafka's tool prints."""
    titles, *lines = (re.split(r"\s*\t", line.rstrip()) for line in printed.splitlines() if "\t" in line)
    return [dict(zip(titles, line, strict=False)) for line in lines]


def each_kind_of_transaction(path: Path) -> dict[str, str]:
    """Leaves a committed, an aborted, a decided, an open and a hanging transaction. Returns the configuration of a broker."""
    live = path.with_name("live")
    with pylog.open(live, **FEW) as store:  # type: ignore[arg-type]
        store.create_topic("out", partition_count=2, retention_ms=-1)
        with store.transaction("committed") as transaction:
            transaction.append("out", b"kept", partition=0)
        leave_open(store, "aborted").abort()
    done = call("graduate", live, "--yes", "--json")
    assert done.code == 0, done.complaints
    with pylog.open(live) as store:
        leave_decided(store, "decided", partition=1)
        open_one = store.transaction("open", timeout_ms=900_000)
        open_one.append("out", b"open", partition=0)
        open_one.append("out", b"open", partition=1)
        open_one.flush()
        leave_hanging(store, age_ms=HOUR_MS, partition=1)
        shutil.copytree(live, path)  # what a kill would leave
    return {name: value for name, value in done.json["properties"].items() if name not in ("node.id", "log.dirs")}


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory, kafka_jars: KafkaJars) -> Seen:
    path = tmp_path_factory.mktemp("transactions") / "data"
    with Broker(path, kafka_jars, config=each_kind_of_transaction(path)) as broker:
        described = broker.run_tool("transactions", "describe", "--transactional-id", "open").check().stdout
        hanging = broker.run_tool("transactions", "find-hanging", "--broker-id", "1").check().stdout
        listed = broker.run_tool("transactions", "list").check().stdout
        mine = {each["transactional_id"]: each for each in call("transactions", "list", path, "--json").json["transactions"]}
        my_hanging = call("transactions", "hanging", path, "--json").json["hanging"]
        my_table = call("transactions", "list", path).text
    return Seen(rows_of(listed), rows_of(described), rows_of(hanging), mine, my_hanging, my_table)


def test_the_same_ids_are_listed_with_the_same_states(seen: Seen) -> None:
    theirs = {row["TransactionalId"]: (int(row["ProducerId"]), row["TransactionState"]) for row in seen.listed}
    assert theirs == {name: (each["producer_id"], each["state"]) for name, each in seen.mine.items()}
    assert {name: state for name, (_, state) in theirs.items()} == {
        "aborted": "CompleteAbort",
        "committed": "CompleteCommit",
        "decided": "CompleteCommit",
        "open": "Ongoing",
    }
    assert [list(row) for row in rows_of(seen.my_table)] == [list(row) for row in seen.listed]


def test_an_id_is_described_alike(seen: Seen) -> None:
    (theirs,) = seen.described
    mine = seen.mine["open"]
    fields = {
        "ProducerId": mine["producer_id"],
        "ProducerEpoch": mine["producer_epoch"],
        "TransactionState": mine["state"],
        "TransactionTimeoutMs": mine["timeout_ms"],
        "CurrentTransactionStartTimeMs": mine["start_timestamp_ms"],
        "TopicPartitions": ",".join(f"{each['topic']}-{each['partition']}" for each in mine["partitions"]),
    }
    assert {name: theirs[name] for name in fields} == {name: str(value) for name, value in fields.items()}


def test_the_same_transactions_hang(seen: Seen) -> None:
    mine = [(each["topic"], each["partition"], each["producer_id"], each["producer_epoch"]) for each in seen.my_hanging]
    theirs = [(row["Topic"], int(row["Partition"]), int(row["ProducerId"]), int(row["ProducerEpoch"])) for row in seen.hanging]
    assert theirs == mine == [("out", 1, 17, 3)]
    assert [int(row["StartOffset"]) for row in seen.hanging] == [each["start_offset"] for each in seen.my_hanging]
    assert [int(row["LastTimestamp"]) for row in seen.hanging] == [each["last_timestamp_ms"] for each in seen.my_hanging]
