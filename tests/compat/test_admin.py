"""kafka-python's administrator on a pylog store: topics, options, offsets and groups."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import pylog
import pylog.compat.kafka as kafka
from compat.conftest import Servers
from pylog.compat.kafka import errors
from pylog.compat.kafka.admin import (
    ConfigResource,
    GroupState,
    MemberToRemove,
    NewPartitions,
    NewTopic,
    OffsetSpec,
    OffsetTimestamp,
)

PLACE = kafka.TopicPartition("orders", 0)


@pytest.fixture
def admin(memory: Servers) -> Iterator[kafka.KafkaAdminClient]:
    with kafka.KafkaAdminClient(**memory) as made:
        yield made


def sent(servers: Servers, *values: bytes, timestamps: tuple[int, ...] = ()) -> None:
    stamps = timestamps or (None,) * len(values)
    with kafka.KafkaProducer(**servers) as producer:
        for value, stamp in zip(values, stamps, strict=True):
            producer.send("orders", value, timestamp_ms=stamp)


def committed(servers: Servers, group: str = "billing") -> None:
    options = {"group_id": group, "auto_offset_reset": "earliest", "consumer_timeout_ms": 0} | servers
    with kafka.KafkaConsumer("orders", **options) as consumer:
        list(consumer)


def test_topics_are_created_from_names_dicts_and_new_topics(admin: kafka.KafkaAdminClient) -> None:
    admin.create_topics(["a"])
    admin.create_topics({"b": {"num_partitions": 2, "replication_factor": 3}})
    new = [NewTopic("c", 3, 1, topic_configs={"retention.ms": "60000"}), NewTopic("d", replica_assignments={0: [1], 1: [2]})]
    answer = admin.create_topics(new)
    assert admin.list_topics() == ["a", "b", "c", "d"]
    assert [len(topic["partitions"]) for topic in admin.describe_topics()] == [1, 2, 3, 2]
    assert answer.topic_errors == [("c", 0, None), ("d", 0, None)]
    assert answer.to_dict()["topics"][0]["num_partitions"] == 3
    admin.wait_for_topics(["a", "b"])
    with pytest.raises(errors.KafkaTimeoutError):
        admin.wait_for_topics(["a", "missing"])


@pytest.mark.parametrize(
    ("wanted", "error"),
    [
        (["orders"], errors.TopicAlreadyExistsError),
        (["or ders"], errors.InvalidTopicError),
        ([NewTopic("new", 0)], errors.InvalidPartitionsError),
        ({"new": {"configs": {"retentoin.ms": "1"}}}, errors.InvalidConfigurationError),
        ({"new": {"configs": {"retention.ms": "soon"}}}, errors.InvalidConfigurationError),
        ({"new": {"configs": {"cleanup.policy": "shred"}}}, errors.InvalidConfigurationError),
    ],
)
def test_a_topic_that_cannot_be_created_raises_or_returns_its_error(
    wanted: Any, error: Any, admin: kafka.KafkaAdminClient
) -> None:
    admin.create_topics(["orders"])
    with pytest.raises(error):
        admin.create_topics(wanted)
    answer = admin.create_topics(wanted, raise_errors=False)
    assert answer["topics"][0]["error_code"] == error.errno
    assert admin.list_topics() == ["orders"]


def test_validating_creates_nothing(admin: kafka.KafkaAdminClient) -> None:
    assert admin.create_topics(["orders"], validate_only=True)["topics"][0]["error_code"] == 0
    assert admin.list_topics() == []


def test_a_described_topic_has_the_keys_of_both_versions_and_its_id(admin: kafka.KafkaAdminClient) -> None:
    admin.create_topics(["orders"])
    found, missing = admin.describe_topics(["orders", "missing"])
    (partition,) = found["partitions"]
    assert (partition["partition_index"], partition["partition"], partition["leader_id"], partition["isr"]) == (0, 0, 0, [0])
    assert (found["name"], found["topic"], found["error_code"]) == ("orders", "orders", 0)
    assert (missing["error_code"], missing["partitions"]) == (3, [])
    assert "replicas" not in list(found)
    assert found["partitions"][0].get("replicas") == [0]
    topic_id = uuid.UUID(found["topic_id"])
    assert admin.describe_topics([topic_id])[0]["name"] == "orders"
    admin.delete_topics([topic_id])
    assert admin.list_topics() == []
    with pytest.raises(errors.UnknownTopicOrPartitionError):
        admin.delete_topics(["orders"])


def test_partitions_can_only_be_added(admin: kafka.KafkaAdminClient) -> None:
    admin.create_topics(["orders"])
    admin.create_partitions({"orders": NewPartitions(2)})
    admin.create_partitions({"orders": {"count": 4}})
    admin.create_partitions({"orders": 5}, validate_only=True)
    assert len(admin.describe_topics(["orders"])[0]["partitions"]) == 4
    with pytest.raises(errors.InvalidPartitionsError):
        admin.create_partitions({"orders": 4})
    with pytest.raises(errors.UnknownTopicOrPartitionError):
        admin.create_partitions({"missing": 4})


def test_options_are_described_altered_and_reset(admin: kafka.KafkaAdminClient) -> None:
    admin.create_topics({"orders": {"configs": {"retention.ms": "60000", "min.insync.replicas": "2"}}})
    topic = ConfigResource("TOPIC", "orders")
    found = admin.describe_configs([topic])
    assert {name: each["value"] for name, each in found["topic"]["orders"].items()} == {
        "retention.ms": "60000",
        "min.insync.replicas": "2",
    }
    assert found[0].resources[0][3] == "orders"
    changes = {"retention.ms": 1000, "cleanup.policy": ("APPEND", "compact")}
    assert admin.alter_configs([ConfigResource("topic", "orders", changes)]) == {"topic": {"orders": "OK"}}
    every = admin.describe_configs([topic], config_filter="all")["topic"]["orders"]
    assert (every["retention.ms"]["value"], every["cleanup.policy"]["value"]) == ("1000", "delete,compact")
    assert every["segment.bytes"]["config_source"] == "DEFAULT_CONFIG"
    admin.reset_configs([ConfigResource("topic", "orders", ["retention.ms", "cleanup.policy"])])
    assert set(admin.describe_configs([topic])["topic"]["orders"]) == {"min.insync.replicas"}
    with pytest.raises(ValueError, match="Unrecognized"):
        admin.alter_configs([ConfigResource("topic", "orders", {"retentoin.ms": 1})])
    assert "Error 40" in admin.alter_configs([ConfigResource("topic", "orders", {"retention.ms": -5})])["topic"]["orders"]
    assert "Error 42" in admin.alter_configs([ConfigResource("broker", "0", {"retention.ms": 5})])["broker"]["0"]
    assert admin.describe_configs([ConfigResource("topic", "missing")]) == {"topic": {"missing": {}}}
    with pytest.raises(ValueError, match="Unrecognized"):
        admin.alter_configs([ConfigResource("topic", "missing", {"retention.ms": 1})])
    assert admin.list_config_resources(["topic"]) == {"topic": ["orders"]}


def test_records_are_deleted_and_offsets_are_found(memory: Servers, admin: kafka.KafkaAdminClient) -> None:
    sent(memory, b"a", b"b", b"c", timestamps=(1000, 3000, 2000))
    ask = admin.list_partition_offsets
    assert ask({PLACE: OffsetSpec.LATEST})[PLACE].offset == 3
    assert ask({PLACE: OffsetSpec.MAX_TIMESTAMP})[PLACE][:2] == (1, 3000)
    assert ask({PLACE: 1500})[PLACE][:2] == (1, 3000)
    assert ask({PLACE: 9000})[PLACE].offset == -1
    assert ask({PLACE: OffsetSpec.LATEST_TIERED})[PLACE].offset == -1
    assert admin.delete_records({PLACE: 2})[PLACE]["low_watermark"] == 2
    assert ask({PLACE: OffsetSpec.EARLIEST})[PLACE].offset == 2
    assert admin.delete_records({PLACE: -1})[PLACE]["low_watermark"] == 3
    with pytest.raises(errors.OffsetOutOfRangeError):
        admin.delete_records({PLACE: 99})
    with pytest.raises(errors.UnknownTopicOrPartitionError):
        admin.delete_records({kafka.TopicPartition("missing", 0): 1})


def test_offsets_of_a_tiered_topic_tell_what_is_local_and_what_is_archived(directory: Servers, tmp_path: Path) -> None:
    """Kafka's LATEST_TIERED is the last offset in the remote storage, and EARLIEST_LOCAL the first one on the disk."""
    with pylog.open(tmp_path / "kafka", archive=str(tmp_path / "archive")) as store:
        store.create_topic("orders", remote_storage_enable=True, segment_bytes=300, local_retention_bytes=400, retention_ms=-1)
        log = store.log("orders")
        for number in range(20):
            log.append(b"%d" % number * 50)
        store.tick()
        local_start, archived_end = log.local_start_offset, log.archived_end_offset
    with kafka.KafkaAdminClient(**directory) as admin:
        ask = admin.list_partition_offsets
        assert ask({PLACE: OffsetSpec.EARLIEST})[PLACE].offset == 0
        assert ask({PLACE: OffsetSpec.EARLIEST_LOCAL})[PLACE].offset == local_start > 10
        assert archived_end is not None
        assert ask({PLACE: OffsetSpec.LATEST_TIERED})[PLACE].offset == archived_end - 1 >= local_start - 1


