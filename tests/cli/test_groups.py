"""`pylog groups`: Kafka's tables, Kafka's ways of resetting, and nothing changed without being asked."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterable
from pathlib import Path

import pytest

import pylog
from pylog.cli import groups as commands
from pylog.groups.description import GroupDescription, MemberDescription, PartitionDescription
from pylog.log_manager import LogManager
from pylog.record.types import TopicPartition
from support.cli import call


def committed(path: Path, group: str = "billing") -> dict[int, int]:
    with pylog.open(path, mode="r") as store:
        return {place.partition: each.offset for place, each in store.offsets.fetch(group).items()}


# ---- list ----------------------------------------------------------------------------------------------------------------


def test_groups_are_listed_as_kafka_lists_them(shop: Path) -> None:
    assert call("groups", "list", shop).text == "billing\nshipping\n"
    table = call("groups", "list", shop, "--type", "--state").text
    lines = [f"{'GROUP':<25} {'TYPE':<20} {'STATE':<20}", f"{'billing':<25} {'Classic':<20} {'Empty':<20}"]
    assert table.splitlines()[:2] == lines
    found = call("groups", "list", shop, "--json").json["groups"]
    assert found[1] == {"group": "shipping", "type": "Classic", "state": "Empty"}


# ---- describe ------------------------------------------------------------------------------------------------------------


def test_offsets_are_described_in_the_bytes_of_kafkas_tool(shop: Path) -> None:
    """The sample of groups-and-transactions 8.2, with this group's names."""
    done = call("groups", "describe", shop, "billing")
    assert done.text == (
        "\nGROUP           TOPIC           PARTITION  CURRENT-OFFSET  LOG-END-OFFSET  LAG             CONSUMER-ID     HOST"
        "            CLIENT-ID\n"
        "billing         orders          0          3               4               1               -               -"
        "               -\n"
        "billing         orders          1          1               1               0               -               -"
        "               -\n"
    )
    assert done.complaints == "\nConsumer group 'billing' has no active members.\n"


def described() -> GroupDescription:
    """A group with two members, and a partition that nobody reads."""
    places = [TopicPartition("t", number) for number in range(4)]
    one = MemberDescription("one-0123456789abcdef", "static", "client-1", "/127.0.0.1", 3, (places[2],))
    two = MemberDescription("two", None, "client-2", "/127.0.0.1", 3, (places[0], places[1]))
    readers = [two, two, one, None]
    rows = [PartitionDescription(places[at], at, None, "", 0, 9 if at else None, readers[at]) for at in range(4)]
    return GroupDescription("g", "Consumer", "Stable", "consumer", "uniform", 3, 3, (one, two), tuple(rows))


def test_the_member_with_most_partitions_comes_first_and_columns_grow_with_their_content() -> None:
    lines = commands._offsets_table(described()).splitlines()
    assert [line.split()[2] for line in lines[2:]] == ["0", "1", "2", "3"]
    assert [line.split()[6] for line in lines[2:]] == ["two", "two", "one-0123456789abcdef", "-"]
    assert lines[2].split()[4:6] == ["-", "-"]
    assert lines[1].index("HOST") == lines[1].index("CONSUMER-ID") + len("one-0123456789abcdef") + 1


def test_members_and_state_have_kafkas_columns() -> None:
    members = commands._members_table(described(), verbose=True).splitlines()
    assert members[1].split() == ["GROUP", "CONSUMER-ID", "GROUP-INSTANCE-ID", "HOST", "CLIENT-ID", "#PARTITIONS", "ASSIGNMENT"]
    assert members[2].split() == ["g", "one-0123456789abcdef", "static", "/127.0.0.1", "client-1", "1", "t(2)"]
    assert members[3].split() == ["g", "two", "-", "/127.0.0.1", "client-2", "2", "t(0,1)"]
    state = commands._state_table(described()).splitlines()
    assert state[1].split("  ")[0] == "GROUP"
    assert state[2].split() == ["g", "-", "uniform", "Stable", "2"]


