"""One noun has one meaning over all modules, and the map in docs/ARCHITECTURE.md names modules that exist."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import CodeType
from typing import Final

import pytest

from test_tidy import LAYERS

ROOT = Path(__file__).resolve().parent.parent
SOURCES = ROOT / "src"

SHARED: Final[Mapping[str, str]] = {  # names of classes and aliases in more than one module: why
    "Answer": "a type variable, and the answer of a metrics server",
    "Bytes": "an array of bytes, for type checkers only",
    "BytesLike": "as Bytes",
    "Document": "an alias of dict in two modules of one command",
    "Image": "a public class of pylog.testing, and the state of a partition of committed offsets",
    "Ints": "an array of integers, for type checkers only",
    "Longs": "as Ints",
    "Numbers": "as Ints",
    "Offsets": "offsets by partition: of a commit, and of a checkpoint file",
    "PathLike": "an alias of what the standard library calls so",
    "Process": "a public class of pylog.testing, and a process of the operating system",
    "Producer": "the public class, and a producer's entry in a snapshot",
    "Result": "a type variable",
}


# Words of an earlier engine, with the plain ones. They are refused as identifiers, not in sentences.
REPLACED: Final[Mapping[str, str]] = {
    "amid": "inside, in a step",
    "at_work": "running, living",
    "glance": "fast_outline",
    "goes_on": "continues",
    "gone": "deleted",
    "in_hand": "fetched",
    "is_gone": "is_deleted",
    "look": "refresh, read, check",
    "look_at": "check_at",
    "looks": "reads",
    "mutator": "partition_writer",
    "place": "partition, position, offset, path",
    "places": "partitions, positions",
    "sight": "seen",
    "splice": "append_batches",
    "spoiled": "uncleanable",
    "standing": "identity",
    "stretch": "range, walked",
    "stretches": "walked_ranges",
    "there": "existing, current",
    "told": "message, reported",
}

# Rules whose module a Kafka engineer must find at the first guess, by words of the map: the module that the map must name.
GUESSED: Final[Mapping[str, str]] = {
    "roll by size, by time": "log/writing/rolling.py",
    "index interval": "index/builder.py",
    "sequence check of producers": "log/producer_state.py",
    "truncation of leader epochs": "directory/leader_epoch_cache.py",
    "last stable offset": "log/state.py",
    "delete horizon": "log/maintenance/delete_horizon.py",
    "group commit of appends": "log/writing/group_commit.py",
    "torn tail": "log/recovery/torn_tail.py",
    "clean shutdown": "log/recovery/clean_shutdown.py",
    "expiry of committed offsets": "offsets/expiry.py",
    "sticky assignment": "groups/sticky.py",
    "retention, also while it waits for a group": "log/maintenance/retention_policy.py",
    "transitions of a transactional id": "transactions/states.py",
    "when an open transaction of another process is aborted": "transactions/deadlines.py",
    "which marker ends an open transaction": "transactions/markers.py",
}

OF_OTHERS = {SOURCES / "pylog" / "compat" / name for name in ("kafka", "aiokafka", "confluent")}  # have names that pylog has, too


def names_of(source: str) -> set[str]:
    """Returns the classes and the aliases of types that a module defines."""
    found = set()
    for node in ast.parse(source).body:
        if isinstance(node, ast.ClassDef):
            found.add(node.name)
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            target = node.targets[0] if isinstance(node, ast.Assign) else node.target
            if isinstance(target, ast.Name) and re.match(r"_?[A-Z]", target.id) and not target.id.isupper():
                found.add(target.id)
    return found


def shared(sources: Mapping[str, str]) -> dict[str, list[str]]:
    """Returns the names that more than one module defines, with these modules."""
    homes = defaultdict(list)
    for module, source in sources.items():
        for name in names_of(source):
            homes[name].append(module)
    return {name: modules for name, modules in homes.items() if len(modules) > 1}


@pytest.mark.slow
def test_a_class_or_alias_has_a_name_of_its_own_over_all_modules():
    paths = [path for path in sorted(SOURCES.rglob("*.py")) if OF_OTHERS.isdisjoint(path.parents)]
    found = shared({str(path.relative_to(SOURCES)): path.read_text() for path in paths})
    assert {name: modules for name, modules in found.items() if name not in SHARED} == {}
    assert set(SHARED) - set(found) == set(), "no longer shared: take them out of the table"


def test_a_name_that_two_modules_define_is_found():
    sources = {"a.py": "class Part: ...\nSIZE = 1\n", "b.py": "Part = int\nSIZE = 2\n", "c.py": "from a import Part\n"}
    assert shared(sources) == {"Part": ["a.py", "b.py"]}


def identifiers(code: CodeType) -> Iterator[str]:
    """The names of functions, arguments, variables and attributes in a module, without leading underscores."""
    for name in (code.co_name, *code.co_varnames, *code.co_cellvars, *code.co_names):
        yield name.lstrip("_")
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from identifiers(constant)


@pytest.mark.slow
def test_no_identifier_is_a_word_of_the_earlier_engine():
    paths = sorted(SOURCES.rglob("*.py"))
    found = {
        (str(path.relative_to(SOURCES)), name) for path in paths for name in identifiers(compile(path.read_text(), path, "exec"))
    }
    assert {(path, name, REPLACED[name]) for path, name in found if name in REPLACED} == set()


def test_a_local_an_argument_and_an_attribute_are_identifiers():
    code = compile("def f(told):\n    place = told.gone\n    return lambda: place", "a.py", "exec")
    assert {"told", "place", "gone", "f"} <= set(identifiers(code))


def test_the_map_of_rules_names_modules_that_exist():
    page = (ROOT / "docs" / "ARCHITECTURE.md").read_text()
    rules = page.split("## Where a rule lives")[1].split("\n## ")[0]
    modules = re.findall(r"`([\w/]+\.py)`", rules)
    assert len(modules) > 15
    assert [module for module in modules if not (SOURCES / "pylog" / module).is_file()] == []


@pytest.mark.parametrize(("rule", "module"), GUESSED.items())
def test_the_map_of_rules_names_the_module_that_one_would_guess(rule: str, module: str):
    page = (ROOT / "docs" / "ARCHITECTURE.md").read_text()
    (row,) = [line for line in page.splitlines() if line.startswith(f"| {rule}")]
    assert f"`{module}`" in row.split("|")[2]


def test_each_module_is_on_the_map():
    """The commands and the modules of kafka-python have names that explain themselves, so their rooms alone are there."""
    page = (ROOT / "docs" / "ARCHITECTURE.md").read_text().split("## The house")[1].split("## Where a rule lives")[0]
    engine = SOURCES / "pylog"
    paths = [
        path for path in sorted(engine.rglob("*.py")) if path.relative_to(engine).parts[0] not in ("cli", "compat", "testing")
    ]
    names = {path.parent.name if path.stem == "__init__" else path.stem for path in paths} | {"cli", "compat", "testing"}
    assert [name for name in sorted(names) if not re.search(rf"\b{name}\b", page)] == []


def test_the_page_on_the_architecture_has_the_layers_that_are_tested():
    page = (ROOT / "docs" / "ARCHITECTURE.md").read_text()
    (line,) = [line for line in page.splitlines() if line.startswith("Imports go down only:")]
    edges = " ".join(part for part in LAYERS[0] if part != "__main__")
    below = " → ".join(f"`{' '.join(layer)}`" for layer in LAYERS[1:-1])
    assert line == f"Imports go down only: edges (`{edges}`) → {below} → leaves."
