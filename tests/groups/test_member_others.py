"""Members and what is not theirs: static members, what brokers wrote, bad arguments, and stores that end under them."""

from __future__ import annotations

import contextlib
import gc
from pathlib import Path
from typing import Any

import pytest

import pylog
from pylog import OffsetsConfig
from pylog.clock import ManualClock, SystemClock
from pylog.fs import OsFileSystem
from pylog.groups.member import GroupMember, PartitionsAssigned
from pylog.groups.member_options import MemberOptions
from pylog.groups.members_file import MEMBERS_FILE, MembersFile
from pylog.log.maintenance import trimmer
from pylog.offsets.schema import OFFSETS_TOPIC
from pylog.offsets.store import offset_manager_of
from pylog.store import Store
from pylog.testing import MemoryFileSystem
from support.engines import writer_of
from support.golden import data as golden_data
from support.groups import joining
from support.groups.joining import HEARTBEAT_MS, T0, T1, T2, T3, Joining, dies, fenced, settled
from support.groups.members import group_state_of, member_of
from support.refusals import refused_in_a_child

clock = pytest.fixture(joining.clock)
fs = pytest.fixture(joining.fs)
store = pytest.fixture(joining.store)
joining = pytest.fixture(joining.joining)


# ---- assignors and static members --------------------------------------------------------------------------------------------


def test_a_member_without_a_common_assignor_is_refused_and_the_others_go_on(joining: Joining) -> None:
    one, two = joining(assignors=("range", "sticky")), joining(assignors=("roundrobin",))
    settled(one)
    with pytest.raises(pylog.InconsistentGroupProtocolError, match="no assignor in common"):
        two.poll()
    assert settled(one) == []
    assert two.member_id == ""
    one.leave()
    assert len(settled(two)) == 1


def test_the_assignor_is_one_that_all_have(joining: Joining) -> None:
    one, two = joining(assignors=("sticky", "roundrobin")), joining(assignors=("roundrobin", "sticky"))
    three = joining(assignors=("roundrobin",))
    settled(one, two, three)
    expected = [{T0, T3}, {T1}, {T2}]
    ordered = sorted([one, two, three], key=lambda member: member.member_id)
    assert [member.assignment for member in ordered] == expected


def test_a_static_member_that_comes_back_goes_on_where_it_was_without_a_rebalance(clock: ManualClock, joining: Joining) -> None:
    first, other = joining(group_instance_id="i"), joining()
    settled(first, other)
    had, epoch = first.assignment, other.epoch
    first.leave()
    clock.advance(HEARTBEAT_MS)
    assert settled(other) == []
    again = joining(group_instance_id="i")
    assert settled(again, other) == [PartitionsAssigned(dict.fromkeys(sorted(had)))]
    assert (again.epoch, other.epoch) == (epoch, epoch)


def test_a_static_member_that_stays_away_is_put_out_after_its_session_timeout(clock: ManualClock, joining: Joining) -> None:
    first, other = joining(group_instance_id="i", session_timeout_ms=20_000), joining()
    settled(first, other)
    first.leave()
    fenced(clock, other, ms=20_000)
    assert other.assignment == {T0, T1, T2, T3}


def test_a_second_static_member_of_the_same_name_is_refused_while_the_first_lives(joining: Joining) -> None:
    first, second = joining(group_instance_id="i"), joining(group_instance_id="i")
    settled(first)
    with pytest.raises(pylog.UnreleasedInstanceIdError, match="group_instance_id='i' that is running"):
        second.poll()
    dies(first)
    assert len(settled(second)) == 1
    with pytest.raises(pylog.FencedMemberError):
        first.commit({T0: 1})


@pytest.mark.sampled(3)
@pytest.mark.parametrize("left", [False, True])
@pytest.mark.parametrize(
    ("options", "refusal"),
    [
        ({"group_instance_id": "i"}, pylog.UnreleasedInstanceIdError),
        ({"group_instance_id": "j", "assignors": ("range",)}, pylog.InconsistentGroupProtocolError),
    ],
)
def test_a_member_refused_for_an_absent_static_member_joins_after_that_members_session_timeout(
    clock: ManualClock, joining: Joining, options: dict[str, Any], refusal: type[pylog.PylogError], left: bool
) -> None:
    """Each attempt has seen what the one before it saw; otherwise no member would ever be absent for long."""
    first, second = joining(group_instance_id="i", session_timeout_ms=20_000), joining(**options)
    settled(first)
    if left:
        first.leave()
    waited = 0
    while not second.member_id:
        with contextlib.suppress(refusal):
            second.poll()
        clock.advance(500)
        waited += 500
        assert waited < 22_000
    assert waited > 20_000 or (left and refusal is pylog.UnreleasedInstanceIdError)
    settled(second)
    assert second.assignment == {T0, T1, T2, T3}