def test_all_groups_are_described_if_none_is_named_and_json_has_everything(shop: Path) -> None:
    found = call("groups", "describe", shop, "--json").json["groups"]
    assert [each["group"] for each in found] == ["billing", "shipping"]
    assert found[0]["partitions"][0] == {
        "topic": "orders",
        "partition": 0,
        "offset": 3,
        "start_offset": 0,
        "end_offset": 4,
        "lag": 1,
        "leader_epoch": None,
        "metadata": "",
        "member_id": None,
        "error": None,
    }
    for option in ("--members", "--state"):
        assert call("groups", "describe", shop, option).code == 0


def test_two_tables_at_once_and_unknown_groups_are_refused(shop: Path) -> None:
    assert call("groups", "describe", shop, "--members", "--state").code == 2
    done = call("groups", "describe", shop, "nobody")
    assert (done.code, done.output) == (1, b"")
    assert "there is no group 'nobody'" in done.complaints


# ---- reset ---------------------------------------------------------------------------------------------------------------

WAYS = [
    ("--to-earliest", {0: 0, 1: 0}),
    ("--to-latest", {0: 4, 1: 1}),
    ("--to-current", {0: 3, 1: 1}),
    ("--to-offset 1", {0: 1, 1: 1}),
    ("--shift-by -2", {0: 1, 1: 0}),
    ("--to-datetime 2024-01-31T13:00:00.000", {0: 1, 1: 1}),
    ("--to-datetime 2024-01-31T14:00:00.000+00:30", {0: 2, 1: 1}),
    ("--by-duration PT1H", {0: 4, 1: 1}),
    ("--topic orders:1 --to-earliest", {0: 3, 1: 0}),
    ("--topic orders --to-earliest", {0: 0, 1: 0}),
]


@pytest.mark.sampled(3)
@pytest.mark.parametrize(("options", "wanted"), WAYS)
def test_a_group_is_reset_in_each_of_kafkas_ways_once_that_is_said(shop: Path, options: str, wanted: dict[int, int]) -> None:
    planned = call("groups", "reset", shop, "billing", *options.split())
    assert planned.code == 0
    assert "nothing was changed; give --execute to change the offsets" in planned.complaints
    assert committed(shop) == {0: 3, 1: 1}
    done = call("groups", "reset", shop, "billing", *options.split(), "--execute")
    assert (done.code, done.output) == (0, planned.output)
    assert committed(shop) == wanted


def test_a_plan_is_printed_as_kafka_prints_it_and_what_was_adjusted_is_said(shop: Path) -> None:
    done = call("groups", "reset", shop, "billing", "--to-offset", 2)
    head = f"\n{'GROUP':<30} {'TOPIC':<30} {'PARTITION':<10} {'NEW-OFFSET':<15}"
    rows = [f"\n{'billing':<30} {'orders':<30} {number:<10} {offset:<15}" for number, offset in ((0, 2), (1, 1))]
    assert done.text == head + "".join(rows) + "\n"
    assert "pylog: orders-1: 2 is past the end of the log; the end is used\n" in done.complaints
    found = call("groups", "reset", shop, "billing", "--to-offset", 2, "--json").json
    assert found["executed"] is False
    assert [(each["offset"], each["wanted"], each["adjustment"]) for each in found["partitions"]] == [
        (2, None, None),
        (1, 2, "beyond end"),
    ]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("options", "code", "told"),
    [
        ("", 2, "give exactly one of --to-earliest"),
        ("--to-earliest --to-latest", 2, "give exactly one of --to-earliest"),
        ("--to-offset 1 --shift-by 1", 2, "give exactly one of --to-earliest"),
        ("--to-datetime soon", 2, "is not 'earliest', 'latest', 'current' or a time"),
        ("--by-duration long", 2, "is not a timedelta, or text"),
        ("--to-earliest --topic nothing", 1, "has no topic 'nothing'"),
        ("--to-earliest --topic orders:x", 2, "'x' is not a partition"),
        ("--from-file nothing", 2, "there is no file nothing"),
    ],
)
def test_a_reset_that_cannot_be_is_refused(shop: Path, options: str, code: int, told: str) -> None:
    done = call("groups", "reset", shop, "billing", *options.split(), "--execute")
    assert (done.code, done.output) == (code, b"")
    assert told in done.complaints
    assert committed(shop) == {0: 3, 1: 1}


