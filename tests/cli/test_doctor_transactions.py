"""`pylog doctor` names what holds the last stable offset of a partition, and `pylog verify` what the states of ids contradict."""

from __future__ import annotations

from pathlib import Path

import pylog
from pylog import OffsetsConfig, TopicPartition, TransactionsConfig
from pylog.config import Durability
from pylog.transactions.metadata import ProducerIdAndEpoch, TransactionState
from pylog.transactions.records import format_key
from support.cli import call
from support.left_open import leave_a_brokers, leave_decided, leave_hanging, leave_open
from support.transactional import coordinator_of

FEW = {"offsets": OffsetsConfig(topic_num_partitions=1), "transactions": TransactionsConfig(topic_num_partitions=1)}


def shop(path: Path) -> pylog.Store:
    store = pylog.open(path, durability="os", **FEW)  # type: ignore[arg-type]
    store.create_topic("out", partition_count=3)
    return store


def answers(path: Path) -> list[tuple[str, str, str]]:
    found = call("doctor", path, "--json").json["answers"]
    return [(each["verdict"], each["found"], each["advice"]) for each in found if each["what"] == "transaction"]


def test_doctor_names_what_holds_a_stable_offset_for_how_long_and_the_command_that_ends_it(tmp_path: Path) -> None:
    with shop(tmp_path) as store:
        living = leave_open(store, "living", partition=1)
        leave_hanging(store)
        hanging, open_one = answers(tmp_path)
        assert hanging[0] == "problem"
        assert hanging[1].startswith(
            "out-0: readers with read_committed stop at offset 0: no transactional id, producer 17, epoch 3"
        )
        assert hanging[2] == f"pylog transactions abort {tmp_path} --topic out --partition 0 --start-offset 0"
        assert open_one[0] == "note"
        assert "out-1: readers with read_committed stop at offset 0: transactional id 'living' (Ongoing)" in open_one[1]
        assert open_one[1].endswith("; its process lives")
        assert open_one[2] == f"if its program does not end it: pylog transactions abort {tmp_path} living"
        assert call("doctor", tmp_path).code == 1
        living.abort()
        store.transactions.end_hanging()
        assert answers(tmp_path) == []
        leave_decided(store, "dead", partition=2)
    ((verdict, found, advice),) = answers(tmp_path)
    assert (verdict, advice) == ("note", f"pylog transactions settle {tmp_path}")
    assert "'dead' (PrepareCommit)" in found
    assert found.endswith("its process has ended")


def findings(path: Path) -> list[tuple[str, str]]:
    found = call("verify", path, "--json").json
    return [(each["kind"], each["message"]) for each in found["affected"]]


def test_verify_lists_hanging_and_undecided_transactions_and_calls_them_no_damage(tmp_path: Path) -> None:
    with shop(tmp_path) as store:
        living = leave_open(store, "living", partition=1)
        assert store.verify().findings == ()
        assert findings(tmp_path) == []
        living.abort()
        leave_hanging(store)
        leave_decided(store, "dead", partition=2)
        assert [each.kind for each in store.verify().findings] == ["transaction"]  # the owner of the other one lives
        assert store.verify().ok
        named = TopicPartition("gone", 7)
        leave_a_brokers(store, "jvm", ProducerIdAndEpoch(18, 0), TransactionState.ONGOING, named)
    done = call("verify", tmp_path)
    assert done.code == 0
    assert "'jvm' is in the state Ongoing, and names partitions that do not exist: gone-7" in done.text
    assert "'dead' is in the state PrepareCommit, and partitions have no marker of it: out-2" in done.text
    assert "a transaction of producer 17, epoch 3, hangs at offset 0: no transactional id has it open there" in done.text


def test_verify_fails_for_a_state_that_cannot_be_decoded(tmp_path: Path) -> None:
    with shop(tmp_path) as store:
        leave_open(store, "billing").commit()
        topic = coordinator_of(store).topic
        topic.on_partition("billing", lambda part: part.append([(format_key("new"), b"\0\x63")], None, Durability.OS))
    ((kind, message),) = findings(tmp_path)
    assert kind == "undecodable"
    assert "'new' no state that can be read" in message
    assert call("verify", tmp_path).code == 1
    with pylog.open(tmp_path, "r") as store:
        assert not store.verify().ok