def test_groups_are_listed_described_and_deleted_in_both_versions(memory: Servers, admin: kafka.KafkaAdminClient) -> None:
    sent(memory, b"a")
    committed(memory)
    assert [(each["group_id"], each["group_state"]) for each in admin.list_groups()] == [("billing", "Empty")]
    assert admin.list_groups(states_filter=[GroupState.STABLE]) == []
    assert admin.list_consumer_groups() == [("billing", "consumer")]
    with kafka.KafkaConsumer("orders", group_id="billing", **memory) as consumer:
        consumer.poll()
        found = admin.describe_groups(["billing", "missing"])
        (member,) = found["billing"]["members"]
        assert found["billing"]["group_state"] == "Stable"
        assert member["member_assignment"]["assigned_partitions"] == [{"topic": "orders", "partitions": [0]}]
        assert (found["missing"]["group_state"], "Error 69" in found["missing"]["error"]) == ("Dead", True)
        (old,) = admin.describe_consumer_groups(["billing"])
        assert old.members[0].member_assignment.assignment == [("orders", [0])]
        assert admin.delete_groups(["billing"]) == {"billing": "NonEmptyGroupError"}
        removed = admin.remove_group_members("billing", [MemberToRemove(member["member_id"]), MemberToRemove("nobody")])
        assert removed == {member["member_id"]: errors.NonEmptyGroupError, "nobody": errors.UnknownMemberIdError}
    assert admin.delete_groups(["billing", "missing"]) == {"billing": "OK", "missing": "GroupIdNotFoundError"}
    assert admin.delete_consumer_groups(["missing"]) == [("missing", errors.GroupIdNotFoundError)]