def test_a_group_with_members_at_work_is_neither_reset_nor_deleted(shop: Path) -> None:
    with pylog.open(shop) as store, store.consumer("orders", group_id="billing") as consumer:
        consumer.poll(timeout_ms=5_000)
        reset = call("groups", "reset", shop, "billing", "--to-earliest", "--execute")
        deleted = call("groups", "delete", shop, "billing", "--yes")
        members = call("groups", "describe", shop, "billing", "--members").lines
    assert (reset.code, deleted.code) == (1, 1)
    assert "active members" in reset.complaints
    assert "Group 'billing' could not be deleted" in deleted.complaints
    assert members[-1].split()[-1] == "2"


# ---- files ---------------------------------------------------------------------------------------------------------------


def test_offsets_go_into_a_file_and_come_back(shop: Path, tmp_path: Path) -> None:
    assert call("groups", "export", shop, "billing").text == "orders,0,3\norders,1,1\n"
    everything = "billing,orders,0,3\nbilling,orders,1,1\nshipping,orders,0,0\n"
    assert call("groups", "export", shop).text == everything
    assert call("groups", "export", shop, "--json").json["shipping"] == [{"topic": "orders", "partition": 0, "offset": 0}]
    file = tmp_path / "all.csv"
    assert call("groups", "export", shop, "--to", file) == (0, b"", "")
    assert file.read_text() == everything
    call("groups", "reset", shop, "billing", "--to-earliest", "--execute")
    call("groups", "import", shop, file)
    assert committed(shop) == {0: 0, 1: 0}
    assert call("groups", "import", shop, file, "--execute").code == 0
    assert committed(shop) == {0: 3, 1: 1}


def test_a_file_of_one_group_is_imported_for_the_group_that_is_named(shop: Path, tmp_path: Path) -> None:
    (tmp_path / "one.csv").write_text("orders,0,2\n")
    assert call("groups", "import", shop, tmp_path / "one.csv", "--execute").code == 2  # whose?
    assert call("groups", "import", shop, tmp_path / "one.csv", "--group", "new", "--execute").code == 0
    assert committed(shop, "new") == {0: 2}


def test_a_file_that_is_none_is_named_with_its_line(shop: Path, tmp_path: Path) -> None:
    (tmp_path / "bad.csv").write_text("billing,orders,0,2\nbilling,orders,x,2\n")
    done = call("groups", "import", shop, tmp_path / "bad.csv", "--execute")
    assert done.code == 2
    assert f"{tmp_path}/bad.csv, line 2" in done.complaints
    assert committed(shop) == {0: 3, 1: 1}


# ---- delete --------------------------------------------------------------------------------------------------------------


def test_groups_are_deleted_and_those_that_cannot_be_are_named(shop: Path) -> None:
    done = call("groups", "delete", shop, "billing", "nobody", "--yes")
    assert (done.code, done.text) == (1, "Deletion of requested consumer groups ('billing') was successful.\n")
    assert "Group 'nobody' could not be deleted: there is no group" in done.complaints
    assert call("groups", "list", shop).lines == ["shipping"]
    found = call("groups", "delete", shop, "shipping", "nobody", "--yes", "--json").json
    assert found["deleted"] == ["shipping"]
    assert set(found["failed"]) == {"nobody"}


def test_offsets_of_some_partitions_are_deleted(shop: Path) -> None:
    done = call("groups", "delete-offsets", shop, "billing", "--topic", "orders:1", "--yes")
    assert done.lines[0] == "Request succeed for deleting offsets with topic orders:1 group billing"
    assert done.lines[-1].split() == ["orders", "1", "Successful"]
    assert committed(shop) == {0: 3}
    assert call("groups", "delete-offsets", shop, "billing", "--yes").code == 2
    assert call("groups", "delete-offsets", shop, "nobody", "--topic", "orders", "--yes").code == 1


@pytest.mark.parametrize("words", [["delete"], ["delete-offsets", "--topic", "orders"]])
def test_nothing_is_deleted_without_yes(shop: Path, words: list[str]) -> None:
    done = call("groups", words[0], shop, "billing", *words[1:])
    assert (done.code, done.output) == (2, b"")
    assert committed(shop) == {0: 3, 1: 1}


