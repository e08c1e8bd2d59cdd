"""`pylog topics`, `describe`, `create`, `config`, `delete`."""

from __future__ import annotations

from pathlib import Path

import pytest

import pylog
from support.cli import call

# ---- topics ------------------------------------------------------------------------------------------------------------------


def test_topics_are_listed_with_what_they_hold(shop: Path) -> None:
    done = call("topics", shop)
    assert done.code == 0
    assert not done.complaints
    assert done.lines[0].split() == ["TOPIC", "PARTITIONS", "OFFSETS", "BYTES", "POLICY", "RETENTION"]
    assert [line.split()[:3] for line in done.lines[2:]] == [["old", "1", "3"], ["orders", "2", "5"], ["prices", "1", "3"]]
    assert "\t" not in done.text
    assert len({line.index(policy) for line, policy in zip(done.lines[2:], ("delete", "delete", "compact"), strict=True)}) == 1


def test_topics_as_json_are_numbers_and_names(shop: Path) -> None:
    orders = call("topics", shop, "--json").json["topics"][2]
    with pylog.open(shop, mode="r") as store:
        size = sum(store.log("orders", number).size_between(0, 10) for number in range(2))
    more = {"errors": [], "cleanup_policy": "delete", "retention_ms": -1, "retention_bytes": -1}
    assert orders == {"topic": "orders", "partitions": 2, "offsets": 5, "bytes": size, "damaged_partitions": [], **more}


def test_topics_and_describe_show_which_records_retention_deletes(tmp_path: Path) -> None:
    with pylog.open(tmp_path / "d") as store:
        store.create_topic("default")
        store.create_topic("kept", retention_ms=-1)
        store.create_topic("keyed", cleanup_policy="compact")
        store.create_topic("small", retention_bytes=4096, retention_ms=3_600_000)
    shown = {line.split()[0]: " ".join(line.split()[5:]) for line in call("topics", tmp_path / "d").lines[1:]}
    assert shown == {"default": "7 days", "kept": "unlimited", "keyed": "unlimited", "small": "1 hour, 4096 bytes"}
    facts = [line for line in call("describe", tmp_path / "d", "default").lines if line.startswith("retention")]
    assert facts == ["retention  records are deleted after 7 days"]


def test_sizes_are_rounded_for_people_only(shop: Path) -> None:
    assert " B " in call("topics", shop, terminal=True).text
    assert " B " not in call("topics", shop).text


def test_a_directory_that_is_not_there_is_one_sentence_and_code_1(tmp_path: Path) -> None:
    done = call("topics", tmp_path / "nothing")
    assert done == (1, b"", f"pylog: there is no directory {tmp_path}/nothing; give the path of an existing one\n")


# ---- describe ----------------------------------------------------------------------------------------------------------------


def test_a_topic_is_described_with_its_partitions(shop: Path) -> None:
    done = call("describe", shop, "orders")
    assert done.lines[0].split() == ["topic", "orders"]
    assert done.lines[2].split() == ["options", "retention.ms=-1"]
    assert [line.split()[:5] for line in done.lines[6:]] == [["0", "0", "4", "4", "1"], ["1", "0", "1", "1", "1"]]


def test_segments_are_described_when_asked_for_and_in_json_always(shop: Path) -> None:
    lines = call("describe", shop, "prices", "--segments").lines
    assert [line.split()[-1] for line in lines[-3:]] == ["sealed", "sealed", "active"]
    (partition,) = call("describe", shop, "prices", "--json").json["partitions"]
    assert [(each["base_offset"], each["end_offset"]) for each in partition["segments"]] == [(0, 1), (1, 2), (2, 3)]
    assert {each["largest_timestamp"] for each in partition["segments"]} == {"2024-01-31T12:00:00.000Z"}
    assert partition["bytes"] == sum(each["bytes"] for each in partition["segments"])


def test_the_stable_offset_stands_before_an_open_transaction() -> None:
    from support.golden.data import case

    golden = case("4.3.0", "txn")
    done = call("describe", golden.log_directory, "txn", "--json").json["partitions"][0]
    with pylog.open(golden.log_directory, mode="r") as store:
        assert done["stable_offset"] == store.log("txn", 0).stable_offset


def test_an_unknown_topic_is_named_with_those_that_there_are(shop: Path) -> None:
    done = call("describe", shop, "ordres")
    assert done.code == 1
    assert "has no topic 'ordres'; did you mean orders?" in done.complaints


# ---- create ------------------------------------------------------------------------------------------------------------------


def test_a_topic_is_made_and_its_directory_too(tmp_path: Path) -> None:
    done = call("create", tmp_path / "new", "orders", "--partitions", 3, "-c", "retention.ms=-1", "-c", "segment_bytes=1000")
    assert done == (0, b"Created topic orders with 3 partitions.\n", "")
    with pylog.open(tmp_path / "new", mode="r") as store:
        topic = store.topic("orders")
        assert (topic.partition_count, topic.config.retention_ms, topic.config.segment_bytes) == (3, -1, 1000)


def test_a_topic_is_made_with_a_json_answer(tmp_path: Path) -> None:
    made = call("create", tmp_path / "new", "prices", "--config", "cleanup.policy=compact", "--json").json
    assert made["id"]
    assert made | {"id": ""} == {"topic": "prices", "id": "", "partitions": 1, "config": {"cleanup.policy": "compact"}}


