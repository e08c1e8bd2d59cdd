"""confluent-kafka's administrator on a store: its futures, results and codes, and what it refuses as the real one does."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from concurrent.futures import Future
from typing import Any

import confluent_kafka
import confluent_kafka.admin
import pytest

import pylog
import pylog.compat.confluent as confluent
from pylog.compat.clusters import CLUSTERS, MEMORY
from pylog.compat.confluent import ConsumerGroupTopicPartitions, KafkaException, TopicCollection, TopicPartition, admin
from pylog.compat.confluent.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    OffsetSpec,
)

_NUMBERS = itertools.count()


@pytest.fixture
def server() -> Iterator[dict[str, str]]:
    name = f"confluent-admin-{next(_NUMBERS)}"
    yield {"bootstrap.servers": f"pylog+memory://{name}"}
    CLUSTERS.forget(MEMORY + name)


@pytest.fixture
def client(server: dict[str, str]) -> AdminClient:
    return AdminClient(server)


def store_of(server: dict[str, str]) -> pylog.Store:
    return CLUSTERS.of(server["bootstrap.servers"]).store


def code(future: Future[Any]) -> str:
    with pytest.raises(KafkaException) as caught:
        future.result()
    name: str = caught.value.args[0].name()
    return name


def filled(server: dict[str, str], count: int = 4) -> None:
    producer = confluent.Producer(server)
    for number in range(count):
        producer.produce("orders", b"tea", partition=0, timestamp=1000 + number)
    producer.close()


# ---- topics ------------------------------------------------------------------------------------------------------------------


def test_topics_are_created_grown_described_and_deleted(client: AdminClient, server: dict[str, str]) -> None:
    made = client.create_topics([NewTopic("orders", 2, 3, config={"retention.ms": "60000"}), NewTopic("audit")])
    assert {name: future.result() for name, future in made.items()} == {"orders": None, "audit": None}
    assert store_of(server).topic("orders").config.retention_ms == 60_000
    assert client.create_partitions([NewPartitions("orders", 5)])["orders"].result() is None
    described = client.describe_topics(TopicCollection(["orders", "none"]), include_authorized_operations=True)
    found = described["orders"].result()
    assert (found.name, len(found.partitions), found.is_internal, str(found.topic_id)) == (
        "orders",
        5,
        False,
        store_of(server).topic("orders").id,
    )
    assert admin.AclOperation.READ in (found.authorized_operations or [])
    assert found.partitions[4].leader.id_string == "0"
    assert code(described["none"]) == "UNKNOWN_TOPIC_OR_PART"
    deleted = client.delete_topics(["orders", "none"], operation_timeout=5)
    assert deleted["orders"].result() is None
    assert code(deleted["none"]) == "UNKNOWN_TOPIC_OR_PART"
    assert set(client.list_topics().topics) == {"audit"}


def test_the_futures_have_the_codes_that_a_broker_answers(client: AdminClient) -> None:
    client.create_topics([NewTopic("orders", 2)])
    wrong = {
        "orders": (NewTopic("orders"), "TOPIC_ALREADY_EXISTS"),
        "bad/name": (NewTopic("bad/name"), "TOPIC_EXCEPTION"),
        "none": (NewTopic("none", 0), "INVALID_PARTITIONS"),
        "odd": (NewTopic("odd", config={"x": "5"}), "INVALID_CONFIG"),
    }
    made = client.create_topics([topic for topic, _ in wrong.values()])
    assert {name: code(future) for name, future in made.items()} == {name: expected for name, (_, expected) in wrong.items()}
    assert code(client.create_topics([NewTopic("twin"), NewTopic("twin")])["twin"]) == "INVALID_REQUEST"
    assert code(client.create_partitions([NewPartitions("orders", 1)])["orders"]) == "INVALID_PARTITIONS"
    assert code(client.create_partitions([NewPartitions("none", 5)])["none"]) == "UNKNOWN_TOPIC_OR_PART"
    client.create_topics([NewTopic("later")], validate_only=True)["later"].result()
    client.create_partitions([NewPartitions("orders", 9)], validate_only=True)["orders"].result()
    assert {name: len(topic.partitions) for name, topic in client.list_topics().topics.items()} == {"orders": 2}


# ---- options -----------------------------------------------------------------------------------------------------------------


def values(client: AdminClient, topic: str) -> dict[str, ConfigEntry]:
    resource = ConfigResource("topic", topic)
    return client.describe_configs([resource])[resource].result()


def test_options_are_changed_one_by_one_or_replaced_all(client: AdminClient) -> None:
    client.create_topics([NewTopic("orders", config={"segment.ms": "60000"})])
    operations = AlterConfigOpType
    changes = [
        ConfigEntry("cleanup.policy", "compact", incremental_operation=operations.APPEND),
        ConfigEntry("retention.ms", "5000", incremental_operation=operations.SET),
        ConfigEntry("segment.ms", None, incremental_operation=operations.DELETE),
    ]
    resource = ConfigResource(ConfigResource.Type.TOPIC, "orders", incremental_configs=changes)
    client.incremental_alter_configs([resource], validate_only=True)[resource].result()
    assert values(client, "orders")["segment.ms"].value == "60000"
    client.incremental_alter_configs([resource])[resource].result()
    found = values(client, "orders")
    assert (found["cleanup.policy"].value, found["retention.ms"].value) == ("delete,compact", "5000")
    assert (found["segment.ms"].is_default, found["segment.ms"].source) == (True, admin.ConfigSource.DEFAULT_CONFIG)
    assert found["retention.ms"].source is admin.ConfigSource.DYNAMIC_TOPIC_CONFIG
    assert str(found["retention.ms"]) == 'retention.ms="5000"'
    with pytest.warns(DeprecationWarning, match="incremental_alter_configs"):
        client.alter_configs([ConfigResource("topic", "orders", {"max.message.bytes": "5000"})])[resource].result()
    found = values(client, "orders")
    chosen = {name: entry.value for name, entry in found.items() if not entry.is_default}
    assert chosen == {"max.message.bytes": "5000", "retention.ms": "-1"}


def test_options_of_what_does_not_exist_or_cannot_be_changed_have_a_code(client: AdminClient) -> None:
    missing, broker, group = (ConfigResource(kind, "0") for kind in ("topic", "broker", "group"))
    found = client.describe_configs([missing, broker, group])
    assert code(found[missing]) == "UNKNOWN_TOPIC_OR_PART"
    assert found[broker].result()["node.id"].is_read_only
    assert code(found[group]) == "INVALID_REQUEST"
    change = ConfigEntry("retention.ms", "x", incremental_operation=AlterConfigOpType.SET)
    client.create_topics([NewTopic("orders")])
    for resource, expected in ((broker, "INVALID_REQUEST"), (ConfigResource("topic", "orders"), "INVALID_CONFIG")):
        resource.add_incremental_config(change)
        assert code(client.incremental_alter_configs([resource])[resource]) == expected


# ---- records and offsets -----------------------------------------------------------------------------------------------------


def test_offsets_are_listed_and_records_deleted(client: AdminClient, server: dict[str, str]) -> None:
    filled(server)
    orders, missing = TopicPartition("orders", 0), TopicPartition("none", 0)
    for spec, offset, timestamp in (
        (OffsetSpec.earliest(), 0, -1),
        (OffsetSpec.latest(), 4, -1),
        (OffsetSpec.max_timestamp(), 3, 1003),
        (OffsetSpec.for_timestamp(1002), 2, 1002),
        (OffsetSpec.for_timestamp(9999), -1, -1),
    ):
        found = client.list_offsets({orders: spec})[orders].result()
        assert (found.offset, found.timestamp) == (offset, timestamp)
    assert code(client.list_offsets({missing: OffsetSpec.latest()})[missing]) == "UNKNOWN_TOPIC_OR_PART"
    assert code(client.list_offsets({orders: OffsetSpec.for_timestamp(-7)})[orders]) == "_INVALID_ARG"
    orders.offset = 3
    assert client.delete_records([orders])[orders].result().low_watermark == 3
    orders.offset = 99
    assert code(client.delete_records([orders])[orders]) == "OFFSET_OUT_OF_RANGE"
    orders.offset = confluent.OFFSET_END
    assert client.delete_records([orders])[orders].result().low_watermark == 4
    assert code(client.delete_records([orders, TopicPartition("orders", 0, 1)])[orders]) == "_INVALID_ARG"


# ---- groups ------------------------------------------------------------------------------------------------------------------


def test_a_group_is_listed_described_moved_and_deleted(client: AdminClient, server: dict[str, str]) -> None:
    filled(server)
    consumer = confluent.Consumer({**server, "group.id": "billing", "auto.offset.reset": "earliest", "client.id": "reader"})
    consumer.subscribe(["orders"])
    assert consumer.poll(10) is not None
    (listing,) = client.list_consumer_groups().result().valid
    assert (listing.group_id, listing.state) == ("billing", confluent.ConsumerGroupState.STABLE)
    assert client.list_consumer_groups(states={confluent.ConsumerGroupState.EMPTY}).result().valid == []
    group = client.describe_consumer_groups(["billing"])["billing"].result()
    assert [each.assignment.topic_partitions for each in group.members] == [[TopicPartition("orders", 0)]]
    assert code(client.delete_consumer_groups(["billing"])["billing"]) == "NON_EMPTY_GROUP"
    consumer.close()
    wanted = TopicPartition("orders", 0, 3, metadata="note")
    moved = client.alter_consumer_group_offsets([ConsumerGroupTopicPartitions("billing", [wanted])])["billing"].result()
    assert [each.error for each in moved.topic_partitions] == [None]
    listed = client.list_consumer_group_offsets([ConsumerGroupTopicPartitions("billing")])["billing"].result()
    assert [(each.offset, each.metadata) for each in listed.topic_partitions] == [(3, "note")]
    asked = ConsumerGroupTopicPartitions("billing", [TopicPartition("orders", 7)])
    (none,) = client.list_consumer_group_offsets([asked])["billing"].result().topic_partitions
    assert none.offset == confluent.OFFSET_INVALID
    with pytest.warns(DeprecationWarning, match="list_consumer_groups"):
        assert [(each.id, each.state) for each in client.list_groups()] == [("billing", "Empty")]
    assert client.delete_consumer_groups(["billing"])["billing"].result() is None
    assert code(client.delete_consumer_groups(["billing"])["billing"]) == "GROUP_ID_NOT_FOUND"
    assert client.describe_consumer_groups(["billing"])["billing"].result().state is confluent.ConsumerGroupState.DEAD


def test_offsets_of_a_group_with_a_member_or_of_no_partition_are_refused(client: AdminClient, server: dict[str, str]) -> None:
    filled(server)
    consumer = confluent.Consumer({**server, "group.id": "billing"})
    consumer.subscribe(["orders"])
    consumer.poll(0.5)
    for partition, expected in (("orders", "UNKNOWN_MEMBER_ID"), ("none", "UNKNOWN_TOPIC_OR_PART")):
        request = ConsumerGroupTopicPartitions("billing", [TopicPartition(partition, 0, 1)])
        (found,) = client.alter_consumer_group_offsets([request])["billing"].result().topic_partitions
        assert found.error.name() == expected
        consumer.close()


# ---- the rest ----------------------------------------------------------------------------------------------------------------


def test_the_cluster_has_one_broker_and_no_users(client: AdminClient) -> None:
    cluster = client.describe_cluster(include_authorized_operations=True).result()
    assert (cluster.cluster_id, str(cluster.controller), len(cluster.nodes)) == ("pylog", "(0) localhost:9092", 1)
    client.create_topics([NewTopic("orders")])
    orders, missing = TopicPartition("orders", 0), TopicPartition("orders", 7)
    elected = client.elect_leaders(confluent.ElectionType.PREFERRED, [orders, missing]).result()
    assert [error.args[0].name() for error in elected.values() if error] == ["ELECTION_NOT_NEEDED", "UNKNOWN_TOPIC_OR_PART"]
    assert client.elect_leaders(confluent.ElectionType.UNCLEAN).result() == {}
    literal, allow = admin.ResourcePatternType.LITERAL, admin.AclPermissionType.ALLOW
    right = "User:a", "*", admin.AclOperation.READ, allow
    binding = admin.AclBinding(admin.ResourceType.TOPIC, "orders", literal, *right)
    known = admin.AclBindingFilter(admin.ResourceType.TOPIC, "orders", literal, *right)
    for future in (client.create_acls([binding])[binding], client.describe_acls(known), client.delete_acls([known])[known]):
        assert code(future) == "SECURITY_DISABLED"
    deletion = admin.UserScramCredentialDeletion("a", admin.ScramMechanism.SCRAM_SHA_256)
    users = client.describe_user_scram_credentials(["a"])["a"], client.describe_user_scram_credentials()
    for future in (*users, client.alter_user_scram_credentials([deletion])["a"]):
        assert code(future) == "UNSUPPORTED_VERSION"
    with client as same:
        assert (len(same), same.poll(0), bool(same)) == (0, 0, False)


WRONG = """
    AdminClient() | AdminClient(5) | AdminClient({"foo": 1}) | AdminClient({"acks": 99999}) | NewTopic() | NewTopic(5)
    NewTopic("a", "x") | NewPartitions("a") | ConfigResource("x", "y") | ConfigResource("topic", None)
    a.create_topics([]) | a.create_topics([NewTopic("t", 1)], foo=True) | a.create_topics([NewTopic("t", -7)])
    a.create_topics([NewTopic("t", 2, replica_assignment=[[0]])]) | a.create_topics([NewTopic("t", 1)], request_timeout=-5)
    a.create_topics([NewTopic("t", 1)], operation_timeout="x") | a.delete_topics([]) | a.delete_topics("x")
    a.create_partitions([]) | a.create_partitions([NewPartitions("x", 0)]) | a.describe_configs([]) | a.describe_configs([5])
    a.describe_configs(5) | a.alter_configs([]) | a.incremental_alter_configs([]) | a.incremental_alter_configs([5])
    a.incremental_alter_configs([ConfigResource("topic", "x")])
    a.incremental_alter_configs([ConfigResource("topic", "x", incremental_configs=[ConfigEntry("a", "1")])])
    a.list_consumer_groups(states=5) | a.list_consumer_groups(states={"x"}) | a.list_consumer_groups(types={"x"})
    a.list_consumer_groups(foo=1) | a.list_consumer_groups(types={ConsumerGroupType.UNKNOWN}) | a.describe_consumer_groups([])
    a.describe_consumer_groups("x") | a.delete_consumer_groups([]) | a.delete_consumer_groups([5])
    a.delete_consumer_groups(["a", "a"]) | a.list_consumer_group_offsets([]) | a.list_consumer_group_offsets(5)
    a.list_consumer_group_offsets(None) | a.list_consumer_group_offsets([Group("g"), Group("h")])
    a.list_consumer_group_offsets([Group("g", [])]) | a.list_consumer_group_offsets([Group("g", [Part("x", 0, 5)])])
    a.list_consumer_group_offsets([Group("", [Part("x", 0)])]) | a.list_consumer_group_offsets([5])
    a.list_consumer_group_offsets([Group("g", [Part("x", -1)])]) | a.alter_consumer_group_offsets([])
    a.alter_consumer_group_offsets([Group("g")]) | a.alter_consumer_group_offsets([Group("g", [])])
    a.alter_consumer_group_offsets([Group("g", [Part("x", 0)])])
    a.alter_consumer_group_offsets([Group("g", [Part("x", 0, 5), Part("x", 0, 6)])]) | a.alter_consumer_group_offsets([5])
    a.list_offsets({}) | a.list_offsets(5) | a.list_offsets({Part("x", 0): 5}) | a.list_offsets({5: OffsetSpec.latest()})
    a.list_offsets({Part("x", -1): OffsetSpec.latest()}) | a.list_offsets({Part("x", 0): OffsetSpec.for_timestamp(-5)})
    a.list_offsets({Part("x", 0): OffsetSpec.latest()}, isolation_level=5) | a.list_offsets({Part("", 0): OffsetSpec.latest()})
    a.delete_records([]) | a.delete_records(5) | a.delete_records([5]) | a.delete_records([Part("x", -1, 5)])
    a.delete_records([Part("x", 0, 5), Part("x", 0, 6)]) | a.describe_topics(TopicCollection([])) | a.describe_topics(["x"])
    a.describe_topics(TopicCollection([5])) | a.describe_topics(TopicCollection([""])) | a.elect_leaders(5, [])
    a.create_acls([]) | a.delete_acls([]) | a.describe_acls(5) | a.alter_user_scram_credentials([])
    a.set_sasl_credentials("a", None) | a.list_topics(5) | a.list_topics("a", "b")
