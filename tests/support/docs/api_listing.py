"""Every public name with its signature, one a line: what tests/api.txt holds and tests/test_api.py compares.

./dev api        # writes tests/api.txt again, after a change of the API that is meant
"""

from __future__ import annotations

import enum
import functools
import importlib
import inspect
import sys
from collections.abc import Iterable, Iterator
from types import ModuleType
from typing import Any, Generic

from pylog.factory_made import FactoryMade
from pylog.fs import FileSystem

MODULES = ("pylog", "pylog.aio", "pylog.testing", "pylog.testing.strategies")
PROTOCOLS = (FileSystem,)  # a class that has all members of one is listed with its name instead of these members


class Text:
    """An annotation as it is written in the source: printed without the quotes of a string."""

    def __init__(self, annotation: object) -> None:
        text = getattr(annotation, "__forward_arg__", annotation)
        self._text = text if isinstance(text, str) else inspect.formatannotation(text)

    def __repr__(self) -> str:
        return self._text


def listing() -> str:
    """The lines of all modules, in the order of the alphabet. What a class inherits from a listed one is not listed again."""
    modules = {name: importlib.import_module(name) for name in MODULES}
    named = [getattr(module, name) for module in modules.values() for name in _names(module)]
    listed = frozenset(found for found in named if inspect.isclass(found))
    protocols = (line for each in PROTOCOLS for line in _entry(f"{each.__module__}.{each.__name__}", each, listed))
    lines = (line for module in modules.values() for line in sorted(_module(module, listed)))
    return "".join(f"{line}\n" for line in (*lines, *protocols))


def _module(module: ModuleType, listed: frozenset[type]) -> Iterator[str]:
    for name in _names(module):
        found = getattr(module, name)
        if isinstance(found, ModuleType):
            continue  # listed for itself
        yield from _entry(f"{module.__name__}.{name}", found, listed)


def _names(module: ModuleType) -> list[str]:
    if hasattr(module, "__all__"):
        return list(module.__all__)
    own = (name for name, found in vars(module).items() if getattr(found, "__module__", None) == module.__name__)
    return [name for name in own if not name.startswith("_") and callable(getattr(module, name))]


def _entry(name: str, found: Any, listed: frozenset[type]) -> Iterator[str]:
    if inspect.isclass(found):
        has = [each for each in PROTOCOLS if each is not found and all(hasattr(found, member) for member in _public(each))]
        bases = [*(base for base in found.__bases__ if _is_told(base)), *has]
        told = f" is a {', '.join(base.__name__ for base in bases)}" if bases else ""
        yield f"{name}{_signature(found) if _has_own_constructor(found, listed) else ''}{told}"
        skipped = {*_fields_of(found), *(member for each in has for member in _public(each))}
        for member in sorted(set(dir(found)) - skipped):
            yield from _member(name, found, member, listed)
    elif callable(found):
        yield f"{name}{_signature(found)}"
    else:
        yield f"{name}: {type(found).__name__}"


def _public(protocol: type) -> list[str]:
    return [member for member in vars(protocol) if not member.startswith("_")]


def _is_told(base: type) -> bool:
    return base not in (object, Generic, FactoryMade) and not base.__name__.startswith("_")


def _has_own_constructor(found: type, listed: frozenset[type]) -> bool:
    """Whether a class is made in another way than a base that is listed itself, such as an error."""
    return found.__init__ not in [base.__init__ for base in found.__mro__[1:] if base in listed]  # type: ignore[misc]


def _fields_of(found: type) -> Iterable[str]:
    """The fields of a value type, which its signature has already."""
    return getattr(found, "_fields", ()) or getattr(found, "__struct_fields__", ()) or getattr(found, "__dataclass_fields__", ())


def _member(name: str, of: type, member: str, listed: frozenset[type]) -> Iterator[str]:
    home = next((base for base in of.__mro__ if member in vars(base)), None)
    if member.startswith("_") or home is None or not home.__module__.startswith("pylog") or (home is not of and home in listed):
        return
    found = vars(home)[member]
    if isinstance(found, classmethod | staticmethod):
        yield f"{name}.{member}{_signature(getattr(of, member))}"
    elif isinstance(found, property | functools.cached_property):
        getter = found.fget if isinstance(found, property) else found.func
        yield f"{name}.{member}: {Text(inspect.signature(getter).return_annotation)}"  # type: ignore[arg-type]
    elif inspect.isfunction(found):
        yield f"{name}.{member}{_signature(found)}" + (" awaited" if inspect.iscoroutinefunction(found) else "")
    else:
        yield f"{name}.{member}"


def _signature(found: Any) -> str:
    """As Python prints it, but for annotations, which are as written, and for classes that say nothing of their own."""
    if inspect.isclass(found) and (issubclass(found, enum.Enum) or not _says_how_it_is_made(found)):
        return ""
    if hasattr(found, "__struct_fields__"):
        return _fields(found)
    signature = inspect.signature(found)
    parameters = [
        each if each.annotation is each.empty else each.replace(annotation=Text(each.annotation))
        for each in signature.parameters.values()
    ]
    returned = signature.return_annotation
    told = signature.replace(parameters=parameters, return_annotation=inspect.Signature.empty)
    return str(told) if returned is inspect.Signature.empty or inspect.isclass(found) else f"{told} -> {Text(returned)}"


def _fields(struct: Any) -> str:
    """Of a msgspec.Struct, as written: its own signature evaluates annotations, which may name what only type checkers import."""
    written = {name: text for base in struct.__mro__ for name, text in inspect.get_annotations(base).items()}
    fields, defaults = struct.__struct_fields__, struct.__struct_defaults__
    values = [""] * (len(fields) - len(defaults)) + [f" = {value!r}" for value in defaults]
    return f"({', '.join(f'{name}: {written[name]}{value}' for name, value in zip(fields, values, strict=True))})"


def _says_how_it_is_made(found: type) -> bool:
    """Whether it, or a class of pylog's above it, has a constructor."""
    if hasattr(found, "__struct_fields__"):
        return not all(name.startswith("_") for name in found.__struct_fields__)
    ours = [vars(base) for base in found.__mro__ if base.__module__.startswith("pylog") and base is not FactoryMade]
    return any("__init__" in names or "__new__" in names for names in ours)


if __name__ == "__main__":
    sys.stdout.write(listing())
