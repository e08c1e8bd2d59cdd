"""Directories of brokers 2.8, 3.9 and 4.3 with an open transaction: pylog lists what the brokers did, and goes on with the id."""

from __future__ import annotations

from pathlib import Path

import pytest

import pylog
from support.golden import data as golden
from support.transactional import coordinator_of

VERSIONS = ("2.8.2", "3.9.1", "4.3.0")
OPEN = "tx-C"


@pytest.fixture
def root(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    return golden.case(request.param, "txn").copy(tmp_path / "data")


@pytest.mark.parametrize("version", VERSIONS)
def test_the_ids_and_states_are_those_of_the_broker(version: str) -> None:
    case = golden.case(version, "txn")
    told = case.json("transactions.json")
    with pylog.open(case.log_directory, "r") as store:
        found = {each.transactional_id: each for each in store.transactions.list()}
        assert found.keys() >= told.keys()
        assert found[OPEN].state == "Ongoing"
        for name, known in told.items():
            if "error" not in known:  # 2.8 cannot describe transactions
                assert (found[name].state, found[name].producer_id) == (known["state"], known["producerId"])


@pytest.mark.parametrize("root", VERSIONS, indirect=True)
def test_an_open_transaction_stays_open_until_its_id_comes_back_and_the_id_then_goes_on(root: Path) -> None:
    with pylog.open(root) as store:
        (before,) = coordinator_of(store).undecided()
        assert before.transactional_id == OPEN
        topic, partition = next(each for each in before.partitions if not each.topic.startswith("__"))
        log = store.log(topic, partition)
        assert log.stable_offset < log.end_offset
        with store.transaction(OPEN) as transaction:
            transaction.append(topic, b"of pylog", partition=partition)
        assert coordinator_of(store).undecided() == []
        assert log.stable_offset == log.end_offset
        assert [record.value for record in log.records(isolation_level="read_committed")][-1] == b"of pylog"
        assert store.check().ok
    with pylog.open(root, "r") as store:
        states = {each.transactional_id: each.state for each in store.transactions.list()}
        assert states[OPEN] == "CompleteCommit"
