"""kafka-python's administration of transactions on the layer."""

from __future__ import annotations

import pytest

import pylog.compat.kafka as kafka
from compat.conftest import Servers
from pylog.compat.clusters import CLUSTERS
from pylog.compat.kafka import errors
from pylog.compat.kafka.admin import AbortTransactionSpec, TransactionState
from support.left_open import leave_hanging, leave_open

PLACE = kafka.TopicPartition("orders", 0)


def test_transactions_are_listed_described_and_aborted_as_by_a_broker(memory: Servers) -> None:
    store = CLUSTERS.of(memory["bootstrap_servers"]).store
    store.create_topic("orders")
    leave_open(store, "done", topic="orders").commit()
    running = leave_open(store, "billing", topic="orders")
    with kafka.KafkaAdminClient(**memory) as admin:
        assert [(each.transactional_id, each.state) for each in admin.list_transactions()] == [
            ("billing", TransactionState.ONGOING),
            ("done", TransactionState.COMPLETE_COMMIT),
        ]
        (chosen,) = admin.list_transactions(state_filters=[TransactionState.ONGOING], transactional_id_pattern="bill.*")
        assert admin.list_transactions(producer_id_filters=[chosen.producer_id]) == [chosen]
        assert admin.list_transactions(duration_filter_ms=3_600_000) == []
        found = admin.describe_transactions(["billing"])["billing"]
        assert (found.state, found.topic_partitions, found.transaction_timeout_ms) == ("Ongoing", {PLACE}, 60_000)
        with pytest.raises(errors.TransactionalIdNotFoundError):
            admin.describe_transactions(["unknown"])
        assert admin.find_hanging_transactions() == []
        assert [each["transactional_id"] for each in admin.find_hanging_transactions(None, -300_000)] == ["billing"]
        spec = AbortTransactionSpec(PLACE, found.producer_id, found.producer_epoch)
        with pytest.raises(errors.InvalidProducerEpochError):
            admin.abort_transaction(spec._replace(producer_epoch=9))
        admin.abort_transaction(spec)
        assert admin.describe_transactions(["billing"])["billing"].state == TransactionState.COMPLETE_ABORT
        leave_hanging(store, topic="orders")
        admin.abort_transaction(AbortTransactionSpec(PLACE, 17, 3))
        assert store.transactions.find_open() == []
    running.abort()
