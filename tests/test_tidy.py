"""The house is tidy: imports run down the layers, each kind of access to the outside has one door, nothing is dead or huge.

Everything is read with `ast`, nothing is imported. The rules are the tables at the top; a new exception is a line there,
with its reason. The second half of this file plants each kind of violation and sees that it is found.
"""

from __future__ import annotations

import ast
import functools
import gc
import re
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

from support.late_imports import LATE_IMPORTS
from support.long_files import ALSO_LONG, LONGEST_FIRST
from support.tiers import BROWSER, KAFKA, PROMETHEUS, SLOW, SPARK

SOURCES = Path(__file__).resolve().parent.parent / "src"

# ---- the rules -----------------------------------------------------------------------------------------------------------

# From the top of the house to its foundation. A module may import from its own layer and from those below.
LAYERS: tuple[tuple[str, ...], ...] = (
    ("__main__", "spark", "cli", "aio", "compat", "testing"),
    ("tools",),
    ("reading", "offset_files", "restoring"),
    ("opening",),
    ("store",),
    ("archived_store", "store_parts", "table_reading"),
    ("open_clients",),
    ("monitoring",),
    ("ui",),
    ("consumer",),
    ("groups",),
    ("producer",),
    ("transactions",),
    ("partitioner",),
    ("offsets",),
    ("internal_topic", "replayed_partition", "splicing"),
    ("upkeep",),
    ("archive",),
    ("log_manager",),
    ("log_opener",),
    ("archived_outlines",),
    ("archived_files", "unopened", "open_logs", "root_directory", "background_errors", "full_disk"),
    ("topics",),
    ("staging",),
    ("log",),
    ("objects",),
    ("directory",),
    ("segment",),
    ("index",),
    ("extras", "options", "snapshot"),
    ("record",),
    ("awaitables", "background", "client_thread", "dropping", "loopback", "notebook", "serializers", "skipped", "threads"),
    ("errors", "limits", "arguments", "factory_made", "config", "clock", "fs", "metrics", "text", "times", "trace", "urls"),
)
LEAVES, EDGES = LAYERS[-1], (*LAYERS[0], *LAYERS[1])
LEAVES_FOR_LEAVES = {"errors", "limits", "arguments"}  # the only ones that other leaves may stand on
FACADE = "pylog"  # may import anything, and nothing inside may import it

# What is imported, or called, in one place only: name -> (the parts of the house that may, why).
DOORS: Mapping[str, tuple[tuple[str, ...], str]] = {
    "os": (
        ("fs", "errors", "opening", "reading", "restoring"),
        "all I/O goes through fs; the others only name os.PathLike and os.fspath",
    ),
    "mmap": (("fs",), "only fs maps files"),
    "fcntl": (("fs",), "only fs locks files"),
    "shutil": (("fs", "cli"), "only fs removes trees; cli asks for the width of the terminal"),
    "open": (("fs",), "only fs opens files"),
    "time": (("clock",), "only clock.py reads time"),
    "datetime.now": (("clock",), "only clock.py reads time"),
    "obstore": (("objects",), "one module speaks to the stores of clouds"),
    "pyspark": (("spark",), "the engine must work without Spark"),
    "pickle": ((), "bytes from a file must never run code"),
    "eval": ((), "bytes from a file must never run code"),
    "exec": ((), "bytes from a file must never run code"),
}
OS_NAMES_OUTSIDE_FS = {"PathLike", "fspath"}

MODULE_LINES = 500
CLASS_LINES = 350
TEST_FILE_LINES = 600
# Lines of these count without docstrings, which are the reference that users read; each method is a call or a few.
PUBLIC_FACES = ("pylog.consumer.consumer.Consumer", "pylog.log.log.Log", "pylog.store.Store")
FUNCTION_LINES = 70
FUNCTION_SHARES: Mapping[float, int] = {0.5: 7, 0.9: 20}  # share of all functions: the lines that they have at most
FIRST_LEVEL: Mapping[str, tuple[int, int]] = {"log": (12, 35)}  # room: names at its first level, and arrows between
REASONS_TO_BE_LONG: Mapping[str, str] = {  # "pylog.room.module" or "pylog.room.module.function": why it stays in one piece
    "pylog.record.kernels.decode_records": "one loop over bytes; state handed to helpers costs a third of its speed",
    "pylog.record.compacting.index_keys": "as decode_records",
    "pylog.record.compacting.keep_records": "as decode_records",
    "pylog.record.encoding._encoder": "one loop over rows, compiled with and without headers",
    "pylog.record.encoding.encode": "one loop over rows; state handed to helpers costs a third of its speed",
}