def test_a_groups_offsets_are_listed_altered_reset_and_deleted(memory: Servers, admin: kafka.KafkaAdminClient) -> None:
    sent(memory, b"a", b"b", timestamps=(1000, 2000))
    committed(memory)
    other = kafka.TopicPartition("orders", 7)
    assert admin.list_group_offsets("billing") == {"billing": {PLACE: kafka.OffsetAndMetadata(2, "", 0)}}
    assert admin.list_group_offsets({"billing": [other]})["billing"][other].offset == -1
    assert admin.list_consumer_group_offsets("billing")[PLACE].offset == 2
    assert admin.alter_group_offsets("billing", {PLACE: kafka.OffsetAndMetadata(1, "note")}) == {PLACE: errors.NoError}
    assert admin.list_group_offsets(["billing"])["billing"][PLACE].metadata == "note"
    for spec, offset in ((OffsetSpec.EARLIEST, 0), (OffsetTimestamp(1500), 1), (99, 2), (OffsetTimestamp(9000), 2)):
        assert admin.reset_group_offsets("billing", {PLACE: spec}) == {PLACE: {"error": errors.NoError, "offset": offset}}
    with kafka.KafkaConsumer("orders", group_id="billing", **memory) as consumer:
        consumer.poll()
        found = admin.alter_group_offsets("billing", {PLACE: kafka.OffsetAndMetadata(0)})
        assert found == {PLACE: errors.UnknownMemberIdError}
    assert admin.delete_group_offsets("billing", [PLACE]) == {PLACE: errors.NoError}
    with pytest.raises(errors.GroupIdNotFoundError):
        admin.delete_group_offsets("missing", [PLACE])


def test_the_cluster_is_one_broker_with_real_sizes(memory: Servers, admin: kafka.KafkaAdminClient) -> None:
    sent(memory, b"a" * 1000)
    assert [broker["broker_id"] for broker in admin.describe_cluster()["brokers"]] == [0]
    (place,) = admin.describe_log_dirs()[0]["log_dirs"]
    assert place["topics"][0]["partitions"][0]["partition_size"] > 1000
    assert admin.get_broker_version_data(0) == (4, 3)
    assert admin.describe_producers([PLACE]) == {PLACE: ([],)}


def test_calls_that_need_a_broker_are_refused_in_words(admin: kafka.KafkaAdminClient) -> None:
    for call in (admin.create_acls, admin.describe_acls, admin.delete_acls):
        with pytest.raises(errors.SecurityDisabledError):
            call([])
    for call in (admin.alter_user_scram_credentials, admin.update_features, admin.send_request):
        with pytest.raises(errors.UnsupportedVersionError, match="needs a broker"):
            call({})
    assert admin.list_transactions() == admin.find_hanging_transactions() == []


