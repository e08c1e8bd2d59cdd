"""A group for its administrator: what it is told, what it may change, what is refused before anything is written."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import pylog
from pylog import GroupIdNotFoundError, InvalidArgumentError, NonEmptyGroupError, OffsetAndMetadata, OffsetsConfig, TopicPartition
from pylog.clock import ManualClock
from pylog.groups.liveness import MemberSlot, living_members
from pylog.groups.member import GroupMember, PartitionsAssigned
from pylog.groups.member_options import MemberOptions
from pylog.groups.reset import PlannedOffset
from pylog.log_manager import LogManager
from pylog.offsets.membership import CURRENT, GROUP_EPOCH, MEMBER, PATTERN, TARGET, TARGET_EPOCH
from pylog.offsets.schema import (
    OFFSET,
    OFFSETS_TOPIC,
    format_offset,
    format_partition_key,
    group_key,
    offset_key,
    partition_of_group,
)
from pylog.offsets.store import offset_manager_of
from pylog.store import Store
from pylog.testing import MemoryFileSystem
from support.golden import data as golden_data
from support.groups.members import member_of

NOW = 1_700_000_000_000
T0, T1, U0 = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("u", 0)
FAR_AHEAD = 1 << 50  # milliseconds


def opened(fs: MemoryFileSystem, **how: Any) -> Store:
    return pylog.open("/s", **{"fs": fs, "clock": ManualClock(NOW), "offsets": OffsetsConfig(topic_num_partitions=2), **how})


@pytest.fixture
def fs() -> MemoryFileSystem:
    return MemoryFileSystem()


@pytest.fixture
def store(fs: MemoryFileSystem) -> Iterator[Store]:
    """t-0 has offsets 0 to 9, t-1 has 4 to 9 (those before are deleted), u-0 none. Each record is a second younger."""
    with opened(fs) as made:
        made.create_topic("t", partition_count=2)
        made.create_topic("u")
        for number in range(2):
            made.log("t", number).append_many([(None, b"x", (), NOW - 10_000 + 1000 * each) for each in range(10)])
        made.log("t", 1).delete_records(4)
        yield made


def ends(store: Store) -> list[int]:
    return [store.log(OFFSETS_TOPIC, number).end_offset for number in range(2)]


# ---- looking -----------------------------------------------------------------------------------------------------------------


def test_a_group_is_described_with_its_offsets_and_its_lag(store: Store) -> None:
    store.offsets.commit("g", {T0: OffsetAndMetadata(3, "some", 0), T1: 10, U0: 0})
    found = store.group("g").describe()
    assert (found.group_id, found.type, found.state, found.protocol_type, found.members) == ("g", "Classic", "Empty", "", ())
    assert [
        (
            each.partition,
            each.offset,
            each.leader_epoch,
            each.metadata,
            each.start_offset,
            each.end_offset,
            each.lag,
            each.consumer,
        )
        for each in found.partitions
    ] == [
        (T0, 3, 0, "some", 0, 10, 7, None),
        (T1, 10, None, "", 4, 10, 0, None),
        (U0, 0, None, "", 0, 0, 0, None),
    ]
    assert store.group("g").lag() == {T0: 7, T1: 0, U0: 0}
    assert store.groups() == ["g"]


@pytest.fixture
def halted(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """The process that deletes a topic dies before it deletes the topic's offsets."""
    monkeypatch.setattr(offset_manager_of(store.offsets), "_forget_topic", lambda *_: None)


@pytest.mark.usefixtures("halted")
def test_an_offset_committed_for_a_deleted_topic_has_no_lag(store: Store) -> None:
    store.offsets.commit("g", {T0: 3, U0: 0})
    store.delete_topic("u")
    (gone,) = [each for each in store.group("g").describe().partitions if each.partition == U0]
    assert (gone.offset, gone.start_offset, gone.end_offset, gone.lag) == (0, None, None, None)
    assert store.group("g").lag() == {T0: 7}


