"""Everything that is created at first use survives eight threads that use it first at the same moment."""

from __future__ import annotations

import ast
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from numba import njit
from numba.core.compiler_lock import global_compiler_lock

import pylog
from pylog.record import compiled
from pylog.record.kernel import INTERPRETED, kernel
from pylog.record.signatures import INT64
from support.campaign import first_calls

SOURCES = Path(pylog.__file__).parent
# `msgspec.convert` to a type without a Struct in it: nothing of that type is kept.
WITHOUT_A_STRUCT = {"spark/stream_offset.py": "_Topics"}


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("first") / "store"
    first_calls.make(path)
    return path


@pytest.mark.slow
def test_eight_threads_that_read_the_catalog_first_do_not_crash_a_fresh_process(directory: Path) -> None:
    assert first_calls.forked(directory, 1, 200, "topics", "topic") == []


@pytest.mark.slow
def test_eight_threads_make_the_first_calls_of_a_process(directory: Path) -> None:
    assert first_calls.forked(directory, 2, 14) == []


@pytest.mark.slow
def test_eight_threads_import_pylog_and_open_a_store_at_once(directory: Path) -> None:
    assert first_calls.forked(directory, 3, 3, imports=True) == []


def types_given_late(source: str) -> list[str]:
    """The calls inside functions that may prepare a type of msgspec's at their first use, as text."""
    found = []
    for function in ast.walk(ast.parse(source)):
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            for call in ast.walk(function):
                if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute):
                    text = ast.unparse(call)
                    names_a_type = any(keyword.arg == "type" for keyword in call.keywords)
                    if "msgspec" in text and (
                        call.func.attr in ("Decoder", "convert") or (call.func.attr == "decode" and names_a_type)
                    ):
                        found.append(text)
    return found


@pytest.mark.slow
def test_no_type_of_msgspec_is_prepared_at_its_first_use() -> None:
    """A decoder is created at import: `msgspec.json.Decoder(Type)` in the module, not in a function."""
    late = {}
    for path in sorted(SOURCES.rglob("*.py")):
        name = path.relative_to(SOURCES).as_posix()
        calls = [call for call in types_given_late(path.read_text()) if WITHOUT_A_STRUCT.get(name, "msgspec.") not in call]
        late |= {name: calls} if calls else {}
    assert late == {}


def test_a_type_that_is_prepared_late_is_found() -> None:
    assert types_given_late("def f(data):\n    return msgspec.json.decode(data, type=Catalog)\n")
    assert types_given_late("def f(data):\n    return msgspec.json.Decoder(Catalog).decode(data)\n")
    assert not types_given_late("_D = msgspec.json.Decoder(Catalog)\ndef f(data):\n    return _D.decode(data)\n")


def test_a_kernel_is_compiled_once_even_if_several_threads_call_it_first(monkeypatch: pytest.MonkeyPatch) -> None:
    if INTERPRETED:
        return  # kernels are not compiled here
    compilers, inside = [], threading.Event()

    @kernel(INT64(INT64))
    def doubled(number: int) -> int:
        return 2 * number

    def counted(function: Any, signature: str, *, nogil: bool) -> Any:
        compilers.append(threading.get_ident())
        inside.wait(0.2)  # so that all threads have called it before the first one has it
        return njit(signature, nogil=nogil)(function)

    monkeypatch.setattr(compiled, "compiled", counted)
    answers: list[int] = []
    threads = [threading.Thread(target=lambda: answers.append(doubled(21))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert answers == [42] * 8
    assert len(compilers) == 1
    assert not global_compiler_lock.is_locked()


@pytest.mark.slow
def test_modules_that_a_kernels_first_call_imports_are_imported_with_the_kernels() -> None:
    """numpy imports `numpy.ma` at its first use, and fails in a thread that uses it during another one's import."""
    code = "import sys, pylog.record.compiled; print('numpy.ma' in sys.modules)"
    told = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout
    assert told == "True\n"
