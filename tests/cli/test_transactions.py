"""`pylog transactions`: Kafka's columns, verdicts for cron, and nothing ended without being asked."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

import pylog
from pylog import OffsetsConfig, TransactionsConfig
from support.cli import call
from support.left_open import BROKERS_PRODUCER, leave_hanging, leave_open

FEW = {"offsets": OffsetsConfig(topic_num_partitions=1), "transactions": TransactionsConfig(topic_num_partitions=1)}


@pytest.fixture
def bank(tmp_path: Path) -> Path:
    """A committed transaction, one that a killed process has left open, and a hanging one of a broker's producer."""
    path = tmp_path / "bank"
    with pylog.open(tmp_path / "live", durability="os", **FEW) as store:  # type: ignore[arg-type]
        store.create_topic("out", partition_count=2)
        with store.transaction("committed") as transaction:
            transaction.append("out", b"kept", partition=1)
        leave_open(store, "billing", partition=1)
        leave_hanging(store)
        shutil.copytree(tmp_path / "live", path)  # what a kill would leave
    return path


def test_ids_are_listed_in_the_columns_of_kafkas_tool(bank: Path) -> None:
    done = call("transactions", "list", bank)
    titles, first, second = done.lines
    assert [title.strip() for title in titles.split("\t")] == ["TransactionalId", "Coordinator", "ProducerId", "TransactionState"]
    assert len({line.rindex("\t") for line in done.lines}) == 1  # a producer id has 15 to 19 digits
    assert [cell.strip() for cell in first.split("\t")][::3] == ["billing", "Ongoing"]
    assert [cell.strip() for cell in second.split("\t")][::3] == ["committed", "CompleteCommit"]
    assert all(len(line.expandtabs()) <= 80 for line in done.lines)
    chosen = call("transactions", "list", bank, "--state", "Ongoing", "--json").json["transactions"]
    assert [(each["transactional_id"], each["owner"]) for each in chosen] == [("billing", "dead")]
    assert call("transactions", "list", bank, "--state", "open").code == 2


def test_an_id_is_described_with_its_partitions_and_its_owner(bank: Path) -> None:
    done = call("transactions", "describe", bank, "billing")
    facts = dict(line.split(maxsplit=1) for line in done.lines)
    assert facts["TransactionState"] == "Ongoing"
    assert facts["TopicPartitions"] == "out-1"
    assert facts["Owner"] == "a process that has ended"
    assert all(len(line) <= 80 for line in done.lines)
    (found,) = call("transactions", "describe", bank, "committed", "--json").json["transactions"]
    assert (found["state"], found["partitions"], found["duration_ms"]) == ("CompleteCommit", [], None)


def test_an_unknown_id_gets_a_sentence_with_similar_ids_or_the_command_that_lists_them(bank: Path) -> None:
    done = call("transactions", "describe", bank, "biling")
    assert (done.code, done.complaints) == (
        1,
        f"pylog: there is no transactional id 'biling' in {bank}; did you mean billing?\n",
    )
    done = call("transactions", "abort", bank, "nothing alike", "--yes")
    assert done.code == 1
    assert f"list them: pylog transactions list {bank}" in done.complaints


def test_an_abort_says_what_it_does_and_needs_a_yes(bank: Path) -> None:
    with pylog.open(bank) as store:
        leave_open(store, "living", partition=1)
        done = call("transactions", "abort", bank, "living")
        assert done.code == 2
        assert "This aborts the transaction of the transactional id 'living', open for" in done.complaints
        assert "of a living process." in done.complaints
        assert store.transactions.describe("living").state == "Ongoing"
        done = call("transactions", "abort", bank, "living", "--yes")
        assert done.text == "The transactional id 'living' is in the state CompleteAbort, with the epoch 1.\n"
        again = call("transactions", "abort", bank, "living", "--yes", "--json")
        assert "This changes nothing: the transactional id 'living' has no open transaction" in again.complaints
        assert again.json["state"] == "CompleteAbort"
        assert call("transactions", "abort", bank, "living", "--yes", "--fence", "--json").json["state"] == "Empty"


