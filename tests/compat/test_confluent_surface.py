"""The names of the installed confluent-kafka, its methods with their parameters, and its codes: here, or missing for a reason."""

from __future__ import annotations

import enum
import inspect
import re
from types import ModuleType
from typing import Any

import confluent_kafka
import confluent_kafka.admin
import pytest

from pylog.compat import confluent
from pylog.compat.confluent import admin

SERIALIZING = "a client around Consumer or Producer: call the serializer before produce and after poll"
SHARE = "pylog has no share groups"
MISSING = {
    "admin": "a module; import pylog.compat.confluent.admin",
    "aio": "for asyncio there is pylog.compat.aiokafka",
    "kafkatest": "confluent-kafka's own tests",
    "Messages": SHARE,
    "ShareConsumer": SHARE,
    "IllegalStateException": SHARE,
    "ConcurrentModificationException": SHARE,
    "DeserializingShareConsumer": SHARE,
    "DeserializingConsumer": SERIALIZING,
    "SerializingProducer": SERIALIZING,
    "libversion": "there is no librdkafka",
    "version": "there is no librdkafka",
    "murmur2": "a partitioner of librdkafka",
    "consistent": "a partitioner of librdkafka",
    "fnv1a": "a partitioner of librdkafka",
}
MISSING_OF = {
    "Message": {
        "delivery_count": SHARE,
        "deserialized_key": SERIALIZING,
        "deserialized_value": SERIALIZING,
    }
}
CLASSES = ("Consumer", "Producer", "Message", "TopicPartition", "KafkaError", "Node", "TopicCollection", "Uuid")


def names_of(module: ModuleType) -> set[str]:
    """The names of confluent-kafka in one of its modules: of `__all__`, else classes and constants of its own."""
    if hasattr(module, "__all__"):
        return set(module.__all__)
    return {
        name
        for name, found in vars(module).items()
        if not name.startswith("_")
        and (name.isupper() or (inspect.isclass(found) and found.__module__.startswith(("confluent_kafka", "cimpl"))))
    }


@pytest.mark.parametrize(("theirs", "ours"), [(confluent_kafka, confluent), (confluent_kafka.admin, admin)])
def test_each_name_is_there_or_missing_for_a_reason(theirs: ModuleType, ours: ModuleType) -> None:
    missing = {name for name in names_of(theirs) if not hasattr(ours, name)}
    known = MISSING.keys() if theirs is confluent_kafka else set()
    assert missing - known == set()
    assert known & set(ours.__all__) == set()


def public(kind: type) -> set[str]:
    return {name for name in dir(kind) if not name.startswith("__")}


@pytest.mark.parametrize("name", [*CLASSES, "admin.AdminClient", "admin.ConfigResource", "admin.NewTopic", "admin.NewPartitions"])
def test_each_method_and_code_is_there(name: str) -> None:
    module, _, kind = name.rpartition(".")
    theirs, ours = (getattr(each, kind) for each in ((confluent_kafka.admin, admin) if module else (confluent_kafka, confluent)))
    methods = {each for each in public(theirs) if not each.startswith("_") or kind == "KafkaError"}
    made = set(vars(ours("a", 5))) if kind in ("NewTopic", "NewPartitions", "TopicPartition") else set()
    fields = set(getattr(ours, "__annotations__", {})) | made
    assert methods - public(ours) - fields - MISSING_OF.get(kind, {}).keys() == set()
    if kind == "KafkaError":
        codes = {each for each in methods if isinstance(getattr(theirs, each), int)}
        assert {each: getattr(ours, each) for each in codes} == {each: getattr(theirs, each) for each in codes}


def parameters(found: Any) -> list[str]:
    """The parameters of a method; for one in C, those of the first line of its text."""
    try:
        given = inspect.signature(found).parameters.values()
        return [each.name for each in given if each.name != "self" and each.kind not in (each.VAR_KEYWORD, each.VAR_POSITIONAL)]
    except ValueError:
        line = re.search(r"function:: \w+\((.*?)\)", found.__doc__ or "")
        inside = re.sub(r"\(.*?\)|=[^\],]*", "", line.group(1)) if line else ""
        return [each.strip(" []") for each in inside.split(",") if each.strip(" []")]


@pytest.mark.parametrize("kind", ["Consumer", "Producer", "AdminClient"])
def test_each_method_has_the_parameters(kind: str) -> None:
    theirs, ours = (
        (confluent_kafka.admin.AdminClient, admin.AdminClient)
        if kind == "AdminClient"
        else (getattr(confluent_kafka, kind), getattr(confluent, kind))
    )
    wrong = {}
    for name in public(theirs):
        if name.startswith("_"):
            continue
        wanted, found = parameters(getattr(theirs, name)), parameters(getattr(ours, name))
        if [each for each in wanted if each not in found]:
            wrong[name] = (wanted, found)
    assert wrong == {}


def test_each_enumeration_has_the_same_members() -> None:
    for theirs, ours in ((confluent_kafka, confluent), (confluent_kafka.admin, admin)):
        for name in names_of(theirs):
            found = getattr(theirs, name, None)
            if inspect.isclass(found) and issubclass(found, enum.Enum):
                assert {each.name: each.value for each in getattr(ours, name)} == {each.name: each.value for each in found}, name