def test_an_offset_committed_beyond_the_end_has_a_negative_lag_as_in_kafkas_tools(store: Store) -> None:
    store.offsets.commit("g", {T0: 10})
    store.log("t", 0).truncate(6)
    assert store.group("g").lag() == {T0: -4}


@pytest.mark.parametrize("action", ["describe", "lag", "delete"])
def test_an_unused_group_is_not_found(store: Store, action: str) -> None:
    with pytest.raises(GroupIdNotFoundError, match="no group 'nobody'"):
        getattr(store.group("nobody"), action)()
    store.offsets.commit("g", {T0: 1})
    with pytest.raises(GroupIdNotFoundError, match="no group 'nobody'"):
        getattr(store.group("nobody"), action)()


@pytest.mark.parametrize("name", [None, 5, "g" * 32_768, "\ud800"])
def test_a_value_that_is_no_groups_name_is_refused(store: Store, name: Any) -> None:
    with pytest.raises(InvalidArgumentError):
        store.group(name)


# ---- resetting ---------------------------------------------------------------------------------------------------------------

WAYS: list[tuple[dict[str, Any], dict[TopicPartition, int]]] = [
    ({"to": "earliest"}, {T0: 0, T1: 4}),
    ({"to": "latest"}, {T0: 10, T1: 10}),
    ({"to": "current"}, {T0: 3, T1: 9}),
    ({"to": 6}, {T0: 6, T1: 6}),
    ({"to": 2}, {T0: 2, T1: 4}),
    ({"to": 99}, {T0: 10, T1: 10}),
    ({"shift_by": 2}, {T0: 5, T1: 10}),
    ({"shift_by": -6}, {T0: 0, T1: 4}),
    ({"to": datetime.fromtimestamp(NOW / 1000 - 3, UTC)}, {T0: 7, T1: 7}),
    ({"to": "2023-11-14T22:13:13.500"}, {T0: 4, T1: 4}),
    ({"to": "2033-11-14T22:13:13.500"}, {T0: 10, T1: 10}),
    ({"by_duration": "PT2.5S"}, {T0: 8, T1: 8}),
    ({"by_duration": timedelta(days=1)}, {T0: 0, T1: 4}),
    ({"to": "earliest", "scope": "t"}, {T0: 0, T1: 4}),
    ({"to": "latest", "scope": [T1]}, {T1: 10}),
    ({"to": "latest", "scope": ["u", ("t", 0)]}, {T0: 10, U0: 0}),
    ({"to": "current", "scope": ["u", T0]}, {T0: 3, U0: 0}),
    ({"to": "latest", "scope": []}, {}),
]


@pytest.mark.parametrize(("how", "expected"), WAYS, ids=repr)
def test_a_group_is_reset_in_all_of_kafkas_ways_and_a_dry_run_only_says_so(store: Store, how: Any, expected: Any) -> None:
    before = {T0: OffsetAndMetadata(3, "m", 0), T1: OffsetAndMetadata(9, "n", 0)}
    store.offsets.commit("g", before)
    written = ends(store)
    plan = store.group("g").reset(**how, dry_run=True)
    assert (plan.offsets, ends(store)) == (expected, written)
    assert store.group("g").reset(**how) == plan
    fetched = {place: (each.offset, each.metadata, each.leader_epoch) for place, each in store.offsets.fetch("g").items()}
    kept = {place: (each.offset, each.metadata, each.leader_epoch) for place, each in before.items()}
    assert fetched == kept | {place: (offset, "", None) for place, offset in expected.items()}


def test_a_reset_is_one_batch_and_tells_what_it_clamped(store: Store) -> None:
    store.offsets.commit("g", {T0: 3, T1: 9})
    plan = store.group("g").reset(shift_by=-4)
    assert plan.partitions == (PlannedOffset(T0, 0, 3, -1, "before start"), PlannedOffset(T1, 5, 9))
    assert plan.adjusted == plan.partitions[:1]
    log = store.log(OFFSETS_TOPIC, partition_of_group("g", 2))
    assert [(record.key, record.value) for record in log.records(log.end_offset - 2)] == [
        (offset_key(b"g", format_partition_key(place)), format_offset(offset, b"", None, NOW))
        for place, offset in plan.offsets.items()
    ]


