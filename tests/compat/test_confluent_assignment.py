"""The calls of confluent-kafka's consumer that choose partitions and search offsets: as the real client's on its mock broker."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

import confluent_kafka
import pytest

import pylog.compat.confluent as confluent
from pylog.compat.clusters import CLUSTERS, MEMORY, ClusterSettings

_NUMBERS = itertools.count()
Outcome = Callable[[ModuleType, dict[str, Any]], list[Any]]
KAFKA = confluent_kafka.KafkaException, confluent.KafkaException
TOPICS = "orders", "lazy"
PARTITIONS = 4  # of a topic that the mock broker creates


@pytest.fixture
def layer() -> Iterator[dict[str, str]]:
    name, before = f"confluent-assignment-{next(_NUMBERS)}", CLUSTERS.settings
    CLUSTERS.settings = ClusterSettings(num_partitions=PARTITIONS)
    yield {"bootstrap.servers": f"pylog+memory://{name}"}
    CLUSTERS.forget(MEMORY + name)
    CLUSTERS.settings = before


@pytest.fixture
def mock() -> Iterator[dict[str, str]]:
    """A real producer with a mock broker inside, and the options that lead to it."""
    owner = confluent_kafka.Producer({"test.mock.num.brokers": 1, "bootstrap.servers": "mock", "log_level": 0})
    brokers = owner.list_topics(timeout=10).brokers.values()
    yield {"bootstrap.servers": ",".join(f"{each.host}:{each.port}" for each in brokers)}
    owner.close()


def shown(found: Any) -> Any:
    """An outcome without what differs by intention: texts of errors, and the kind of offset of a partition that was not read."""
    if isinstance(found, list):
        return [shown(each) for each in found]
    if type(found).__name__ == "TopicPartition":
        return found.topic, found.partition, max(found.offset, -1), found.error and found.error.name()
    if type(found).__name__ == "TopicMetadata":
        return found.topic, [vars(each)["id"] for each in found.partitions.values()], found.error and found.error.name()
    return found


def asked(call: Callable[[], Any]) -> Any:
    try:
        return shown(call())
    except (TypeError, RuntimeError, *KAFKA) as error:
        found = error.args[0] if error.args else None
        return type(error).__name__, found.name() if hasattr(found, "name") else None


def searches(module: ModuleType, server: dict[str, Any]) -> list[Any]:
    place, (topic, lazy) = module.TopicPartition, TOPICS
    producer = module.Producer({**server, "log_level": 0})
    found = [asked(lambda: producer.list_topics(topic, timeout=10).topics[topic])]
    for moment in (1000, 2000, 3000):
        producer.produce(topic, b"tea", partition=1, timestamp=moment)
    found.append(producer.flush(10))
    consumer = module.Consumer({**server, "group.id": "g", "log_level": 0})
    found += [
        asked(lambda: consumer.list_topics(lazy, timeout=10).topics[lazy]),
        asked(lambda: topic in consumer.list_topics(timeout=10).topics),
        asked(lambda: consumer.list_topics(5)),
        asked(lambda: consumer.list_topics(topic, "x")),
        asked(lambda: type(consumer.cluster_id())),
        asked(lambda: consumer.set_sasl_credentials("user", "word")),
        asked(lambda: consumer.set_sasl_credentials("user", None)),
        asked(lambda: consumer.offsets_for_times([place(topic, 0, 5), place(lazy, 0, 5), place(topic, 99, 5)], timeout=10)),
        asked(lambda: consumer.offsets_for_times([])),
        asked(lambda: consumer.offsets_for_times("orders")),
        asked(lambda: consumer.offsets_for_times([5])),
        asked(consumer.offsets_for_times),
    ]
    consumer.close()
    found += [asked(lambda: consumer.list_topics(timeout=1)), asked(lambda: consumer.offsets_for_times([]))]
    producer.close()
    return found


def assignments(module: ModuleType, server: dict[str, Any]) -> list[Any]:
    place, (topic, lazy) = module.TopicPartition, TOPICS
    producer = module.Producer({**server, "log_level": 0})
    for partition in range(PARTITIONS):
        producer.produce(topic, b"%d" % partition, partition=partition)
    found: list[Any] = [producer.flush(10), producer.close()]
    options = {"group.id": "g", "auto.offset.reset": "earliest", "log_level": 0, "enable.auto.commit": False}
    consumer = module.Consumer({**server, **options})

    def read() -> Any:
        message = consumer.poll(10)
        return None if message is None else message.error() and message.error().name(), message.topic() == topic, message.value()

    found += [
        asked(lambda: consumer.incremental_assign([place(topic, 0)])),
        asked(lambda: [(each.topic, each.partition) for each in consumer.assignment()]),
        asked(read),
        asked(lambda: consumer.incremental_assign([place(topic, 0)])),
        asked(lambda: consumer.incremental_assign([place(topic, 1), place(topic, 1)])),
        asked(lambda: consumer.incremental_assign([place(topic, 1, 0)])),
        asked(lambda: [(each.topic, each.partition) for each in consumer.assignment()]),
        asked(read),
        asked(lambda: consumer.incremental_unassign([place(topic, 3)])),
        asked(lambda: consumer.incremental_unassign([place(topic, 1)])),
        asked(lambda: [(each.topic, each.partition) for each in consumer.assignment()]),
        asked(lambda: consumer.incremental_unassign([])),
        asked(lambda: consumer.incremental_assign([])),
        asked(lambda: consumer.incremental_assign(topic)),
        asked(lambda: consumer.incremental_unassign([5])),
        asked(lambda: consumer.incremental_assign([place(lazy, 0)])),
        asked(lambda: [(each.topic, each.partition) for each in consumer.assignment()]),
        asked(lambda: read()[:2]),
        asked(lambda: consumer.incremental_unassign([place(lazy, 0)])),
        asked(lambda: [(each.topic, each.partition) for each in consumer.assignment()]),
    ]
    consumer.close()
    return [*found, asked(lambda: consumer.incremental_assign([]))]


def subscriptions(module: ModuleType, server: dict[str, Any]) -> list[Any]:
    place, (topic, lazy) = module.TopicPartition, TOPICS
    producer = module.Producer({**server, "log_level": 0})
    for each in range(3):
        producer.produce(topic, b"%d" % each, partition=0)
    found: list[Any] = [producer.flush(10), producer.close()]
    options = {"group.id": "members", "auto.offset.reset": "earliest", "log_level": 0, "enable.auto.commit": False}
    consumer = module.Consumer({**server, **options})

    def begin(member: Any, partitions: list[Any]) -> None:
        found.append(len(partitions))
        member.assign([place(topic, each.partition, 2 if each.partition == 0 else each.offset) for each in partitions])

    consumer.subscribe([topic, lazy], on_assign=begin, on_revoke=lambda member, _: member.unassign())
    read = [asked(lambda: consumer.poll(20)) for _ in range(2)]
    errors = [each.error() and each.error().name() for each in read]
    found += [errors, read[0].topic() == lazy, read[1].value(), read[1].offset()]
    consumer.close()
    return found


def without_a_commit(module: ModuleType, server: dict[str, Any]) -> list[Any]:
    topic, _ = TOPICS
    producer = module.Producer({**server, "log_level": 0})
    for partition in range(PARTITIONS):
        producer.produce(topic, b"%d" % partition, partition=partition)
    found: list[Any] = [producer.flush(10), producer.close()]
    consumer = module.Consumer({**server, "group.id": "resets", "auto.offset.reset": "error", "log_level": 0})
    consumer.assign([module.TopicPartition(topic, 0), module.TopicPartition(topic, 1), module.TopicPartition(topic, 2, 0)])
    read = [consumer.poll(10) for _ in range(3)]
    found.append(sorted((each.partition(), each.offset(), each.error() and each.error().name()) for each in read))
    found.append(consumer.poll(0.5))
    consumer.assign([module.TopicPartition(topic, 1, 0)])
    after = consumer.poll(10)
    found.append((after.partition(), after.offset(), after.error(), after.value()))
    consumer.close()
    return found


@pytest.mark.slow
@pytest.mark.parametrize("outcome", [searches, assignments, subscriptions, without_a_commit])
def test_calls_give_what_the_real_client_gives(outcome: Outcome, layer: dict[str, str], mock: dict[str, str]) -> None:
    expected = outcome(confluent_kafka, mock)
    assert outcome(confluent, layer) == expected


def test_offsets_are_found_by_time_and_at_the_ends(layer: dict[str, str]) -> None:
    producer = confluent.Producer(layer)
    for moment in (1000, 2000, 3000):
        producer.produce("orders", b"tea", partition=1, timestamp=moment)
    producer.close()
    times = {-2: 0, -1: 3, 0: 0, 1000: 0, 1001: 1, 3000: 2, 3001: -1}
    with consumer_of(layer) as consumer:
        found = consumer.offsets_for_times([confluent.TopicPartition("orders", 1, each) for each in times])
    assert [each.offset for each in found] == list(times.values())


def consumer_of(layer: dict[str, str], **options: Any) -> confluent.Consumer:
    return confluent.Consumer({"group.id": "g", "auto.offset.reset": "earliest", **layer, **options})


def test_a_missing_topic_is_created_by_a_consumer_only_if_that_is_allowed(layer: dict[str, str]) -> None:
    with consumer_of(layer) as consumer:
        consumer.assign([confluent.TopicPartition("orders", 0)])
        assert "orders" not in consumer.list_topics().topics
    with consumer_of(layer, **{"allow.auto.create.topics": True}) as consumer:
        consumer.assign([confluent.TopicPartition("orders", 0)])
        assert len(consumer.list_topics().topics["orders"].partitions) == PARTITIONS


def test_a_topic_that_is_created_after_the_subscription_is_read(layer: dict[str, str]) -> None:
    consumer, other = consumer_of(layer), consumer_of(layer, **{"group.id": "h"})
    consumer.subscribe(["orders"])
    other.assign([confluent.TopicPartition("orders", 0, confluent.OFFSET_BEGINNING)])
    for each in (consumer, other):
        missing = each.poll(0)
        assert missing is not None
        assert missing.error() == confluent.KafkaError.UNKNOWN_TOPIC_OR_PART
        assert each.poll(0) is None
    producer = confluent.Producer(layer)
    producer.produce("orders", b"tea", partition=0)
    producer.close()
    assert [each.poll(10).value() for each in (consumer, other)] == [b"tea", b"tea"]  # type: ignore[union-attr]
    consumer.close()
    other.close()


def test_a_seek_continues_a_partition_without_a_commit(layer: dict[str, str]) -> None:
    producer = confluent.Producer(layer)
    producer.produce("orders", b"tea", partition=1)
    producer.close()
    consumer = consumer_of(layer, **{"auto.offset.reset": "error"})
    consumer.assign([confluent.TopicPartition("orders", 1)])
    first = consumer.poll(10)
    assert first is not None
    assert first.error() == confluent.KafkaError._AUTO_OFFSET_RESET
    consumer.seek(confluent.TopicPartition("orders", 1, confluent.OFFSET_BEGINNING))
    second = consumer.poll(10)
    assert second is not None
    assert second.value() == b"tea"
    consumer.close()


def test_on_assign_chooses_where_to_begin_and_what_to_leave_out(layer: dict[str, str]) -> None:
    producer = confluent.Producer(layer)
    for partition in (0, 0, 1, 1):
        producer.produce("orders", b"%d" % partition, partition=partition)
    producer.close()
    consumer = consumer_of(layer)
    consumer.subscribe(["orders"], on_assign=lambda member, _: member.assign([confluent.TopicPartition("orders", 1, 1)]))
    message = consumer.poll(10)
    assert message is not None
    assert (message.partition(), message.offset()) == (1, 1)
    assert consumer.poll(0.2) is None
    with pytest.raises(confluent.KafkaException, match="orders-9 is not assigned"):
        consumer.incremental_assign([confluent.TopicPartition("orders", 9)])
    consumer.close()


def test_a_batch_of_messages_is_accepted_and_a_wrong_one_is_refused_before(layer: dict[str, str]) -> None:
    told: list[Any] = []
    producer = confluent.Producer(layer)
    batch: list[Any] = [{"value": "a", "key": b"k"}, {"value": b"b", "partition": 2}, {"value": b"c", "partition": 77}]
    assert producer.produce_batch("orders", batch, on_delivery=lambda *report: told.append(report)) == 2
    assert batch[2]["_error"].code() == confluent.KafkaError.UNKNOWN_TOPIC_OR_PART
    for wrong in ((1,), [5], [{"value": 5}]):
        with pytest.raises(TypeError):
            producer.produce_batch("orders", wrong)  # type: ignore[arg-type]
    producer.purge()
    producer.flush()
    assert [error for error, _ in told] == [None, None]
    assert producer.close()
    with pytest.raises(RuntimeError, match="closed"):
        producer.list_topics()


@pytest.mark.parametrize("package", [confluent_kafka, confluent])
def test_on_revoke_may_call_a_consumer_that_closes(package: Any, layer: dict[str, str], mock: dict[str, str]) -> None:
    seen: list[Any] = []

    def on_revoke(consumer: Any, partitions: list[Any]) -> None:
        seen.append(len(consumer.assignment()))
        consumer.commit(offsets=[package.TopicPartition("orders", 0, 1)], asynchronous=False)
        consumer.incremental_unassign(partitions)
        if package is confluent:
            consumer.close()  # does nothing: the call that is under way closes it. The real client waits for itself

    options = layer if package is confluent else mock
    producer = package.Producer(options)
    producer.produce("orders", b"tea", partition=0)
    producer.flush()
    consumer = package.Consumer({**options, "group.id": "close", "auto.offset.reset": "earliest"})
    consumer.subscribe(["orders"], on_revoke=on_revoke)
    while consumer.poll(0.5) is None:
        pass
    consumer.close()
    producer.close()
    assert seen == [PARTITIONS]


@pytest.mark.parametrize("package", [confluent_kafka, confluent])
def test_a_closed_consumer_refuses_each_call(package: Any, layer: dict[str, str], mock: dict[str, str]) -> None:
    consumer = package.Consumer({**(layer if package is confluent else mock), "group.id": "closed"})
    consumer.close()
    one = [package.TopicPartition("orders", 0, 1)]
    calls = [
        lambda: consumer.position(one),
        consumer.unassign,
        lambda: consumer.store_offsets(offsets=one),
        lambda: consumer.poll(0),
        consumer.assignment,
        lambda: consumer.committed(one),
        lambda: consumer.assign(one),
        lambda: consumer.incremental_unassign(one),
        consumer.memberid,
    ]
    for call in calls:
        with pytest.raises(RuntimeError, match="closed"):
            call()
    consumer.close()


@pytest.mark.parametrize("package", [confluent_kafka, confluent])
def test_a_closed_producer_refuses_each_call(package: Any, layer: dict[str, str], mock: dict[str, str]) -> None:
    producer = package.Producer(layer if package is confluent else mock)
    producer.close()
    for call in (lambda: producer.produce("orders", b"tea"), lambda: producer.poll(0), producer.flush, producer.purge):
        with pytest.raises(RuntimeError, match="closed"):
            call()
    assert producer.close()


def test_a_message_can_be_made_for_a_test_and_changed() -> None:
    message = confluent.Message(topic="orders", value=b"tea", headers=[("h", b"1")])
    message.set_key("k")
    message.set_value({"tea": 1})
    message.set_headers(None)
    message.set_topic("audit")
    message.set_error(confluent.KafkaError(3))
    assert confluent.KafkaError(3).str() == "Broker: Unknown topic or part"
    assert (confluent.KafkaError(-185).str(), confluent.KafkaError(-185, "late").str()) == ("Local: Timed out", "late")
    found = message.key(), message.value(), message.headers(), message.topic(), message.error(), message.offset()
    assert found == ("k", {"tea": 1}, None, "audit", 3, None)
    assert (message.partition(), message.timestamp(), message.latency(), message.leader_epoch()) == (None, (0, 0), None, None)