"""


def answer(module: Any, administration: Any, client: Any, expression: str) -> Any:
    """What a call returns, or the class and the code of what it raises; by key for futures."""
    names = {**vars(administration), **{name: getattr(module, name) for name in ("ConsumerGroupType", "TopicCollection")}}
    names |= {"a": client, "Group": module.ConsumerGroupTopicPartitions, "Part": module.TopicPartition}
    try:
        found = eval(expression, names)  # one of the expressions above
        found = sorted(outcome(each) for each in found.values()) if isinstance(found, dict) else found
    except Exception as error:  # noqa: BLE001 - the class is what is compared
        return shown(error)
    return found


def outcome(future: Any) -> str:
    try:
        return str(future.result(5))
    except Exception as error:  # noqa: BLE001 - as above
        return shown(error)


def shown(error: Exception) -> str:
    found = error.args[0] if error.args else None
    return f"{type(error).__name__} {found.name() if hasattr(found, 'name') else ''}"


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("expression", [each.strip() for line in WRONG.strip().splitlines() for each in line.split(" | ")])
def test_a_wrong_argument_is_refused_as_by_the_real_administrator(client: AdminClient, expression: str) -> None:
    real = confluent_kafka.admin.AdminClient({"bootstrap.servers": "127.0.0.1:9", "log_level": 0})
    expected = answer(confluent_kafka, confluent_kafka.admin, real, expression)
    assert answer(confluent, admin, client, expression) == expected