def test_a_group_that_there_is_not_yet_is_made_by_a_reset_of_chosen_topics(store: Store) -> None:
    assert store.group("new").reset("earliest", scope="t").offsets == {T0: 0, T1: 4}
    assert store.groups() == ["new"]


@pytest.mark.usefixtures("halted")
def test_topics_that_are_gone_do_not_keep_a_group_from_being_reset(store: Store) -> None:
    store.offsets.commit("g", {T0: 3, U0: 0})
    store.delete_topic("u")
    assert store.group("g").reset("earliest").offsets == {T0: 0}
    assert store.offsets.position("g", U0) == 0


REFUSED: list[tuple[str, dict[str, Any], type[pylog.PylogError], str]] = [
    ("g", {}, InvalidArgumentError, "give one of to, shift_by, by_duration and from_file"),
    ("g", {"to": 1, "by_duration": "PT1S"}, InvalidArgumentError, "to and by_duration are given together"),
    ("g", {"to": 1, "from_file": "f"}, InvalidArgumentError, "another target or a scope"),
    ("g", {"from_file": "f", "scope": "t"}, InvalidArgumentError, "another target or a scope"),
    ("g", {"from_file": "no such file"}, InvalidArgumentError, "there is no file no such file"),
    ("g", {"to": "later"}, InvalidArgumentError, "to='later'"),
    ("g", {"shift_by": 1, "scope": "t"}, InvalidArgumentError, "committed nothing for t-1; there is nothing to shift"),
    ("g", {"to": 1, "scope": "v"}, pylog.UnknownTopicOrPartitionError, "no topic 'v'"),
    ("g", {"to": 1, "scope": [("t", 2)]}, pylog.UnknownTopicOrPartitionError, "partition 2 of"),
    ("g", {"to": 1, "scope": [("v", 0)]}, pylog.UnknownTopicOrPartitionError, "no topic 'v'"),
    ("g", {"to": 1, "scope": [5]}, InvalidArgumentError, "5 is not a partition"),
    ("g", {"to": 1, "scope": 5}, InvalidArgumentError, "scope=5 is not"),
    ("g", {"to": 1, "scope": "a b"}, pylog.InvalidTopicError, "'a b' is not a topic name"),
    ("nobody", {"to": 1}, GroupIdNotFoundError, "no group 'nobody'"),
    ("", {"to": 1, "scope": "t"}, InvalidArgumentError, "name is empty"),
]


@pytest.mark.parametrize(("group", "how", "error", "message"), REFUSED, ids=repr)
@pytest.mark.parametrize("dry_run", [True, False])
def test_a_bad_reset_is_refused_and_nothing_is_written(
    store: Store, group: str, how: Any, error: type[pylog.PylogError], message: str, dry_run: bool
) -> None:
    store.offsets.commit("g", {T0: 3})
    written = ends(store)
    with pytest.raises(error, match=message):
        store.group(group).reset(**how, dry_run=dry_run)
    assert ends(store) == written


def test_a_store_open_for_reading_describes_and_plans_and_changes_nothing(store: Store, fs: MemoryFileSystem) -> None:
    store.offsets.commit("g", {T0: 3})
    with opened(fs, mode="r") as reader:
        assert reader.group("g").lag() == {T0: 7}
        assert reader.group("g").reset("earliest", dry_run=True).offsets == {T0: 0}
        for change in (
            lambda: reader.group("g").reset("earliest"),
            reader.group("g").delete,
            lambda: reader.group("g").delete_offsets("t"),
        ):
            with pytest.raises(pylog.ReadOnlyError):
                change()
    assert store.offsets.position("g", T0) == 3