# ---- health ------------------------------------------------------------------------------------------------------------------


def test_health_is_code_1_when_a_group_is_not_ok_and_code_0_when_all_are(shop: Path) -> None:
    with pylog.open(shop) as store:
        store.offsets.commit("billing", {("orders", 0): 4, ("orders", 1): 1})
        store.offsets.commit("shipping", {("orders", 0): 4})
    assert call("groups", "health", shop).code == 0
    with pylog.open(shop) as store:
        store.offsets.commit("shipping", {("orders", 0): 1})
    done = call("groups", "health", shop)
    assert done.code == 1
    assert re.search(r"shipping +orders +0 +REWIND +3 +3 .*the offset went back from 4 to 1", done.text)
    assert re.search(r"billing +orders +1 +OK +0 +0 +0\.0 +steady +0\.0 +all records are read", done.text)
    assert call("groups", "health", shop, "billing").code == 0


def test_health_with_fail_above_fails_for_seconds_and_for_errors_only(shop: Path) -> None:
    with pylog.open(shop) as store:
        store.create_topic("new")
        store.log("new").append(b"x")
        store.offsets.commit("billing", {("orders", 0): 4, ("orders", 1): 1, ("new", 0): 0})
    assert call("groups", "health", shop, "billing", "--fail-above", 3600).code == 0
    assert call("groups", "health", shop, "billing", "--fail-above", 0).code == 1
    with pylog.open(shop) as store:
        store.log("orders").delete_records(2)
        store.offsets.commit("shipping", {("orders", 0): 0})
    assert call("groups", "health", shop, "shipping", "--fail-above", 1e12).code == 1  # LOST


def test_health_in_json_has_what_the_store_says(shop: Path) -> None:
    done = call("groups", "health", shop, "shipping", "--json").json
    with pylog.open(shop, mode="r") as store:
        (row,) = store.group("shipping").health().partitions
    (group,) = done["groups"]
    (found,) = group["partitions"]
    assert (group["group"], found["topic"], found["partition"]) == ("shipping", "orders", 0)
    for name in ("verdict", "offset", "lag", "lag_records", "trend", "commit_count"):
        assert found[name] == getattr(row, name)


def test_health_of_no_group_names_the_command_that_lists_them_and_a_wrong_window_is_refused(shop: Path) -> None:
    done = call("groups", "health", shop, "no")
    assert (done.code, done.complaints) == (1, f"pylog: there is no group 'no'; list them: pylog groups list {shop}\n")
    assert call("groups", "health", shop, "--window", "10m").code == 2
    assert call("groups", "health", shop, "--rules", "kafka").code == 2


def test_describing_all_groups_refreshes_each_partition_once_and_says_what_each_group_says(
    shop: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[set[TopicPartition]] = []
    before = LogManager.start_and_end_offsets

    def counted(manager: LogManager, partitions: Iterable[TopicPartition]) -> object:
        asked.append(set(partitions))
        return before(manager, asked[-1])

    monkeypatch.setattr(LogManager, "start_and_end_offsets", counted)
    found = call("groups", "describe", shop, "--json").json["groups"]
    assert asked == [{TopicPartition("orders", 0), TopicPartition("orders", 1)}]
    assert found == [
        each for name in ("billing", "shipping") for each in call("groups", "describe", shop, name, "--json").json["groups"]
    ]


@pytest.mark.damaged("a partition is removed")
def test_a_damaged_partition_hides_no_group(shop: Path) -> None:
    with pylog.open(shop) as store:
        store.offsets.commit("pricing", {("prices", 0): 0})
    shutil.rmtree(shop / "prices-0")
    names = ("billing", "pricing", "shipping")
    assert [call("groups", "describe", shop, name).code for name in names] == [0, 1, 0]
    done = call("groups", "describe", shop, "--json")
    ends = {each["group"]: each["partitions"][0]["end_offset"] for each in done.json["groups"]}
    assert (done.code, list(ends), ends["pricing"]) == (1, list(names), None)
    assert "prices-0: its end and the lags are unknown" in done.complaints
