"""The calls of `KafkaAdminClient` for transactions."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, Final

from pylog.compat.clusters import Cluster
from pylog.compat.kafka import errors
from pylog.compat.kafka.admin_types import AbortTransactionSpec, TransactionDescription, TransactionListing
from pylog.compat.kafka.enums import TransactionState
from pylog.compat.kafka.metadata import NODE
from pylog.compat.kafka.structs import TopicPartition
from pylog.compat.kafka.translation import Translating
from pylog.transactions.described import TransactionDescription as Described

_GRACE_MS: Final = 300_000  # after the largest timeout, as in kafka-python


class TransactionsOfAdmin:
    """The calls of `KafkaAdminClient` for transactions: `Store.transactions` answers them."""

    _cluster: Cluster

    def list_transactions(
        self,
        broker_ids: Any = None,
        producer_id_filters: Iterable[int] | None = None,
        state_filters: Iterable[Any] | None = None,
        duration_filter_ms: float | None = None,
        transactional_id_pattern: str | None = None,
    ) -> list[TransactionListing]:
        """Returns the transactional ids.

        Args:
            broker_ids: ignored; there is one broker.
            producer_id_filters: only these producers.
            state_filters: only these states.
            duration_filter_ms: only those that have been open for longer.
            transactional_id_pattern: only ids that match this regular expression as a whole.
        """
        producers, states = set(producer_id_filters or ()), {str(each) for each in state_filters or ()}
        return [
            TransactionListing(each.transactional_id, each.producer_id, TransactionState(each.state))
            for each in self._known()
            if (not producers or each.producer_id in producers)
            and (not states or each.state in states)
            and (duration_filter_ms is None or duration_filter_ms < 0 or (each.duration_ms or -1) > duration_filter_ms)
            and (not transactional_id_pattern or re.fullmatch(transactional_id_pattern, each.transactional_id))
        ]

    def describe_transactions(self, transactional_ids: Iterable[str]) -> dict[str, TransactionDescription]:
        """Returns transactional ids with their transactions. Raises TransactionalIdNotFoundError for an unknown id."""
        with Translating():
            found = {each: self._cluster.store.transactions.describe(each) for each in transactional_ids}
        return {
            name: TransactionDescription(
                NODE.node_id,
                TransactionState(each.state),
                each.producer_id,
                each.producer_epoch,
                each.timeout_ms,
                -1 if each.start_timestamp_ms is None else each.start_timestamp_ms,
                _partitions(each),
            )
            for name, each in found.items()
        }

    def find_hanging_transactions(
        self, broker_ids: Any = None, max_transaction_timeout_ms: float = 900_000
    ) -> list[dict[str, Any]]:
        """Returns the transactions that have been open for longer than a timeout and five minutes, as kafka-python does."""
        return [
            {
                "transactional_id": each.transactional_id,
                "producer_id": each.producer_id,
                "producer_epoch": each.producer_epoch,
                "state": each.state,
                "age_ms": each.duration_ms,
                "coordinator_id": NODE.node_id,
                "topic_partitions": sorted(_partitions(each)),
            }
            for each in self._known()
            if each.duration_ms is not None and each.duration_ms >= max_transaction_timeout_ms + _GRACE_MS
        ]

    def abort_transaction(self, spec: AbortTransactionSpec) -> None:
        """Aborts an open transaction of a partition: a hanging one there, another one by its id, in all its partitions.

        Raises InvalidProducerEpochError if the producer has no open transaction with this epoch in the partition.
        """
        with Translating():
            admin = self._cluster.store.transactions
            wanted = (spec.producer_id, spec.producer_epoch)
            for each in admin.find_open(*spec.topic_partition):
                if (each.producer_id, each.producer_epoch) == wanted:
                    if each.is_hanging or each.transactional_id is None:
                        admin.end_hanging([each])
                    else:
                        admin.abort(each.transactional_id)
                    return
        message = (
            f"producer {spec.producer_id} has no open transaction with epoch {spec.producer_epoch} in {spec.topic_partition}"
        )
        raise errors.InvalidProducerEpochError(message)

    def _known(self) -> list[Described]:
        with Translating():
            return self._cluster.store.transactions.list()


def _partitions(found: Described) -> set[TopicPartition]:
    return {TopicPartition(*each) for each in found.partitions}