@pytest.mark.slow
@settings(max_examples=30)
@given(st.lists(st.tuples(st.sampled_from([T0, T1]), st.integers(-3, 13)), max_size=6), st.integers(-15, 15))
def test_committing_and_shifting_in_turns_stays_within_the_log(steps: list[tuple[TopicPartition, int]], shift: int) -> None:
    fs = MemoryFileSystem()
    bounds = {T0: (0, 10), T1: (4, 10)}
    with opened(fs) as store:
        store.create_topic("t", partition_count=2)
        for number in range(2):
            store.log("t", number).append_many([b"x"] * 10)
        store.log("t", 1).delete_records(4)
        group, model = store.group("g"), {}
        for place, offset in steps:
            group.reset(offset, scope=[place])
            model[place] = min(max(offset, bounds[place][0]), bounds[place][1])
        if model:
            group.reset(shift_by=shift)
            model = {place: min(max(offset + shift, bounds[place][0]), bounds[place][1]) for place, offset in model.items()}
        assert {place: each.offset for place, each in store.offsets.fetch("g").items()} == model


# ---- deleting ----------------------------------------------------------------------------------------------------------------


def test_a_deleted_group_is_gone_with_its_offsets(store: Store, fs: MemoryFileSystem) -> None:
    store.offsets.commit("g", {T0: 3, T1: 5})
    store.offsets.commit("other", {T0: 1})
    store.group("g").delete()
    assert (store.groups(), store.offsets.fetch("g")) == (["other"], {})
    log = store.log(OFFSETS_TOPIC, partition_of_group("g", 2))
    assert [(record.key, record.value) for record in log.records(log.end_offset - 3)] == [
        (offset_key(b"g", format_partition_key(T0)), None),
        (offset_key(b"g", format_partition_key(T1)), None),
        (group_key(b"g"), None),
    ]
    store.close()
    with opened(fs) as again:
        assert again.groups() == ["other"]


def test_offsets_are_deleted_by_topic_and_by_partition(store: Store) -> None:
    store.offsets.commit("g", {T0: 3, T1: 5, U0: 0})
    assert store.group("g").delete_offsets([("t", 0), "u", ("t", 7), "v"]) == {T0, U0}  # what is not committed needs no deletion
    assert set(store.offsets.fetch("g")) == {T1}
    assert store.group("g").delete_offsets("t") == {T1}
    with pytest.raises(GroupIdNotFoundError):
        store.group("nobody").delete_offsets("t")


def test_offsets_that_wait_for_a_transactions_end_are_deleted_too(tmp_path: Path) -> None:
    with pylog.open(golden_data.case("4.3.0", "txn").copy(tmp_path / "txn")) as store:
        waiting = store.offsets.pending("g-txn-open")
        assert store.group("g-txn-open").delete_offsets("txn") == waiting != set()
        assert store.offsets.pending("g-txn-open") == set()


# ---- members that a broker left behind ---------------------------------------------------------------------------------------


@pytest.fixture
def brokers(tmp_path: Path) -> Path:
    """The directory of a broker that stopped while members of its groups were at work."""
    return golden_data.case("4.3.0", "groups").copy(tmp_path / "broker")


@pytest.mark.parametrize("name", ["g-classic", "g-static", "g-sticky", "g-consumer", "g-consumer-static", "g-consumer-regex"])
def test_members_left_by_a_broker_are_removed_by_a_reset(brokers: Path, name: str) -> None:
    """Else the broker, when it starts again, would let them go on and commit what they had read."""
    with pylog.open(brokers) as store:
        before = store.group(name).describe()
        assert (before.state, bool(before.members)) == ("Stable", True)
        store.group(name).reset("earliest")
        after = store.group(name).describe()
        assert (after.state, after.members, after.protocol_type, after.epoch) == (
            "Empty",
            (),
            "consumer",
            (before.epoch or 0) + 1,
        )
        assert {each.offset for each in after.partitions} == {0}


def test_members_that_may_be_at_work_beside_a_reader_are_respected(brokers: Path) -> None:
    with pylog.open(brokers, mode="r") as store:
        with pytest.raises(NonEmptyGroupError, match="'g-classic' has active members"):
            store.group("g-classic").reset("earliest", dry_run=True)
        assert store.group("g-left").reset("earliest", dry_run=True).offsets


