"""`topics`, `describe` and `groups list` answer from names and headers, without the engine, as the engine answers."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import pytest

import pylog
from pylog.cli import describe, groups, help_page, start, topics
from pylog.cli.run import COMMANDS as COMMANDS_BY_MODULE
from pylog.cli.unopened import unopened_answer
from support.cli import Outcome, call
from support.docs.help_page import printed
from support.golden import data as golden_data

HEAVY = {"numba", "llvmlite", "numpy", "pyarrow", "pandas", "pyspark", "pylog.store", "pylog.record.decoder"}
HEAVIER_THAN_NAMES = {*HEAVY, "msgspec", "importlib.metadata"}
COMMANDS = {
    "version": (["--version"], {*HEAVIER_THAN_NAMES, "pylog.cli.topics", "pylog.config"}),
    "help": (["--help"], HEAVIER_THAN_NAMES),
    "topics": (["topics", "shop"], {*HEAVY, "rich", "pylog.cli.cat", "pylog.offsets.image"}),
    "describe": (["describe", "shop", "orders"], {*HEAVY, "rich", "pylog.cli.cat", "pylog.offsets.image"}),
    "groups": (["groups", "list", "shop"], {*HEAVY, "rich", "pylog.cli.cat"}),
}


def filled(path: Path) -> Path:
    """A store with groups, and topics with several segments. Not a copy: the header of a copied partition is not trusted."""
    with pylog.open(path, durability=pylog.Durability.OS, offsets=pylog.OffsetsConfig(topic_num_partitions=3)) as store:
        store.create_topic("orders", partition_count=3)
        store.log("orders", 0).append_many([b"x"] * 20)
        store.log("orders", 1).append(b"y")
        store.create_topic("prices", cleanup_policy="compact", segment_bytes=100)
        store.create_topic("old", segment_bytes=100)
        for number in range(5):
            store.log("prices").append(b"%d" % number, key=b"tea")
            store.log("old").append(b"x" * 15)
        store.offsets.commit("billing", {("orders", 0): 3, ("orders", 1): 1})
        store.offsets.commit("shipping", {("orders", 0): 0})
    return path


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    return filled(tmp_path / "shop")


@pytest.fixture(scope="module")
def unchanged(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return filled(tmp_path_factory.mktemp("unopened") / "shop")


LIBRARIES = {"attr", "attrs", "cyclopts", "google_crc32c", "msgspec", "typing_extensions"}
MOST = {
    "version": (set(), 10),
    "help": (set(), 10),
    "topics": (LIBRARIES, 79),
    "describe": (LIBRARIES, 80),
    "groups": (LIBRARIES, 90),
}
PROGRAM = """
import json, sys
from pylog.cli import main
try:
    main()
finally:
    print(json.dumps(sorted(sys.modules)), file=sys.stderr)