@pytest.mark.parametrize(
    ("arguments", "code", "told"),
    [
        (["orders"], 1, "exists already"),
        (["or/ders"], 2, "is not a topic name"),
        (["new", "--config", "retention.mss=1"], 2, "unknown topic option 'retention.mss'; did you mean retention.ms?"),
        (["new", "--config", "retention.ms"], 2, "is not option=value"),
        (["new", "--config", "retention.ms=soon"], 2, "retention.ms='soon' is not a number"),
        (["new", "--config", "retention.ms=-2"], 2, "is not an int from -1"),
        (["new", "--partitions", "0"], 2, "partitions=0"),
        (["new", "--partitions", "many"], 2, "--partitions"),
    ],
)
def test_a_topic_that_cannot_be_made_is_refused(shop: Path, arguments: list[str], code: int, told: str) -> None:
    before = sorted(path.name for path in shop.iterdir())
    done = call("create", shop, *arguments)
    assert (done.code, done.output) == (code, b"")
    assert told in done.complaints
    with pylog.open(shop, mode="r") as store:
        assert "new" not in store.topics()
    assert set(before) <= {path.name for path in shop.iterdir()}


# ---- config ------------------------------------------------------------------------------------------------------------------


def test_options_are_shown_under_kafkas_names(shop: Path) -> None:
    rows = [line.split() for line in call("config", shop, "orders").lines]
    assert ["retention.ms", "-1", "yes"] in rows
    assert ["segment.bytes", "1073741824", "no"] in rows


def test_options_are_changed_and_reset_and_the_others_stay(shop: Path) -> None:
    changed = call(
        "config", shop, "orders", "--set", "segment.ms=5000", "-s", "durability=os", "--reset", "retention.ms", "--json"
    )
    assert changed.json["config"]["segment.ms"] == 5000
    with pylog.open(shop, mode="r") as store:
        assert store.topic("orders").config.changed() == {"segment_ms": 5000, "durability": "os"}
        assert store.topic("prices").config.changed() == {"cleanup_policy": "compact", "segment_bytes": 100}


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--set", "segment.ms=0"], "segment_ms=0"),
        (["--set", "nothing=0"], "unknown topic option"),
        (["--reset", "nothing"], "unknown topic option"),
        (["--set", "segment.ms=5", "--reset", "segment.ms"], "--set and --reset both name"),
    ],
)
def test_a_change_that_cannot_be_is_refused(shop: Path, arguments: list[str], told: str) -> None:
    done = call("config", shop, "orders", *arguments)
    assert (done.code, done.output) == (2, b"")
    assert told in done.complaints
    with pylog.open(shop, mode="r") as store:
        assert store.topic("orders").config.changed() == {"retention_ms": -1}


def test_no_command_but_create_and_copy_makes_a_directory(tmp_path: Path) -> None:
    for arguments in (["config", "--set", "segment.ms=5"], ["produce"], ["delete", "--yes"], ["compact", "--yes"]):
        assert call(arguments[0], tmp_path / "typo", "orders", *arguments[1:]).code == 1
    assert not (tmp_path / "typo").exists()


# ---- delete ------------------------------------------------------------------------------------------------------------------


def test_topics_are_deleted_when_that_is_confirmed(shop: Path) -> None:
    done = call("delete", shop, "orders", "old", "--yes")
    assert done[:2] == (0, b"Deleted topics orders, old.\n")
    assert "deletes the topics orders, old permanently: 3 partitions, 8 offsets, " in done.complaints
    with pylog.open(shop, mode="r") as store:
        assert {"orders", "old"}.isdisjoint(store.topics())


def test_deleting_answers_in_json(shop: Path) -> None:
    assert call("delete", shop, "orders", "orders", "--yes", "--json").json == {"deleted": ["orders"], "failed": {}}


def test_without_yes_and_without_a_person_nothing_is_deleted(shop: Path) -> None:
    done = call("delete", shop, "orders")
    assert (done.code, done.output) == (2, b"")
    assert "nothing was done; give --yes" in done.complaints
    with pylog.open(shop, mode="r") as store:
        assert "orders" in store.topics()


@pytest.mark.parametrize(("answer", "code"), [(b"y\n", 0), (b"YES\n", 0), (b"n\n", 1), (b"\n", 1), (b"", 1)])
def test_a_person_is_asked(shop: Path, answer: bytes, code: int) -> None:
    done = call("delete", shop, "orders", stdin=answer, terminal=True)
    assert done.code == code
    assert "Continue? [y/N] " in done.complaints
    with pylog.open(shop, mode="r") as store:
        assert ("orders" in store.topics()) == (code == 1)


def test_a_topic_that_is_gone_already_is_told_of_and_the_others_are_deleted(shop: Path) -> None:
    """The same command again, behind one that was killed halfway, finishes it."""
    done = call("delete", shop, "nothing", "orders", "--yes")
    assert done[:2] == (1, b"Deleted topic orders.\n")
    assert "Topic 'nothing' cannot be deleted: " in done.complaints
    assert done.complaints.index("nothing") < done.complaints.index("This deletes the topic orders"), "before anybody is asked"
    with pylog.open(shop, mode="r") as store:
        assert "orders" not in store.topics()
    again = call("delete", shop, "nothing", "orders", "--yes", "--json")
    assert (again.code, again.json["deleted"], sorted(again.json["failed"])) == (1, [], ["nothing", "orders"])
