"""Unused transactional ids expire with a tick, and nothing that is open, decided, or a broker's goes with them."""

from __future__ import annotations

from pathlib import Path

import pytest

import pylog
from pylog import Store, TransactionsConfig
from pylog.clock import ManualClock
from pylog.transactions.image import TransactionsImage
from pylog.transactions.metadata import TransactionMetadata, TransactionState
from pylog.transactions.records import format_key, format_value

NOW = 1_700_000_000_000
DAY = 86_400_000
CONFIG = TransactionsConfig(topic_num_partitions=2)


def opened(path: Path, clock: ManualClock) -> Store:
    return pylog.open(path, clock=clock, transactions=CONFIG)


def write(store: Store, name: str) -> None:
    with store.transaction(name) as transaction:
        transaction.append("orders", name.encode())


def ids(store: Store) -> list[str]:
    return [each.transactional_id for each in store.transactions.list()]


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(NOW)


def test_a_tick_deletes_ids_that_were_unused_for_a_week_and_keeps_the_others(tmp_path: Path, clock: ManualClock) -> None:
    with opened(tmp_path / "s", clock) as store:
        store.create_topic("orders", retention_ms=-1)
        for number in range(5):
            write(store, f"old-{number}")
        store.tick()
        clock.advance(6 * DAY)
        write(store, "young")
        clock.advance(DAY)
        store.tick()
        assert ids(store) == ["young"]
    with opened(tmp_path / "s", clock) as store:
        assert ids(store) == ["young"]
        assert len(list(store.log("orders").records(isolation_level="read_committed"))) == 6


def test_an_expired_id_is_used_again_in_the_store_that_had_it_and_in_another(tmp_path: Path, clock: ManualClock) -> None:
    with opened(tmp_path / "s", clock) as store, opened(tmp_path / "s", clock) as other:
        store.create_topic("orders", retention_ms=-1)
        write(store, "billing")
        for days in (0, 8):
            store.tick(NOW + days * DAY)
        assert ids(store) == []
        write(store, "billing")
        write(other, "billing")
        with pytest.raises(pylog.ProducerFencedError):
            write(store, "billing")
        assert len(list(store.log("orders").records(isolation_level="read_committed"))) == 3


def test_an_open_transaction_keeps_its_id(tmp_path: Path, clock: ManualClock) -> None:
    with opened(tmp_path / "s", clock) as store:
        store.create_topic("orders", retention_ms=-1)
        transaction = store.transaction("billing", timeout_ms=900_000)
        transaction.append("orders", b"x")
        transaction.flush()
        for days in (0, 8):
            store.tick(NOW + days * DAY)
        assert ids(store) == ["billing"]
        transaction.abort()


def test_a_clock_that_is_ahead_once_or_set_back_deletes_no_young_id(tmp_path: Path, clock: ManualClock) -> None:
    with opened(tmp_path / "s", clock) as store:
        store.create_topic("orders", retention_ms=-1)
        write(store, "billing")
        store.tick(NOW + 100 * DAY)  # the first check only sets the time of the next one
        store.tick(NOW)
        store.tick(NOW + 1)
        assert ids(store) == ["billing"]


def test_a_brokers_directory_keeps_its_ids(tmp_path: Path, clock: ManualClock) -> None:
    with opened(tmp_path / "s", clock) as store:
        store.create_topic("orders", retention_ms=-1)
        write(store, "billing")
        (tmp_path / "s" / "meta.properties").write_text("version=1\n")
        for days in (0, 8):
            store.tick(NOW + days * DAY)
        assert ids(store) == ["billing"]
        (tmp_path / "s" / "meta.properties").unlink()


def test_the_time_of_a_value_that_is_not_parsed_is_that_of_the_parsed_one() -> None:
    image = TransactionsImage()
    state = TransactionMetadata("a", 1 << 50, 3, 60_000, TransactionState.EMPTY, (), NOW)
    image.take(0, format_key("a"), format_value(state))
    assert image.expired(NOW + 7, 7) == ["a"]
    assert image.expired(NOW + 6, 7) == []
    assert image.state_of("a") == state
    assert image.expired(NOW + 7, 7) == ["a"]
    assert image.expired(NOW + 6, 7) == []