"""


def loaded_by(arguments: list[str], directory: Path) -> set[str]:
    """Runs a command in an interpreter of its own. Returns the names of all modules that this loads."""
    command = [sys.executable, "-c", PROGRAM, *arguments]
    done = subprocess.run(command, cwd=directory, capture_output=True, text=True, check=True)
    assert done.stdout
    return set(json.loads(done.stderr))


@pytest.fixture(scope="module", params=COMMANDS)
def started(request: pytest.FixtureRequest, unchanged: Path) -> tuple[str, set[str]]:
    """A command and the modules that it loads."""
    return request.param, loaded_by(COMMANDS[request.param][0], unchanged.parent)


def test_a_command_loads_these_libraries_and_no_more_modules_of_pylog_than_this(started: tuple[str, set[str]]) -> None:
    """Bounds the time until a command begins, whatever else the machine does."""
    name, loaded = started
    libraries, most = MOST[name]
    others = {each.partition(".")[0] for each in loaded} & {"rich", "pyarrow", "numba", "docstring_parser", *LIBRARIES}
    assert others <= libraries
    assert sum(each.partition(".")[0] == "pylog" for each in loaded) <= most


def test_a_command_that_needs_names_and_sizes_only_loads_no_engine(started: tuple[str, set[str]]) -> None:
    name, loaded = started
    assert not COMMANDS[name][1] & loaded


@pytest.mark.parametrize("width", [80, 140])
def test_the_page_of_help_is_the_one_that_the_registered_commands_give(width: int) -> None:
    assert help_page.page(width) == printed(width), "run python -m support.docs.help_page"


@pytest.mark.parametrize("width", [1, 40, 57, 1000])
def test_the_page_of_help_fits_into_any_terminal_and_has_each_command(width: int) -> None:
    page = help_page.page(width)
    assert max(map(len, page.partition("Exit codes")[0].splitlines())) <= max(width, 40)
    assert {name for _, rows in help_page.PANELS for name, _ in rows} <= set(
        re.findall(r"^│ (\S+(?: \(-h\))?)", page, re.MULTILINE)
    )


@pytest.mark.sampled(6)
@pytest.mark.parametrize("name", ["topics", "describe", "groups"])
@pytest.mark.parametrize("kind", ["open elsewhere", "a broker's"])
def test_no_engine_is_loaded_for_a_store_that_is_open_or_for_a_brokers_directory(shop: Path, name: str, kind: str) -> None:
    with pylog.open(shop) if kind == "open elsewhere" else nullcontext() as store:
        if store is None:
            for header in shop.glob("*/durable-point"):
                header.unlink()
        else:
            store.log("orders").append_many([b"more"] * 10)
        loaded = loaded_by(COMMANDS[name][0], shop.parent)
    assert not HEAVY & loaded


def test_each_command_is_started_with_its_module() -> None:
    """A command that `start` does not know still works, at the price of loading all commands."""
    loaded = {name for words in start.MODULES for name in start.modules_for(words)}
    registered = {module.__name__.rpartition(".")[2] for module in COMMANDS_BY_MODULE}
    assert registered - {"completion"} <= loaded | {"groups"}


# ---- the answers are those of the engine -------------------------------------------------------------------------------------


def nothing(_path: str, _question: Any) -> None:
    """The answer at a glance, where there is none."""


@contextmanager
def glancing(how: Callable[..., Any]) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        for module in (topics, describe, groups):
            patch.setattr(module, "unopened_answer", how)
        yield


def answered(*arguments: object) -> tuple[Outcome, bool]:
    """Runs a command with the engine and without, compares, and returns the outcome and whether a glance was enough."""
    answers = []

    def noted(path: str, question: Any) -> Any:
        answers.append(unopened_answer(path, question))
        return answers[-1]

    with glancing(nothing):
        expected = call(*arguments)
    with glancing(noted):
        found = call(*arguments)
    assert found == expected
    return found, bool(answers) and answers[-1] is not None


def all_answered(directory: Path) -> list[bool]:
    """Compares the three commands on a directory; returns for which of them a glance was enough."""
    with pylog.open(directory, mode="r") as store:
        names = list(store.topics())
    lines = [("topics", directory), ("groups", "list", directory), *(("describe", directory, name) for name in names)]
    return [answered(*line)[1] for line in lines]


def test_a_glance_is_enough_for_a_store_that_was_closed_and_gives_the_engine_s_answers(unchanged: Path) -> None:
    assert all(all_answered(unchanged))


def test_the_answers_are_the_engine_s_while_a_writer_has_the_store_open(shop: Path) -> None:
    with pylog.open(shop) as store:
        store.log("orders").append_many([b"more"] * 10)
        store.offsets.commit("later", {("orders", 0): 1})
        assert all(all_answered(shop))
        assert answered("groups", "list", shop)[0].lines == ["billing", "later", "shipping"]


@pytest.mark.slow
def test_the_answers_are_the_engine_s_after_each_change_of_a_log(shop: Path) -> None:
    with pylog.open(shop, tick_interval_ms=None) as store:
        store.log("orders").delete_records(2)
        all_answered(shop)
        store.log("orders", 1).truncate(0)
        all_answered(shop)
        store.compact("prices")
        store.log("old").delete_records(2)
        all_answered(shop)
        store.offsets.delete("billing")
        assert answered("groups", "list", shop)[0].lines == ["shipping"]
        store.offsets.delete("shipping")
        assert answered("groups", "list", shop)[0].lines == []
        store.delete_topic("old")
        store.create_topic("fresh", partition_count=3)
        all_answered(shop)
    all_answered(shop)


@pytest.mark.parametrize("damage", ["cut", "flipped", "index gone", "header gone", "checkpoint", "foreign file", "log gone"])
def test_a_directory_that_is_damaged_gets_the_engine_s_answers(shop: Path, damage: str) -> None:
    for log in (*shop.glob("orders-0/*.log"), *shop.glob("__consumer_offsets-*/*.log")):
        data = log.read_bytes()
        if damage == "cut":
            log.write_bytes(data[:-5])
        elif damage == "flipped" and data:
            log.write_bytes(data[:-5] + bytes([data[-5] ^ 4]) + data[-4:])
        elif damage == "index gone":
            log.with_suffix(".index").unlink(missing_ok=True)
        elif damage == "header gone":
            (log.parent / "durable-point").unlink()
        elif damage == "foreign file":
            (log.parent / f"{9:020}.log").write_bytes(b"what")
        elif damage == "log gone":
            log.unlink()
    if damage == "checkpoint":
        (shop / "log-start-offset-checkpoint").write_bytes(b"nonsense")
    for line in (["topics", shop], ["groups", "list", shop], ["describe", shop, "orders"]):
        answered(*line)


def test_a_partition_that_is_a_link_is_named_with_and_without_the_engine(shop: Path) -> None:
    moved = shop.parent / "elsewhere"
    (shop / "orders-1").rename(moved)
    os.symlink(moved, shop / "orders-1")
    found, _ = answered("topics", shop)
    assert "is a symbolic link" in found.complaints
    assert "is a symbolic link" in answered("groups", "list", shop)[0].complaints


def test_what_is_wrong_with_a_command_line_or_a_directory_is_reported_by_the_engine(unchanged: Path) -> None:
    assert answered("describe", unchanged, "order")[0].code == 1
    assert answered("topics", unchanged / "nowhere")[0].code == 1
    assert answered("topics", unchanged / "pylog.json")[0].code == 1


SOME = (
    "txn",
    "groups",
    "unclean",
    "delete-records-mid",
    "retention-ms",
    "v0-v1-v2",
    "empty",
    "codec-zstd-plain",
    "codec-none-idem",
)


def test_brokers_directories_of_each_kind_get_the_engine_s_answers() -> None:
    directories = {each.log_directory for each in golden_data.partitions() if each.version != "3.9.1"}
    assert any(any(all_answered(path)) for path in sorted(directories) if path.name in SOME)


@pytest.mark.slow
def test_all_brokers_directories_get_the_engine_s_answers() -> None:
    for directory in sorted({each.log_directory for each in golden_data.partitions()}):
        all_answered(directory)