# ---- what others wrote -------------------------------------------------------------------------------------------------------


@pytest.mark.sampled(5)
@pytest.mark.parametrize("version", ["3.9.1", "4.3.0"])
@pytest.mark.parametrize("group", ["g-classic", "g-static", "g-consumer", "g-consumer-static", "g-left"])
def test_a_brokers_members_are_dead_and_a_member_goes_on_from_what_they_committed(
    version: str, group: str, tmp_path: Path
) -> None:
    path = golden_data.case(version, "groups").copy(tmp_path / "copy")
    with pylog.open(path) as store:
        committed = {place: each.offset for place, each in store.offsets.fetch(group).items() if place.topic == "gt"}
        member = member_of(store, group)
        member.subscribe(["gt"])
        event = member.poll()
        assert isinstance(event, PartitionsAssigned)
        assert {place.partition for place in event.partitions} == {0, 1, 2, 3}
        assert {place: each.offset for place, each in event.partitions.items() if each is not None} == committed
        assert member.poll() is None
        assert len(group_state_of(member).members) == 1
        member.commit(dict.fromkeys(committed, 0))
        member.leave()


def test_partitions_with_an_open_transaction_of_the_group_are_taken_when_it_has_ended(tmp_path: Path) -> None:
    with pylog.open(golden_data.case("4.3.0", "txn").copy(tmp_path / "copy")) as store:
        pending = store.offsets.pending("g-txn-open")
        member = member_of(store, "g-txn-open")
        member.subscribe({place.topic for place in pending})
        event = member.poll()
        assert isinstance(event, PartitionsAssigned)
        assert pending
        assert not pending & event.partitions.keys()
        assert [member.poll(), member.poll()] == [None, None]
        store.offsets.delete("g-txn-open")
        event = member.poll()
        assert isinstance(event, PartitionsAssigned)
        assert set(event.partitions) == pending
        member.leave()


def test_an_unreadable_record_of_the_group_does_not_prevent_a_join(store: Store, joining: Joining) -> None:
    store.offsets.commit("g", {T0: 3})
    for key, value in ((b"\0\3\0\1g", b"\0\0"), (b"\0\5\0\1g\0\1m", b"\0\0nonsense"), (b"\0\10\0\1g\0\1m", b"")):
        offset_manager_of(store.offsets).with_partition(
            "g", lambda there, key=key, value=value: there.append([(key, value)], 0, None)
        )
    event = joining().poll()
    assert isinstance(event, PartitionsAssigned)
    assert event.partitions[T0] is not None
    assert sum(count for count, _ in store.offsets.skipped_records().values()) == 3


def test_a_group_that_all_have_left_is_deleted_with_its_records_in_kafkas_order(store: Store, joining: Joining) -> None:
    member = joining()
    settled(member)
    member.commit({T0: 3})
    assert store.offsets.delete("g") == {T0}
    assert store.offsets.groups() == ["g"]  # which has a member
    member.leave()
    end = offsets_end(store)
    store.offsets.delete("g")
    assert store.offsets.groups() == []
    assert tombstones_from(store, end) == [6, 4, 3]


def test_a_group_that_all_have_left_expires_with_its_offsets(store: Store, clock: ManualClock, joining: Joining) -> None:
    member = joining()
    settled(member)
    member.commit({T0: 3})
    clock.advance(10_080 * 60_000)
    assert store.offsets.expire() == 0  # a member is there
    member.leave()
    assert store.offsets.expire() == 1
    assert store.offsets.groups() == []
    assert len(settled(joining())) == 1


def offsets_end(store: Store) -> dict[int, int]:
    return {number: store.log(OFFSETS_TOPIC, number).end_offset for number in range(2)}