def test_a_brokers_group_is_deleted_with_its_members(brokers: Path) -> None:
    with pylog.open(brokers) as store:
        for name in store.groups():
            store.group(name).delete()
        assert store.groups() == []
    with pylog.open(brokers, mode="r") as store:
        assert store.groups() == []


def test_a_group_is_deleted_record_by_record_in_the_order_that_brokers_accept(brokers: Path) -> None:
    """A broker refuses to start on the end of a member that still has an assignment, or of a group that still has members."""
    with pylog.open(brokers) as store:
        numbers = store.topic(OFFSETS_TOPIC).partition_ids
        before = {number: store.log(OFFSETS_TOPIC, number).end_offset for number in numbers}
        store.group("g-consumer-regex").delete()
        (log,) = [found for number in numbers if (found := store.log(OFFSETS_TOPIC, number)).end_offset > before[number]]
        records = list(log.records(before[log.partition.partition]))
    assert [(record.key or b"")[1] for record in records] == [OFFSET] * 5 + [
        CURRENT,
        TARGET,
        TARGET_EPOCH,
        MEMBER,
        PATTERN,
        GROUP_EPOCH,
    ]
    assert all(record.value is None for record in records)


# ---- files -------------------------------------------------------------------------------------------------------------------


def test_exported_offsets_are_imported_unchanged(store: Store, tmp_path: Path) -> None:
    store.offsets.commit("g", {T0: 3, T1: 5, U0: 0})
    store.group("g").export(tmp_path / "one.csv")
    assert (tmp_path / "one.csv").read_text() == "t,0,3\nt,1,5\nu,0,0\n"
    store.group("g").reset("latest")
    assert store.group("g").reset(from_file=tmp_path / "one.csv").offsets == {T0: 3, T1: 5, U0: 0}
    assert store.group("another").reset(from_file=str(tmp_path / "one.csv")).offsets == {T0: 3, T1: 5, U0: 0}
    assert store.group("g").lag() == store.group("another").lag() == {T0: 7, T1: 5, U0: 0}


def test_several_groups_go_into_one_file_and_come_back(store: Store, tmp_path: Path) -> None:
    store.offsets.commit("g", {T0: 3, T1: 5})
    store.offsets.commit("to bill", {T0: 7})
    pylog.export_offsets(store, tmp_path / "all.csv")
    assert (tmp_path / "all.csv").read_text() == 'g,t,0,3\ng,t,1,5\n"to bill",t,0,7\n'
    pylog.export_offsets(store, tmp_path / "some.csv", ["g"])
    assert (tmp_path / "some.csv").read_text() == "g,t,0,3\ng,t,1,5\n"
    for group in store.groups():
        store.group(group).reset("latest")
    written = ends(store)
    plans = pylog.import_offsets(store, tmp_path / "all.csv", dry_run=True)
    assert {plan.group_id: plan.offsets for plan in plans} == {"g": {T0: 3, T1: 5}, "to bill": {T0: 7}}
    assert ends(store) == written
    assert pylog.import_offsets(store, tmp_path / "all.csv") == plans
    assert (store.group("g").lag(), store.group("to bill").lag()) == ({T0: 7, T1: 5}, {T0: 3})
    store.offsets.commit("g", {T0: 10})
    assert store.group("g").reset(from_file=tmp_path / "all.csv").offsets == {T0: 3, T1: 5}