# ---- reading -------------------------------------------------------------------------------------------------------------


def room(name: str) -> str:
    """The second word of a dotted name: `pylog.record.batch` is in `record`, the façade in none."""
    return [*name.split("."), ""][1]


class Module:
    """One source file: its dotted name, its place in the house, its syntax tree."""

    def __init__(self, name: str, source: str, *, is_package: bool = False) -> None:
        self.name = name
        self.source = source
        self.is_package = is_package
        self.tree = ast.parse(source)

    @property
    def part(self) -> str:
        """Which room of the house it is in."""
        return room(self.name)

    @property
    def package(self) -> str:
        return self.name if self.is_package else self.name.rpartition(".")[0]

    @functools.cached_property
    def imports(self) -> list[tuple[str, int]]:
        """Every name imported, as deep as it is written, with its line: `from a import b` is `a.b`."""
        found = []
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Import):
                found += [(alias.name, node.lineno) for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                above = self.package.split(".")[: None if node.level <= 1 else 1 - node.level]
                base = ".".join([*(above if node.level else []), *([node.module] if node.module else [])])
                found += [(f"{base}.{alias.name}", node.lineno) for alias in node.names]
        return found

    @property
    def named(self) -> list[str]:
        """The modules that its texts name, as `pylog.a.b` or `pylog.a.b:function`: a kernel loads its parts at its first call."""
        texts = [node.value for node in ast.walk(self.tree) if isinstance(node, ast.Constant) and isinstance(node.value, str)]
        return [text.partition(":")[0] for text in texts if re.fullmatch(r"pylog(\.\w+)+(:\w+)?", text)]


Modules = Mapping[str, Module]


def read_house(root: Path) -> dict[str, Module]:
    modules = {}
    for path in sorted(root.rglob("*.py")):
        parts = path.relative_to(root.parent).with_suffix("").parts
        is_package = parts[-1] == "__init__"
        name = ".".join(parts[:-1] if is_package else parts)
        modules[name] = Module(name, path.read_text(), is_package=is_package)
    return modules


@functools.cache
def house() -> dict[str, Module]:
    found = read_house(SOURCES / "pylog")
    gc.freeze()  # a garbage collection in a later test would walk through all trees
    return found


def targets(imported: str, modules: Modules) -> Iterator[str]:
    """The modules of ours that importing this name reaches: itself and the packages it lies in, the façade left out."""
    parts = imported.split(".")
    for end in range(2, len(parts) + 1):
        name = ".".join(parts[:end])
        if name in modules:
            yield name


def level(part: str) -> int:
    for number, layer in enumerate(LAYERS):
        if part in layer:
            return number
    raise AssertionError(f"`pylog.{part}` is in no layer: give it a place in LAYERS")


# ---- the checks: each yields what is wrong -------------------------------------------------------------------------------


def imports_upwards(modules: Modules) -> Iterator[str]:
    for module in modules.values():
        if module.name == FACADE:
            continue
        for imported, line in module.imports:
            if imported.split(".")[0] != FACADE:
                continue
            part = room(imported)
            if f"{FACADE}.{part}" not in modules and not any(name.startswith(f"{FACADE}.{part}.") for name in modules):
                if module.part not in EDGES:  # the edges are users of the façade
                    yield f"{module.name}:{line} imports the façade; import the module that has `{part}`"
            elif part == module.part:
                continue
            elif level(part) < level(module.part):
                yield f"{module.name}:{line} imports {imported}, which lies above it"
            elif module.part in LEAVES and part not in LEAVES_FOR_LEAVES:
                yield f"{module.name}:{line} imports {imported}: leaves stand on {sorted(LEAVES_FOR_LEAVES)} only"


def circles(modules: Modules) -> Iterator[str]:
    """Modules that import each other in a circle, also for types only or inside a function."""
    arrows = {name: imported_modules(module, modules) for name, module in modules.items() if name != FACADE}
    reached = {name: reachable(name, arrows) for name in arrows}
    for name in arrows:
        together = sorted(other for other in reached[name] if name in reached[other])
        if together and name == together[0]:
            yield f"{', '.join(together)} import each other in a circle"


def crowded_rooms(modules: Modules, most: Mapping[str, tuple[int, int]] = FIRST_LEVEL) -> Iterator[str]:
    """Rooms with too many names at their first level, or too many imports between these."""
    for part, (names, arrows) in most.items():
        inside = {name: module for name, module in modules.items() if name.startswith(f"{FACADE}.{part}.")}
        found = {name.split(".")[2] for name in inside}
        drawn = {
            (name.split(".")[2], other.split(".")[2])
            for name, module in inside.items()
            for other in imported_modules(module, modules)
            if other in inside and other.split(".")[2] != name.split(".")[2]
        }
        if len(found) > names or len(drawn) > arrows:
            yield f"{FACADE}.{part} has {len(found)} names and {len(drawn)} arrows; {names} and {arrows} are allowed"


def imported_modules(module: Module, modules: Modules) -> set[str]:
    """The modules whose names a module imports: of `a.b.c` the last part may be a module, or a name in `a.b`."""
    found = {[*targets(imported, modules)][-1] for imported, _ in module.imports if [*targets(imported, modules)]}
    return found - {module.name, FACADE}


def reachable(start: str, arrows: Mapping[str, set[str]]) -> set[str]:
    """The modules that one reaches from a module along the arrows, in one step or more."""
    found: set[str] = set()
    waiting = [start]
    while waiting:
        new = arrows.get(waiting.pop(), set()) - found
        found |= new
        waiting += new
    return found


def late_imports(modules: Modules) -> Iterator[str]:
    """Imports inside functions, as `LATE_IMPORTS` names them."""
    for module in modules.values():
        if module.part in EDGES or module.name == FACADE:
            continue
        for function in ast.walk(module.tree):
            if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
                for node in ast.walk(function):
                    if isinstance(node, ast.ImportFrom):
                        yield f"{module.name} -> {node.module}"
                    elif isinstance(node, ast.Import):
                        yield from (f"{module.name} -> {alias.name}" for alias in node.names)


def closed_doors(modules: Modules) -> Iterator[str]:
    for module in modules.values():
        for name, line in [*module.imports, *builtin_calls(module.tree), *os_names(module)]:
            for door, (parts, why) in DOORS.items():
                if (name == door or name.startswith(door + ".")) and module.part not in parts:
                    yield f"{module.name}:{line} uses {name}: {why}"
        if module.part != "fs":
            for name, line in os_names(module):
                if name.split(".")[1] not in OS_NAMES_OUTSIDE_FS and module.part in DOORS["os"][0]:
                    yield f"{module.name}:{line} uses {name}: {DOORS['os'][1]}"


def builtin_calls(tree: ast.AST) -> Iterator[tuple[str, int]]:
    """Calls of bare names, and `datetime.now()` in any spelling."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            if isinstance(node.func, ast.Name):
                yield node.func.id, node.lineno
            elif isinstance(node.func, ast.Attribute) and node.func.attr in ("now", "utcnow", "today"):
                value = node.func.value
                if (value.id if isinstance(value, ast.Name) else getattr(value, "attr", "")) in ("datetime", "date"):
                    yield "datetime.now", node.lineno


def os_names(module: Module) -> Iterator[tuple[str, int]]:
    """Uses of `os.<name>`, and `from os import <name>`."""
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "os":
            yield f"os.{node.attr}", node.lineno
    yield from ((name, line) for name, line in module.imports if name.startswith("os."))


def long_modules(modules: Modules, reasons: Mapping[str, str] = REASONS_TO_BE_LONG) -> Iterator[str]:
    for module in modules.values():
        lines = len(module.source.splitlines())
        if lines > MODULE_LINES and module.name not in reasons:
            yield f"{module.name} has {lines} lines, more than {MODULE_LINES}"


def long_classes(modules: Modules) -> Iterator[str]:
    for module in modules.values():
        for node in ast.walk(module.tree):
            if isinstance(node, ast.ClassDef):
                name = f"{module.name}.{node.name}"
                lines = (node.end_lineno or 0) - node.lineno + 1 - (docstring_lines(node) if name in PUBLIC_FACES else 0)
                if lines > CLASS_LINES:
                    yield f"{name} has {lines} lines, more than {CLASS_LINES}"


def docstring_lines(tree: ast.ClassDef) -> int:
    """The lines of the docstrings of a class and of its methods."""
    definitions = ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
    described = [node.body[0] for node in ast.walk(tree) if isinstance(node, definitions) and ast.get_docstring(node) is not None]
    return sum((text.end_lineno or 0) - text.lineno + 1 for text in described)


def long_functions(modules: Modules, reasons: Mapping[str, str] = REASONS_TO_BE_LONG) -> Iterator[str]:
    for module in modules.values():
        for node in ast.walk(module.tree):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                lines = body_lines(node)
                if lines > FUNCTION_LINES and f"{module.name}.{node.name}" not in reasons:
                    yield f"{module.name}:{node.lineno} {node.name} has {lines} lines, more than {FUNCTION_LINES}"


def seldom_short_functions(modules: Modules) -> Iterator[str]:
    """Half of the functions have 7 lines at most, and nine in ten have 20."""
    found = [
        body_lines(node)
        for module in modules.values()
        for node in ast.walk(module.tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    ]
    for share, most in FUNCTION_SHARES.items():
        if sum(lines <= most for lines in found) < share * len(found):
            yield f"fewer than {share:.0%} of the functions have at most {most} lines"


def body_lines(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Lines of the body, the docstring left out."""
    body = function.body
    if isinstance(body[0], ast.Expr) and isinstance(body[0].value, ast.Constant) and isinstance(body[0].value.value, str):
        body = body[1:]
    return (body[-1].end_lineno or 0) - body[0].lineno + 1 if body else 0


def dead_modules(modules: Modules) -> Iterator[str]:
    alive = {
        target
        for module in modules.values()
        for imported in [*(name for name, _ in module.imports), *module.named]
        for target in targets(imported, modules)
        if target != module.name
    }
    for module in modules.values():
        exempt = module.name == FACADE or module.is_package or module.part in EDGES
        if not exempt and module.name not in alive:
            yield f"{module.name} is imported by nothing"


# ---- the house -----------------------------------------------------------------------------------------------------------


def assert_none(complaints: Iterator[str]) -> None:
    found = sorted(set(complaints))
    assert not found, "\n" + "\n".join(found)


@pytest.mark.slow
def test_imports_run_down_the_layers_only():
    assert_none(imports_upwards(house()))


@pytest.mark.slow
def test_no_modules_import_each_other_in_a_circle_whatever_hides_it():
    assert_none(circles(house()))


@pytest.mark.slow
def test_the_first_level_of_a_room_shows_few_names_and_few_arrows():
    assert_none(crowded_rooms(house()))


@pytest.mark.slow
def test_an_import_inside_a_function_has_a_reason():
    assert sorted(set(late_imports(house())) ^ set(LATE_IMPORTS)) == []


@pytest.mark.slow
def test_files_time_spark_and_code_from_data_are_reached_through_their_doors_only():
    assert_none(closed_doors(house()))


def test_no_file_of_the_tests_is_longer_than_one_can_read():
    files = sorted(Path(__file__).parent.rglob("*.py"))
    lengths = {str(file): len(file.read_text().splitlines()) for file in files}
    assert [
        f"{file} has {lines} lines; split it by behaviour" for file, lines in lengths.items() if lines > TEST_FILE_LINES
    ] == []


@pytest.mark.slow
@pytest.mark.parametrize("too_long", [long_modules, long_classes, long_functions])
def test_no_module_class_or_function_is_longer_than_one_can_read(too_long: Callable[[Modules], Iterator[str]]):
    assert_none(too_long(house()))


@pytest.mark.slow
def test_most_functions_are_short():
    assert_none(seldom_short_functions(house()))


@pytest.mark.slow
def test_no_reason_to_be_long_outlives_what_it_excuses():
    excused = {complaint.split(" ")[0].split(":")[0] for complaint in long_modules(house(), {})}
    for complaint in long_functions(house(), {}):
        place, name, *_ = complaint.split(" ")
        excused.add(f"{place.split(':')[0]}.{name}")
    assert set(REASONS_TO_BE_LONG) <= excused


@pytest.mark.slow
def test_every_module_is_used():
    assert_none(dead_modules(house()))


def test_the_files_that_are_tested_first_are_there():
    root = SOURCES.parent
    assert [file for file in (*LONGEST_FIRST, *ALSO_LONG) if not (root / file).is_file()] == []


def test_the_folders_and_files_that_give_marks_to_their_tests_are_there():
    root = SOURCES.parent
    assert [place for place in (*KAFKA, *SPARK, *PROMETHEUS, *BROWSER, *SLOW) if not (root / place).exists()] == []


def test_workflows_run_what_a_developer_runs():
    root = SOURCES.parent
    commands = set(re.findall(r"^    ([a-z-]+)\)", (root / "dev").read_text(), re.MULTILINE))
    steps = re.findall(r"run: (.+)", (root / ".github" / "workflows" / "tests.yml").read_text())
    assert [step for step in steps if step != ".ci/run" and step.split()[:2] not in [["./dev", name] for name in commands]] == []
    assert {"test", "coverage", "release-check", "docs", "lock"} <= {
        step.split()[1] for step in steps if step.startswith("./dev ")
    }


def test_importing_pylog_is_quick_it_loads_neither_numba_nor_pyarrow_nor_pyspark():
    program = "import sys, pylog; print(*sorted({'numba', 'llvmlite', 'pyarrow', 'pandas', 'pyspark'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)
    assert done.stdout.split() == []


# ---- the checks find what they are for -----------------------------------------------------------------------------------


def planted(**sources: str) -> dict[str, Module]:
    """A house of the given modules; `__` in a name is a dot."""
    names = [FACADE, *(f"{FACADE}.{name.replace('__', '.')}" for name in sources)]
    return {name: Module(name, textwrap.dedent(text)) for name, text in zip(names, ["", *sources.values()], strict=True)}


@pytest.mark.parametrize(
    "source",
    [
        "from pylog import store",
        "import pylog.store",
        "from pylog.store import Store",
        "from ..store import Store",
        "def late():\n    from pylog.store import Store",
        "from pylog import open",
    ],
)
def test_an_import_that_runs_up_is_found(source: str):
    assert list(imports_upwards(planted(record__batch=source, store="")))
    assert not list(imports_upwards(planted(record__batch="from pylog.errors import PylogError", errors="")))


@pytest.mark.parametrize(
    "source",
    [
        "from pylog.log.b import B",
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from pylog.log.b import B",
        "def late():\n    from pylog.log.b import B",
        "from pylog.log import b",
        "from pylog.log.c import C",
    ],
)
def test_a_circle_of_modules_is_found(source: str):
    others = {"log__b": "from pylog.log.a import A", "log__c": "from pylog.log import b"}
    assert list(circles(planted(log__a=source, **others)))
    assert not list(circles(planted(log__a="from pylog.errors import PylogError", errors="", **others)))


def test_a_crowded_room_is_found():
    crowd = planted(log__a="from pylog.log.b.c import C", log__b__c="", log__d="from pylog.log.a import A")
    assert not list(crowded_rooms(crowd, {"log": (3, 2)}))
    assert list(crowded_rooms(crowd, {"log": (2, 2)}))
    assert list(crowded_rooms(crowd, {"log": (3, 1)}))


def test_an_import_inside_a_function_is_found():
    source = "def late():\n    from pylog.log.b import B\n    import json"
    assert list(late_imports(planted(log__a=source))) == ["pylog.log.a -> pylog.log.b", "pylog.log.a -> json"]
    assert not list(late_imports(planted(log__a="import json", spark__a=source)))


def test_a_leaf_that_stands_on_another_leaf_is_found():
    assert list(imports_upwards(planted(config="from pylog import fs", fs="")))
    assert not list(imports_upwards(planted(config="from pylog import limits", limits="")))


def test_a_module_without_a_place_is_found():
    with pytest.raises(AssertionError, match="no layer"):
        list(imports_upwards(planted(attic="from pylog import errors", errors="")))


@pytest.mark.parametrize(
    ("part", "source"),
    [
        ("log", "import os"),
        ("log", "import os.path"),
        ("log", "from os import fspath"),
        ("store", "import os\nos.remove('x')"),
        ("store", "from os import remove"),
        ("segment", "import mmap"),
        ("segment", "from fcntl import lockf"),
        ("tools", "import shutil"),
        ("cli", "open('x')"),
        ("log", "def f():\n    import time"),
        ("consumer", "from time import monotonic"),
        ("log", "import datetime\ndatetime.datetime.now()"),
        ("store", "from pyspark.sql import SparkSession"),
        ("spark", "import pickle"),
        ("fs", "eval('1')"),
        ("testing", "exec('1')"),
    ],
)
def test_a_way_around_a_door_is_found(part: str, source: str):
    assert list(closed_doors(planted(**{part: source})))


def test_the_doors_themselves_are_open():
    rooms = {
        "fs": "import os, mmap, fcntl, shutil\nos.remove('x')\nopen('x')",
        "clock": "import time",
        "spark__reader": "import pyspark",
    }
    rooms |= {"opening": "import os\nos.fspath('x')", "log": "file_system.open('x')\nself.open()\nimport timeit"}
    assert not list(closed_doors(planted(**rooms)))


def test_a_long_module_and_a_long_function_are_found():
    body = "    pass\n" * FUNCTION_LINES
    assert not list(long_functions(planted(log=f'def f():\n    """Text.\n\n    More.\n    """\n{body}')))
    assert list(long_functions(planted(log=f"def f():\n{body}    pass\n")))
    assert not list(long_functions(planted(log=f"def f():\n{body}    pass\n"), {"pylog.log.f": "why"}))
    assert not list(long_modules(planted(log="pass\n" * MODULE_LINES)))
    assert list(long_modules(planted(log="pass\n" * (MODULE_LINES + 1))))


def test_a_long_class_is_found_and_docstrings_count_but_for_a_public_face():
    body = "    pass\n" * (CLASS_LINES - 2)
    documented = '    """Text.\n\n    More.\n    """\n'
    assert not list(long_classes(planted(log=f"class Log:\n{body}    pass\n")))
    assert list(long_classes(planted(log=f"class Log:\n{body}{documented}")))
    assert list(long_classes(planted(log=f"class Log:\n{documented}{body}")))
    assert not list(long_classes(planted(log__log=f"class Log:\n{documented}{body}")))
    assert list(long_classes(planted(log__log=f"class Log:\n{documented}{body}    pass\n    pass\n")))


def test_a_house_of_middling_functions_is_found():
    functions = [f"def f{number}():\n{'    pass' + chr(10)}" for number in range(10)]
    assert not list(seldom_short_functions(planted(log="".join(functions))))
    assert list(seldom_short_functions(planted(log="".join(functions).replace("    pass\n", "    pass\n" * 8))))
    longer = "".join(function + "    pass\n" * (20 if number < 2 else 0) for number, function in enumerate(functions))
    assert list(seldom_short_functions(planted(log=longer)))


def test_a_module_that_nothing_imports_is_found():
    assert list(dead_modules(planted(log__attic="", log__log="from pylog.record import batch", record__batch=""))) == [
        "pylog.log.attic is imported by nothing",
        "pylog.log.log is imported by nothing",
    ]
    assert not list(dead_modules(planted(cli__dump="from pylog import store", store="from .log import log", log__log="")))