def tombstones_from(store: Store, start: dict[int, int]) -> list[int]:
    """The kinds of the records since then, all of which delete something."""
    found = [record for number, offset in start.items() for record in store.log(OFFSETS_TOPIC, number).records(start=offset)]
    assert all(record.value is None for record in found)
    return [record.key[1] for record in found if record.key is not None]


# ---- arguments, ends ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"session_timeout_ms": 0}, "session_timeout_ms=0"),
        ({"heartbeat_interval_ms": 30_000}, "not less than half of session_timeout_ms=45000"),
        ({"max_poll_interval_ms": True}, "max_poll_interval_ms=True"),
        ({"assignors": ()}, "are not some of range, roundrobin"),
        ({"assignors": ("mine",)}, "are not some of range, roundrobin"),
        ({"client_id": 7}, "client_id=7 is not text"),
        ({"group_instance_id": ""}, "group_instance_id='' is not text"),
    ],
)
def test_options_out_of_their_range_are_refused(options: Any, told: str) -> None:
    with pytest.raises(pylog.InvalidArgumentError, match=told):
        MemberOptions(**options)


def test_groups_and_topics_without_a_name_are_refused(store: Store, fs: MemoryFileSystem) -> None:
    for group in ("", "x" * 40_000, None):
        with pytest.raises(pylog.InvalidArgumentError):
            member_of(store, group)  # type: ignore[arg-type]
    for topics in ([], "t", ["a/b"]):
        with pytest.raises(pylog.InvalidArgumentError):
            member_of(store, "g").subscribe(topics)
    with pylog.open("/s", mode="r", fs=fs) as reading, pytest.raises(pylog.ReadOnlyError):
        member_of(reading, "g")


def test_a_closed_store_has_no_members_and_their_slots_are_free(tmp_path: Path) -> None:
    store = pylog.open(tmp_path / "s", offsets=OffsetsConfig(topic_num_partitions=1))
    store.create_topic("t")
    member = member_of(store, "g", MemberOptions(heartbeat_interval_ms=10, session_timeout_ms=100))
    member.subscribe(["t"])
    member.poll()
    store.close()
    with pytest.raises(pylog.ClosedError):
        member.poll()
    assert wait_until_free(tmp_path)
    member.leave()


def wait_until_free(path: Path) -> bool:
    """Whether a slot is let go of by a thread within some seconds."""
    file = MembersFile(OsFileSystem(), str(path / "s" / f"{OFFSETS_TOPIC}-0" / MEMBERS_FILE))
    try:
        for _ in range(5000):
            if not any(slot.locked for slot in file.slots()):
                return True
            SystemClock().sleep(0.001)
        return False
    finally:
        file.close()


@pytest.mark.slow
def test_an_unclosed_consumer_leaves_when_it_is_garbage_collected(tmp_path: Path) -> None:
    with pylog.open(tmp_path / "s", offsets=OffsetsConfig(topic_num_partitions=1)) as store:
        store.create_topic("t")
        member: GroupMember | None = member_of(store, "g", MemberOptions(heartbeat_interval_ms=10, session_timeout_ms=100))
        assert member is not None
        member.subscribe(["t"])
        member.poll()
        member = None
        gc.collect()
        assert wait_until_free(tmp_path)


def test_a_forked_child_has_no_member_and_does_not_end_its_parents(tmp_path: Path) -> None:
    with pylog.open(tmp_path / "s", offsets=OffsetsConfig(topic_num_partitions=1)) as store:
        store.create_topic("t")
        member, other = member_of(store, "g"), member_of(store, "g")
        for each in (member, other):
            each.subscribe(["t"])
        settled(member, other)
        calls = member.poll, lambda: member.commit({("t", 0): 0}), lambda: member.acknowledge_revocation([])
        assert refused_in_a_child(*calls, last=member.leave) == 3
        assert settled(member, other) == []
        for each in (member, other):
            each.leave()


def test_the_state_is_read_from_the_start_again_when_the_log_was_cut(store: Store, clock: ManualClock, joining: Joining) -> None:
    one = joining()
    settled(one)
    number = offset_manager_of(store.offsets).with_partition("g", lambda there: int(there.directory.rpartition("-")[2]))
    log = store.log(OFFSETS_TOPIC, number)
    end = log.end_offset
    two = joining()
    settled(one, two)
    trimmer.truncate(writer_of(log), end)  # a power loss took what was not synced
    assert settled(one, two)
    assert len(one.assignment) == len(two.assignment) == 2