def test_leaders_and_copies_stay_where_they_are_and_other_places_are_a_brokers_errors(
    memory: Servers, admin: kafka.KafkaAdminClient
) -> None:
    admin.create_topics({"orders": {"num_partitions": 2}})
    missing = kafka.TopicPartition("orders", 2)
    (topic,) = admin.elect_leaders(0, {"orders": [0, 1]}).replica_election_results
    assert (topic[0], [row[:2] for row in map(tuple, map(dict.values, topic[1]))]) == ("orders", [(0, 84), (1, 84)])
    assert admin.elect_leaders(1).replica_election_results == []
    with pytest.raises(errors.UnknownTopicOrPartitionError):
        admin.elect_leaders(0, {"orders": [2]})
    with pytest.raises(ValueError, match="preferred"):
        admin.elect_leaders("both", ["orders"])
    answer = admin.alter_partition_reassignments({PLACE: [0], missing: [0]})
    assert answer == {PLACE: None, missing: errors.UnknownTopicOrPartitionError}
    assert admin.alter_partition_reassignments({PLACE: [0, 1]}) == {PLACE: errors.InvalidReplicationAssignmentError}
    assert admin.alter_partition_reassignments({PLACE: None}) == {PLACE: errors.NoReassignmentInProgressError}
    with pytest.raises(ValueError, match="at least one"):
        admin.alter_partition_reassignments({PLACE: []})
    assert admin.list_partition_reassignments([PLACE]) == {}
    here = admin.describe_log_dirs()[0]["log_dirs"][0]["log_dir"]
    copy = kafka.TopicPartitionReplica("orders", 0, 0)
    assert admin.alter_replica_log_dirs({copy: here}) == {copy: errors.NoError}
    assert admin.alter_replica_log_dirs({("orders", 0, 0): "/elsewhere"}) == {copy: errors.LogDirNotFoundError}
    assert admin.alter_replica_log_dirs({("orders", 0, 1): here})[("orders", 0, 1)] is errors.UnknownTopicOrPartitionError


def test_options_are_described_in_the_shapes_of_each_version(admin: kafka.KafkaAdminClient) -> None:
    admin.create_topics({"orders": {"configs": {"retention.ms": "60000"}}})
    wanted = [ConfigResource("TOPIC", "orders"), ConfigResource("BROKER", 0)]
    found = admin.describe_configs(wanted)
    assert found["topic"]["orders"].keys() == {"retention.ms"}
    assert found["broker"] == {"0": {}}
    old = [resource for answer in found for resource in answer.resources]  # as programs for version 2 read it
    assert [(resource[2], resource[3]) for resource in old] == [(2, "orders"), (4, "0")]
    values = {entry[0]: entry[1] for entry in old[0].config_entries}
    assert (values["retention.ms"], values["cleanup.policy"]) == ("60000", "delete")
    assert found[0].resources == found.resources[:1]
    assert "advertised.listeners" in admin.describe_configs(wanted[1:], config_filter="all")["broker"]["0"]
    with pytest.raises(ValueError, match="invalid literal"):
        admin.describe_configs([ConfigResource("BROKER", "first")])
    with pytest.raises(errors.InvalidRequestError, match="no broker 7"):
        admin.describe_configs([ConfigResource("BROKER", 7)])


def test_rows_of_answers_have_numbers_as_well_as_names(admin: kafka.KafkaAdminClient) -> None:
    admin.create_topics(["orders"])
    (row,) = admin.create_partitions({"orders": NewPartitions(6, [[0]] * 5)}).results
    assert (row[0], row[1], row["name"]) == ("orders", 0, "orders")
    with pytest.raises(KeyError):
        row["missing"]


def test_members_of_enumerations_are_built_from_values_and_names() -> None:
    assert OffsetSpec.build_from("max-timestamp") is OffsetSpec.build_from(-3) is OffsetSpec.MAX_TIMESTAMP
    assert GroupState.build_from("preparing_rebalance") is GroupState.PREPARING_REBALANCE
    assert GroupState.value_for("Stable") == "Stable"
    for wrong in ("sometime", None, 77, True):
        with pytest.raises(ValueError, match="is not one of"):
            OffsetSpec.build_from(wrong)


def test_a_closed_administrator_refuses_calls(memory: Servers) -> None:
    admin = kafka.KafkaAdminClient(**memory)
    admin.close()
    admin.close()
    for call in (admin.list_topics, admin.list_groups, lambda: admin.create_topics(["orders"])):
        with pytest.raises(RuntimeError, match="the administrator is closed"):  # the class that kafka-python raises
            call()
