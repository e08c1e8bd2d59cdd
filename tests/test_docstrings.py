"""Each public name says what it does: a sentence, its arguments, its result, an example of each class."""

from __future__ import annotations

import functools
import importlib
import inspect
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

API = Path(__file__).parent / "api.txt"
NAMES = sorted(
    {re.split(r"[(: ]", line, maxsplit=1)[0] for line in API.read_text("utf-8").splitlines() if line.startswith("pylog.")}
)
REFERS = re.compile(r"\b([Ss]ee|[Aa]s|of|in) (for )?`[\w.]+`|\bReturns, Raises: As\b")  # to a docstring that has the rest


@functools.cache
def found_at(name: str) -> Any:
    """The object behind a dotted name; a property as such."""
    words = name.split(".")
    for cut in range(len(words), 0, -1):
        try:
            found: Any = importlib.import_module(".".join(words[:cut]))
        except ImportError:
            continue
        for word in words[cut:]:
            found = inspect.getattr_static(found, word) if inspect.isclass(found) else getattr(found, word)
        return found.__func__ if isinstance(found, classmethod | staticmethod) else found
    raise AssertionError(name)


def text_of(found: Any) -> str:
    return inspect.getdoc(found.func if isinstance(found, functools.cached_property) else found) or ""


def parameters_of(found: Any) -> list[str]:
    if not inspect.isfunction(found):
        return []
    return [name for name in inspect.signature(found).parameters if name not in ("self", "cls")]


def described(text: str) -> list[str]:
    """What stands before the colons of the sections of arguments and attributes."""
    sections = re.findall(r"^(?:Args|Attributes):\n((?:[ ]+.*\n?|\n)+)", text, re.MULTILINE)
    return [name for section in sections for name in re.findall(r"^ {4}(\S[^:\n]*):", section, re.MULTILINE)]


def names_there(found: Any) -> set[str]:
    """The names that a docstring may describe: parameters, fields and attributes."""
    if not inspect.isclass(found):
        return set(inspect.signature(found).parameters)
    own = [base for base in found.__mro__ if base.__module__.startswith("pylog")]
    fields = {name for base in own for name in inspect.get_annotations(base)}
    assigned = {name for base in own for name in re.findall(r"self\.(\w+)", inspect.getsource(base))}
    return {*dir(found), *inspect.signature(found).parameters, *fields, *assigned}


def faults() -> Iterator[str]:
    for name in NAMES:
        found, text = found_at(name), text_of(found_at(name))
        if not (inspect.isclass(found) or inspect.isfunction(found) or isinstance(found, property | functools.cached_property)):
            continue  # a value, which its class describes
        first = text.partition("\n\n")[0]
        if not name.startswith("pylog.fs.") and not re.match(r"[A-Z`\"].*[.:](\s|$)", first, re.DOTALL):
            yield f"{name}: the docstring does not begin with a sentence"
        if name.startswith(("pylog.fs.", "pylog.testing.")):
            continue  # tools of tests: a sentence
        if inspect.isclass(found) and not issubclass(found, BaseException) and ">>>" not in text:
            yield f"{name}: no example"
        if inspect.isclass(found) or inspect.isfunction(found):
            there = names_there(found)
            yield from (f"{name} describes {each}, which is no name of it" for each in described(text) if each not in there)
        if not REFERS.search(text):
            yield from (f"{name}: nothing of its argument {each}" for each in parameters_of(found) if each not in described(text))
            if inspect.isfunction(found) and found.__annotations__.get("return") not in ("None", None) and not tells_result(text):
                yield f"{name}: nothing of what it returns"


def tells_result(text: str) -> bool:
    return re.search(r"^Returns:|\b[Rr]eturns\b", text, re.MULTILINE) is not None


def test_every_public_name_is_described_with_its_arguments_and_its_result() -> None:
    from support import warm  # this file is also a program, which does not find it

    found = warm.run([__file__], check=True)  # where nothing is replaced
    assert found.stdout.splitlines() == []


if __name__ == "__main__":
    sys.stdout.writelines(f"{fault}\n" for fault in faults())
