"""Programs that use pylog are checked as their authors check them: by `mypy --strict`, with pylog's own annotations."""

from __future__ import annotations

import subprocess
import sys
import types
from dataclasses import fields
from pathlib import Path
from typing import Any, get_args, get_type_hints

import msgspec
import pytest

import pylog
from pylog.config import AlterTopicArguments, CreateTopicArguments, TopicConfig
from pylog.consumer.options import ConsumerArguments, ConsumerOptions
from pylog.producer.config import ProducerArguments, ProducerConfig
from pylog.producer.producer import Producer
from pylog.record.types import Record

ROOT = Path(__file__).resolve().parents[1]
MYPY = (sys.executable, "-m", "mypy", "--strict", "--config-file", "pyproject.toml")


@pytest.mark.slow
def test_a_strict_type_checker_finds_in_programs_what_it_should_and_nothing_else(tmp_path: Path) -> None:
    programs = sorted(map(str, (ROOT / "tests" / "typed").glob("*.py")))
    assert len(programs) > 1
    found = subprocess.run([*MYPY, "--cache-dir", tmp_path, *programs], cwd=ROOT, capture_output=True, text=True, check=False)
    assert found.returncode == 0, found.stdout


GENERIC = {"key_serializer", "value_serializer", "key_deserializer", "value_deserializer"}  # mypy compares them, in `typed/`
# An argument may have a type more than the field that keeps it, and a call may have an argument more.
WIDER: dict[type, dict[str, Any]] = {
    CreateTopicArguments: {},
    AlterTopicArguments: {field.name: None for field in fields(TopicConfig)},
    ConsumerArguments: {"partition_assignment_strategy": list[str]},
    ProducerArguments: {"durability": str},
}
MORE: dict[type, set[str]] = {
    CreateTopicArguments: {"config"},
    AlterTopicArguments: {"config"},
    ConsumerArguments: set(),
    ProducerArguments: {"acks", "compression_type"},
}


def members(hint: Any) -> set[Any]:
    """The members of a union; another type by itself."""
    return set(get_args(hint)) if isinstance(hint, types.UnionType) else {hint}


@pytest.mark.parametrize(
    ("arguments", "options"),
    [
        (CreateTopicArguments, TopicConfig),
        (AlterTopicArguments, TopicConfig),
        (ConsumerArguments, ConsumerOptions),
        (ProducerArguments, ProducerConfig),
    ],
)
def test_the_options_that_a_type_checker_sees_are_those_that_are_checked_at_run_time(arguments: type, options: type) -> None:
    seen, checked = get_type_hints(arguments), get_type_hints(options)
    names = [field.name for field in fields(options)]
    assert seen.keys() == {*names, *MORE[arguments]}
    assert [name for name in seen if name in names] == names, "the order is that of the documentation"
    wider = WIDER[arguments]
    for name in set(names) - GENERIC:
        more = {type(None) if wider[name] is None else wider[name]} if name in wider else set()
        assert members(seen[name]) == members(checked[name]) | more, name
    assert not arguments.__required_keys__  # type: ignore[attr-defined]


def test_generic_classes_are_at_run_time_what_they_were() -> None:
    record = Record("orders", 0, 1, 2, b"k", b"v", (("a", b"x"),))
    assert not hasattr(record, "__dict__")
    assert Record[str, int]("orders", 0, 1, 2, "k", 5) == Record("orders", 0, 1, 2, "k", 5)
    assert msgspec.json.decode(msgspec.json.encode(record), type=Record) == record  # its bytes are bytes again
    for made in (pylog.Consumer[str, str], Producer[str, str]):
        with pytest.raises(TypeError, match="cannot be created by calling its class; use Store"):
            made()
