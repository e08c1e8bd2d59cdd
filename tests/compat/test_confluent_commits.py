"""The commits of confluent-kafka's consumer: stored offsets, automatic commits, and what `on_commit` is told."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import pylog
import pylog.compat.confluent as confluent
from pylog.compat.clusters import CLUSTERS, MEMORY
from support.others import refusals

PROGRAM = str(Path(refusals.__file__).with_name("confluent_commits.py"))
Told = list[tuple[Any, list[confluent.TopicPartition]]]


@pytest.fixture
def server() -> Iterator[dict[str, str]]:
    yield {"bootstrap.servers": "pylog+memory://confluent-commits"}
    CLUSTERS.forget(MEMORY + "confluent-commits")


def lines_with(module: str) -> list[str]:
    program = [sys.executable, "-W", "ignore", PROGRAM, module]
    return subprocess.run(program, capture_output=True, check=True, text=True, timeout=300).stdout.splitlines()


@pytest.mark.slow
def test_commits_return_raise_and_report_what_they_do_with_the_real_client() -> None:
    expected = lines_with("confluent_kafka")
    assert len(expected) > 40
    assert lines_with("pylog.compat.confluent") == expected


def filled(server: dict[str, str], **options: Any) -> tuple[confluent.Consumer, Told]:
    """A member of a group that has read two records, and what its `on_commit` is told."""
    told: Told = []
    producer = confluent.Producer(server)
    for value in (b"tea", b"milk"):
        producer.produce("orders", value)
    producer.close()
    given = {"group.id": "g", "auto.offset.reset": "earliest", "on_commit": lambda *report: told.append(report)}
    return confluent.Consumer({**server, **given, **options}), told


def position(server: dict[str, str], group: str) -> int | None:
    return CLUSTERS.of(server["bootstrap.servers"]).store.offsets.position(group, ("orders", 0))


def test_a_revoked_partition_is_committed_after_on_revoke_and_the_commit_is_reported(server: dict[str, str]) -> None:
    consumer, told = filled(server)
    before: list[int | None] = []
    consumer.subscribe(["orders"], on_revoke=lambda *_: before.append(position(server, "g")))
    assert len([consumer.poll(10), consumer.poll(10)]) == 2
    consumer.close()
    assert before == [None]
    assert position(server, "g") == 2
    assert [(error, partitions[0].offset) for error, partitions in told] == [(None, 2)]


def test_a_commit_in_on_revoke_leaves_nothing_for_the_automatic_one(server: dict[str, str]) -> None:
    consumer, told = filled(server)
    consumer.subscribe(["orders"], on_revoke=lambda member, _: member.commit(asynchronous=False))
    consumer.poll(10)
    consumer.close()
    assert position(server, "g") == 1
    assert told == []


def test_an_offset_that_was_not_stored_is_not_committed_at_the_end(server: dict[str, str]) -> None:
    consumer, _ = filled(server, **{"enable.auto.offset.store": False})
    consumer.subscribe(["orders"])
    first = consumer.poll(10)
    consumer.poll(10)
    consumer.store_offsets(first)
    consumer.close()
    assert position(server, "g") == 1


def test_a_failed_automatic_commit_is_reported_with_its_error(server: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    consumer, told = filled(server)
    consumer.subscribe(["orders"])
    consumer.poll(10)

    def fail(*_: object, **__: object) -> None:
        raise pylog.StorageFailedError("the disk is gone")

    with monkeypatch.context() as patch:
        patch.setattr(pylog.Consumer, "commit", fail)
        consumer.close()
    (error, (partition,)) = told[0]
    assert (error.name(), partition.offset, partition.error.name()) == ("KAFKA_STORAGE_ERROR", 1, "KAFKA_STORAGE_ERROR")
    assert position(server, "g") is None


def test_topics_can_be_subscribed_to_by_a_regular_expression(server: dict[str, str]) -> None:
    consumer, _ = filled(server, **{"allow.auto.create.topics": True})
    consumer.subscribe(["^ord.*", "audit"])
    message = consumer.poll(10)
    assert message is not None
    assert message.value() == b"tea"
    consumer.close()


@pytest.mark.parametrize(
    ("wrong", "kind"),
    [
        (lambda consumer: consumer.subscribe("orders"), TypeError),
        (lambda consumer: consumer.subscribe([5]), TypeError),
        (lambda consumer: consumer.subscribe([]), confluent.KafkaException),
        (lambda consumer: consumer.subscribe(["orders"], on_assign=5), TypeError),
        (lambda consumer: consumer.consume(-1, 0), ValueError),
    ],
    ids=["text", "a number in the list", "empty", "a callback", "a negative count"],
)
def test_a_wrong_argument_is_refused_as_by_the_real_client(server: dict[str, str], wrong: Any, kind: type[Exception]) -> None:
    consumer, _ = filled(server)
    with pytest.raises(kind):
        wrong(consumer)
    consumer.close()


def test_deliveries_are_reported_only_if_they_have_failed_with_that_option(server: dict[str, str]) -> None:
    told: list[object] = []
    producer = confluent.Producer({**server, "delivery.report.only.error": True}, on_delivery=lambda *report: told.append(report))
    producer.produce("orders", b"tea")
    producer.flush()
    producer.close()
    assert told == []
    with pytest.raises(RuntimeError, match="closed"):
        producer.produce("orders", b"tea")
