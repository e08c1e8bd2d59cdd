"""Compiled kernels outlive the process in numba's cache: one that was made from other sources must not be taken from there."""

from __future__ import annotations

import ast
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pylog
from pylog.record import memory

PACKAGE = Path(pylog.__file__).parent
ASKING = """
import numpy as np
from pylog.record import kernels
print(kernels.checksum(np.arange(100, dtype=np.uint8), 0, 100), kernels.checksum._compiled.stats.cache_hits.total())
"""


def told_by(source: Path, cache: Path) -> tuple[int, int]:
    """A checksum that a new process makes with the package in `source`, and how many kernels it took from the cache."""
    given = {**os.environ, "PYTHONPATH": str(source), "NUMBA_CACHE_DIR": str(cache), "NUMBA_DISABLE_JIT": "0"}
    done = subprocess.run([sys.executable, "-c", ASKING], env=given, capture_output=True, text=True, check=True)
    checksum, hits = done.stdout.split()
    return int(checksum), int(hits)


def test_a_kernel_is_compiled_anew_when_a_helper_in_another_file_has_changed(tmp_path: Path) -> None:
    shutil.copytree(PACKAGE, tmp_path / "pylog", ignore=shutil.ignore_patterns("__pycache__"))
    before, _ = told_by(tmp_path, tmp_path / "cache")
    assert told_by(tmp_path, tmp_path / "cache") == (before, 1)  # it is the cache that the next one must not believe
    helpers = tmp_path / "pylog" / "record" / "memory.py"
    helpers.write_text(helpers.read_text().replace("u64(0xFFFFFFFF)", "u64(0xFFFFFFFE)"))
    after, hits = told_by(tmp_path, tmp_path / "cache")
    assert (after != before, hits) == (True, 0)


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


def test_everything_that_kernels_are_made_of_is_in_the_digest_of_their_sources() -> None:
    covered = {f"pylog.{name.removesuffix('.py')}" for name in memory.SOURCES}
    taken: set[str] = set()
    for file in PACKAGE.rglob("*.py"):
        tree = ast.parse(file.read_text())
        names, known = names_in_kernels(tree), origins(tree)
        taken |= {known[name] for name in names & known.keys()}
    outside = {origin for origin in taken if ".".join(origin.split(".")[:2]) not in covered}
    assert {"pylog.record.memory", "pylog.record.format", "pylog.limits"} <= taken
    assert not outside