def test_a_file_with_one_wrong_line_changes_no_group(store: Store, tmp_path: Path) -> None:
    store.offsets.commit("g", {T0: 3})
    (tmp_path / "bad.csv").write_text("g,t,0,9\nh,t,5,1\n")
    written = ends(store)
    with pytest.raises(pylog.UnknownTopicOrPartitionError, match="partition 5 of"):
        pylog.import_offsets(store, tmp_path / "bad.csv")
    (tmp_path / "bad.csv").write_text('g,t,0,9\n"",t,0,1\n')
    with pytest.raises(InvalidArgumentError, match="name is empty"):
        pylog.import_offsets(store, tmp_path / "bad.csv")
    (tmp_path / "bad.csv").write_text("g,t,0,9\nh,t,x,1\n")
    with pytest.raises(InvalidArgumentError, match="line 2: the partition 'x'"):
        pylog.import_offsets(store, tmp_path / "bad.csv")
    assert ends(store) == written


def test_an_offset_outside_of_the_log_is_clamped_in_a_file_too(store: Store, tmp_path: Path) -> None:
    (tmp_path / "plan.csv").write_text("t,0,99\nt,1,0\n")
    plan = store.group("g").reset(from_file=tmp_path / "plan.csv")
    assert plan.partitions == (PlannedOffset(T0, 10, None, 99, "beyond end"), PlannedOffset(T1, 4, None, 0, "before start"))


# ---- members of pylog --------------------------------------------------------------------------------------------------------


def joined(store: Store, topics: list[str]) -> GroupMember:
    member = member_of(store, "g", MemberOptions(client_id="c"))
    member.subscribe(topics)
    while (event := member.poll()) is not None:
        assert isinstance(event, PartitionsAssigned)
    return member


def test_a_member_at_work_is_described_and_keeps_its_group_from_being_changed(store: Store) -> None:
    store.offsets.commit("g", {T0: 3, U0: 0})
    member = joined(store, ["t"])
    found = store.group("g").describe()
    assert (found.type, found.state, found.protocol_type, found.epoch) == ("Consumer", "Stable", "consumer", member.epoch)
    assert found.assignor == "range"
    (described,) = found.members
    assert (described.member_id, described.client_id, described.assignment) == (member.member_id, "c", (T0, T1))
    assert [(each.partition, each.offset, each.consumer) for each in found.partitions] == [
        (T0, 3, described),
        (T1, None, described),
        (U0, 0, None),
    ]
    written = ends(store)
    group = store.group("g")
    for change in (group.delete, lambda: group.reset("earliest"), lambda: group.reset("earliest", scope="u", dry_run=True)):
        with pytest.raises(NonEmptyGroupError, match=f"'g' has active members [(]1, such as {member.member_id}"):
            change()
    with pytest.raises(pylog.GroupSubscribedToTopicError, match="read t; close"):
        group.delete_offsets(["u", T0])
    assert ends(store) == written
    assert group.delete_offsets("u") == {U0}
    member.leave()
    assert group.describe().state == "Empty"
    assert group.reset("earliest").offsets == {T0: 0}
    group.delete()
    assert store.groups() == []


def test_only_members_commit_for_a_group_with_active_members(store: Store) -> None:
    member = joined(store, ["t"])
    written = ends(store)
    with pytest.raises(NonEmptyGroupError, match=f"'g' has active members [(]1, such as {member.member_id}"):
        store.offsets.commit("g", {U0: 0})
    assert ends(store) == written
    store.offsets.commit("other", {U0: 0})
    member.leave()
    store.offsets.commit("g", {U0: 0})
    assert store.offsets.position("g", U0) == 0


def test_a_consumer_that_goes_on_after_a_reset_reads_from_there(store: Store) -> None:
    joined(store, ["t"]).leave()
    store.group("g").reset(7, scope="t")
    member = member_of(store, "g")
    member.subscribe(["t"])
    event = member.poll()
    assert isinstance(event, PartitionsAssigned)
    assert {place: each and each.offset for place, each in event.partitions.items()} == {T0: 7, T1: 7}
    member.leave()


def test_only_a_held_slot_shows_that_a_member_is_at_work() -> None:
    slots = [MemberSlot(True, "a"), MemberSlot(False, "b"), MemberSlot(True, "x"), MemberSlot(False)]
    assert living_members({"a", "b", "c"}, slots) == {"a"}
    assert living_members({"a", "b", "c"}, [*slots, MemberSlot(True)]) == {"a", "b", "c"}  # anybody's