@pytest.mark.parametrize("name", ["find-hanging", "hanging"])
def test_hanging_transactions_are_found_for_cron_and_ended_when_asked(bank: Path, name: str) -> None:
    done = call("transactions", name, bank)
    assert done.code == 1
    assert done.lines[0].split() == ["TOPIC", "PARTITION", "START", "OFFSET", "PRODUCER", "ID", "EPOCH", "LAST", "APPEND", "ID"]
    assert done.lines[1].split()[:5] == ["out", "0", "0", str(BROKERS_PRODUCER), "3"]
    assert f"pylog transactions hanging {bank} --end" in done.complaints
    assert all(len(line) <= 80 for line in done.lines)
    (found,) = call("transactions", name, bank, "--json").json["hanging"]
    assert (found["topic"], found["partition"], found["transactional_id"]) == ("out", 0, None)
    assert call("transactions", name, bank, "--max-transaction-timeout", "15").code == 0
    asked = call("transactions", name, bank, "--end")
    assert asked.code == 2
    assert "This aborts 1 hanging transaction: offset 0 of out-0." in asked.complaints
    ended = call("transactions", name, bank, "--end", "--yes")
    assert (ended.code, ended.text) == (0, "out-0: the transaction of producer 17 at offset 0 is aborted.\n")
    done = call("transactions", name, bank)
    assert (done.code, done.complaints) == (0, f"pylog: no hanging transactions in {bank}\n")


def test_a_hanging_transaction_is_aborted_by_its_first_offset_and_no_other_one_is(bank: Path) -> None:
    with pylog.open(bank) as store:
        leave_open(store, "living", partition=1)
        place = ("--topic", "out", "--partition")
        offset = store.transactions.find_open("out", 1)[0].start_offset
        done = call("transactions", "abort", bank, *place, "1", "--start-offset", offset, "--yes")
        assert f"does not hang; end it by its id: pylog transactions abort {bank} living" in done.complaints
        done = call("transactions", "abort", bank, *place, "0", "--start-offset", "5", "--yes")
        assert "no transaction is open at offset 5 of out-0; open ones begin at 0" in done.complaints
        done = call("transactions", "abort", bank, *place, "0", "--start-offset", "0", "--yes", "--json")
        assert [each["producer_id"] for each in done.json["ended"]] == [BROKERS_PRODUCER]
    assert call("transactions", "abort", bank, *place, "0", "--yes").code == 2
    assert call("transactions", "abort", bank, "billing", *place, "0", "--yes").code == 2


def test_settle_names_the_ids_that_it_has_finished(bank: Path) -> None:
    assert call("transactions", "settle", bank).text == "Finished the transactions of billing.\n"
    assert call("transactions", "settle", bank).complaints == f"pylog: no transaction had to be finished in {bank}\n"


def test_empty_results_say_so(tmp_path: Path) -> None:
    with pylog.open(tmp_path) as store:
        store.create_topic("orders")
    assert call("transactions", "list", tmp_path).complaints == f"pylog: no transactional ids in {tmp_path}\n"
    assert call("transactions", "list", tmp_path, "--json").json == {"transactions": []}
    assert call("transactions", "find-hanging", tmp_path).code == 0


def test_dump_decodes_states_with_kafkas_names_and_the_owner_and_kafkas_format_has_neither(bank: Path) -> None:
    file = bank / "__transaction_state-0" / f"{0:020}.log"
    records = [each for each in call("dump", file, "--records").json_lines if each["kind"] == "record"]
    last = {each["key"]["data"]["transactionalId"]: each["value"] for each in records}
    assert last["committed"]["state"] == "CompleteCommit"
    assert "owner" not in last["committed"]
    assert (last["billing"]["state"], last["billing"]["owner"]["level"]) == ("Ongoing", 0)
    assert last["billing"]["data"]["transactionPartitions"] == [{"topic": "out", "partitionIds": [1]}]
    assert '"owner"' not in call("dump", file, "--like-kafka", "--decoder", "transactions").text
