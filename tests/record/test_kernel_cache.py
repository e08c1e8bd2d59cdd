"""Compiled kernels outlive the process in numba's cache: one that was made from other sources must not be taken from there."""

from __future__ import annotations

import ast
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import pylog
from pylog.record.kernel import SOURCES

PACKAGE = Path(pylog.__file__).parent
COMPILED = {"NUMBA_DISABLE_JIT": "0", "PYLOG_KERNELS": "compiled"}
ASKING = """
import numpy as np
from pylog.record import kernels
print(kernels.checksum(np.arange(100, dtype=np.uint8), 0, 100), kernels.checksum._compiled.stats.cache_hits.total())
"""


def told_by(source: Path, cache: Path, before: str = "") -> tuple[int, int]:
    """A checksum that a new process makes with the package in `source`, and how many kernels it took from the cache."""
    given = {**os.environ, "PYTHONPATH": str(source), "NUMBA_CACHE_DIR": str(cache)} | COMPILED
    done = subprocess.run([sys.executable, "-c", before + ASKING], env=given, capture_output=True, text=True, check=True)
    checksum, hits = done.stdout.split()
    return int(checksum), int(hits)


@pytest.mark.slow
def test_a_kernel_is_compiled_again_when_a_helper_in_another_file_has_changed(tmp_path: Path) -> None:
    shutil.copytree(PACKAGE, tmp_path / "pylog", ignore=shutil.ignore_patterns("__pycache__"))
    before, _ = told_by(tmp_path, tmp_path / "cache")
    assert told_by(tmp_path, tmp_path / "cache") == (before, 1)  # it is the cache that the next one must not believe
    helpers = tmp_path / "pylog" / "record" / "crc32c.py"
    helpers.write_text(helpers.read_text().replace("u64(0xFFFFFFFF)", "u64(0xFFFFFFFE)"))
    after, hits = told_by(tmp_path, tmp_path / "cache")
    assert (after != before, hits) == (True, 0)


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> tuple[int, Path]:
    """A checksum, and a cache with the kernel that has made it: compiling takes seconds. Tests damage copies of the cache."""
    cache = tmp_path_factory.mktemp("cache")
    return told_by(PACKAGE.parent, cache)[0], cache


@pytest.mark.slow
@pytest.mark.parametrize("size", [0, 100])
@pytest.mark.parametrize("ending", ["nbi", "nbc"])
def test_a_cache_that_a_power_loss_cut_short_costs_one_compilation_and_heals(
    compiled: tuple[int, Path], tmp_path: Path, ending: str, size: int
) -> None:
    before, cache = compiled
    shutil.copytree(cache, tmp_path, dirs_exist_ok=True)
    cut = [os.truncate(file, size) for file in tmp_path.rglob(f"*.{ending}")]
    assert cut
    assert told_by(PACKAGE.parent, tmp_path) == (before, 0)
    assert told_by(PACKAGE.parent, tmp_path) == (before, 1)


@pytest.mark.slow
def test_a_cache_that_takes_no_more_bytes_is_done_without(compiled: tuple[int, Path], tmp_path: Path) -> None:
    limited = "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))"
    assert told_by(PACKAGE.parent, tmp_path, limited) == (compiled[0], 0)


FORKING = """
import os, pathlib, sys, threading, time
import numpy as np
from pylog.record import kernels

def use(kernel):
    kernel.compile()

thread = threading.Thread(target=use, args=(kernels.scan_batches,))
thread.start()
time.sleep(0.3)
if (child := os.fork()) == 0:
    print(kernels.checksum(np.arange(100, dtype=np.uint8), 0, 100), flush=True)
    os._exit(0)
thread.join()
os._exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


@pytest.mark.slow
def test_a_child_forked_while_another_thread_compiles_a_kernel_compiles_its_own(tmp_path: Path) -> None:
    """numba compiles under one lock of the whole process, which that thread would have kept in the child for ever."""
    given = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path)} | COMPILED
    done = subprocess.run([sys.executable, "-c", FORKING], env=given, capture_output=True, text=True, timeout=120, check=True)
    assert int(done.stdout) > 0


def names_in_kernels(tree: ast.Module) -> set[str]:
    """What the kernels of a module, and the helpers that are compiled into them, name."""
    makers = {"kernel", "inlined", "shared", "intrinsic"}
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef) and makers & {ast.unparse(each).split("(")[0] for each in node.decorator_list}:
            names |= {each.id for each in ast.walk(node) if isinstance(each, ast.Name)}
    return names


def origins(tree: ast.Module) -> dict[str, str]:
    """The module of the package that each imported name comes from."""
    found = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "pylog":
            for alias in node.names:
                inside = f"{node.module}.{alias.name}" if node.module == "pylog" else str(node.module)
                found[alias.asname or alias.name] = inside
    return found


@pytest.mark.slow
def test_everything_that_kernels_are_made_of_is_in_the_digest_of_their_sources() -> None:
    covered = {f"pylog.{name.removesuffix('.py')}" for name in SOURCES}
    taken: set[str] = set()
    for file in PACKAGE.rglob("*.py"):
        tree = ast.parse(file.read_text())
        names, known = names_in_kernels(tree), origins(tree)
        taken |= {known[name] for name in names & known.keys()}
    outside = {origin for origin in taken if ".".join(origin.split(".")[:2]) not in covered}
    assert {"pylog.record.memory", "pylog.record.format", "pylog.limits"} <= taken
    assert not outside