def test_offsets_of_a_group_whose_members_all_died_expire(fs: MemoryFileSystem) -> None:
    with opened(fs) as store:
        store.create_topic("t")
        store.offsets.commit("g", {T0: 0})
        joined(store, ["t"])
        assert store.offsets.expire(FAR_AHEAD) == 0
        left = fs.image(durable=False)
    with opened(MemoryFileSystem(image=left)) as store:  # its process is gone, and the lock of its slot with it
        assert store.offsets.expire(FAR_AHEAD) == 1
        assert store.groups() == []


def test_a_member_that_died_is_put_out_by_a_reset(fs: MemoryFileSystem) -> None:
    with opened(fs) as store:
        store.create_topic("t")
        store.log("t").append_many([b"x"] * 5)
        lost = joined(store, ["t"])
        left = fs.image(durable=False)
    with opened(MemoryFileSystem(image=left)) as store:  # its process is gone, and the lock of its slot with it
        assert [each.member_id for each in store.group("g").describe().members] == [lost.member_id]
        assert store.group("g").reset("latest", scope="t").offsets == {T0: 5}
        assert (store.group("g").describe().state, store.group("g").describe().members) == ("Empty", ())


# ---- many partitions -----------------------------------------------------------------------------------------------------


@pytest.mark.pair("groups", "truncation", "delete_records", "roll", "second process")
@pytest.mark.parametrize("mode", ["r", "rw"])
def test_starts_and_ends_are_those_of_the_logs_whatever_happened_to_them(tmp_path: Path, mode: str) -> None:
    with pylog.open(tmp_path) as writer, pylog.open(tmp_path, mode) as store:
        writer.create_topic("t", partition_count=6, segment_bytes=300)
        places = [TopicPartition("t", number) for number in range(6)]
        for number in range(5):
            writer.log("t", number).append_many([b"x"] * 5)

        def check() -> None:
            found = {place: (writer.log(*place).start_offset, writer.log(*place).end_offset) for place in places}
            assert store.start_and_end_offsets(places) == found

        check()
        writer.log("t", 0).append_many([b"more"] * 7)
        writer.log("t", 1).delete_records(3)
        writer.log("t", 2).truncate(2)
        for _ in range(9):
            writer.log("t", 3).append(bytes(100))  # rolls
        writer.log("t", 4).delete_records(5)
        check()
        store.log("t", 0)  # open from now on
        writer.log("t", 0).truncate(1)
        check()
        gone = [TopicPartition("t", 6), TopicPartition("other", 0)]
        assert store.start_and_end_offsets(gone) == dict.fromkeys(gone)
        writer.delete_topic("t")
        assert store.start_and_end_offsets(places) == dict.fromkeys(places)


def test_a_log_that_was_not_closed_cleanly_is_opened_to_say_where_it_ends() -> None:
    fs = MemoryFileSystem()
    with opened(fs) as store:
        store.create_topic("t")
        store.log("t").append_many([b"x"] * 5)
        image = fs.image(durable=False)
    with opened(MemoryFileSystem(image=image), mode="r") as store:
        assert store.start_and_end_offsets([T0]) == {T0: (0, 5)}


@pytest.mark.slow
def test_a_description_opens_no_log_of_a_store_that_was_closed_cleanly(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pylog.open(tmp_path) as store:
        store.create_topic("t", partition_count=30)
        for number in range(30):
            store.log("t", number).append_many([b"x"] * 5)
        store.offsets.commit("g", {("t", number): 3 for number in range(30)})
    with pylog.open(tmp_path, "r") as store:
        store.offsets.fetch("g")
        asked: list[tuple[Any, ...]] = []
        log = LogManager.log
        monkeypatch.setattr(LogManager, "log", lambda self, *given: asked.append(given) or log(self, *given))
        assert store.group("g").lag() == {TopicPartition("t", number): 2 for number in range(30)}
        assert [given for given in asked if given[0] == "t"] == []
