"""Options and levels of durability: checked when they are made, plain text on disk."""

from __future__ import annotations

import dataclasses
import pickle
from typing import Any

import msgspec
import pytest

from pylog import Durability, InvalidArgumentError, TopicConfig
from pylog.config import topic_config

LEVELS = [Durability.SYNC, Durability.OS, Durability.INTERVAL(50)]


def test_levels_are_values() -> None:
    assert Durability.INTERVAL(50) == Durability.INTERVAL(50) != Durability.INTERVAL(51)
    assert len({*LEVELS, Durability.INTERVAL(50), Durability.of("sync")}) == 3
    assert all(isinstance(level, Durability) for level in LEVELS)


def test_a_level_has_a_name_and_its_interval() -> None:
    assert [(level.name, level.interval_ms) for level in LEVELS] == [("SYNC", None), ("OS", None), ("INTERVAL", 50)]
    assert [repr(level) for level in LEVELS] == ["Durability.SYNC", "Durability.OS", "Durability.INTERVAL(50)"]


def test_a_level_does_not_change() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        Durability.SYNC.name = "OS"


@pytest.mark.parametrize("level", LEVELS, ids=repr)
def test_a_level_survives_its_way_to_another_process(level: Durability) -> None:
    copy = pickle.loads(pickle.dumps(level))
    assert copy == level
    assert hash(copy) == hash(level)


@pytest.mark.parametrize("interval", [0, -1, 2**63, True, 1.5, "50", None], ids=repr)
def test_an_interval_is_a_whole_positive_number_of_milliseconds(interval: Any) -> None:
    with pytest.raises(InvalidArgumentError, match="interval_ms"):
        Durability.INTERVAL(interval)


@pytest.mark.parametrize("fields", [("ASYNC",), ("sync",), ("SYNC", 5), ("OS", 5), (None,)], ids=repr)
def test_there_are_no_other_levels(fields: tuple[Any, ...]) -> None:
    with pytest.raises(InvalidArgumentError, match=r"Durability\.SYNC, \.OS or \.INTERVAL"):
        Durability(*fields)


def test_a_level_can_be_written_as_text() -> None:
    assert [Durability.of(text) for text in ("sync", "os", "interval:50")] == LEVELS
    assert [Durability.of(level) for level in LEVELS] == LEVELS


TEXTS = [
    "",
    "SYNC",
    "async",
    "interval",
    "interval:",
    "interval:0",
    "interval:-5",
    "interval:5ms",
    "interval:٣",
    " sync",
    "sync\n",
]


@pytest.mark.parametrize("text", [*TEXTS, "interval:" + "9" * 19, "interval:" + "9" * 5000, 50, None, b"sync"], ids=ascii)
def test_other_text_is_refused(text: Any) -> None:
    with pytest.raises(InvalidArgumentError):
        Durability.of(text)


# ---- topics --------------------------------------------------------------------------------------------------------------------


def test_the_defaults_are_kafkas_and_pylogs_own_options_are_off() -> None:
    config = TopicConfig()
    assert (config.file_delete_delay_ms, config.producer_id_expiration_ms) == (60_000, 86_400_000)
    assert (config.durability, config.retention_group, config.retention_group_max_bytes) == (None, None, -1)
    assert config.changed() == {}


def test_options_that_differ_from_the_defaults_can_be_kept_as_json_and_taken_back() -> None:
    config = TopicConfig(
        durability="interval:50",
        retention_group="größe 1",
        retention_group_max_bytes=0,
        file_delete_delay_ms=0,
        producer_id_expiration_ms=1,
    )
    kept = msgspec.json.decode(msgspec.json.encode(config.changed()))
    assert len(kept) == 5
    assert topic_config(kept) == config


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("durability", "async"),
        ("durability", Durability.SYNC),
        ("durability", ""),
        ("retention_group", ""),
        ("retention_group", b"billing"),
        ("retention_group", "half a \ud83d"),
        ("retention_group_max_bytes", -2),
        ("retention_group_max_bytes", None),
        ("file_delete_delay_ms", -1),
        ("file_delete_delay_ms", 2**63),
        ("file_delete_delay_ms", True),
        ("producer_id_expiration_ms", 0),
        ("producer_id_expiration_ms", 1e9),
        ("retention_ms", -2),
        ("segment_bytes", 13),
        ("cleanup_policy", "delete,archive"),
        ("cleanup_policy", None),
        ("compression_gzip_level", 0),
    ],
    ids=ascii,
)
def test_a_value_out_of_its_range_is_refused_by_its_name(name: str, value: Any) -> None:
    with pytest.raises(InvalidArgumentError, match=name):
        topic_config({name: value})


def test_an_option_that_does_not_exist_is_refused_with_those_that_do() -> None:
    with pytest.raises(
        InvalidArgumentError, match="unknown topic option retention_hours; did you mean retention_ms or retention_group"
    ):
        topic_config({"retention_hours": 1})


def test_the_repr_of_a_topics_options_has_those_that_differ_from_their_defaults_and_makes_an_equal_one() -> None:
    config = TopicConfig(retention_ms=60_000, durability="os", cleanup_policy="compact")
    assert repr(TopicConfig()) == "TopicConfig()"
    assert repr(config) == "TopicConfig(retention_ms=60000, cleanup_policy='compact', durability='os')"
    assert eval(repr(config)) == config
