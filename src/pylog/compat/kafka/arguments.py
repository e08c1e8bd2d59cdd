"""Arguments of wrong types, refused in words before a call does anything: the annotations of its parameters say what it takes.

Python's own errors would come from somewhere inside, after a part of the work. This checks calls that are rare, an
administrator's among them; `send` and `poll` check their arguments themselves, because they are called for each record.
"""

from __future__ import annotations

import functools
import inspect
import reprlib
import types
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from numbers import Real
from typing import Any, Final, TypeVar, Union, cast, get_args, get_origin, get_type_hints

_Class = TypeVar("_Class", bound=type)
_Method = TypeVar("_Method", bound=Callable[..., Any])
_Arguments = tuple[tuple[Any, ...], dict[str, Any]]
_UNIONS: Final = (Union, types.UnionType)
_UNCHECKED: Final = (bool, object, Any)  # any value is true or false


def checked(kind: _Class) -> _Class:
    """Makes each public method of a class raise TypeError for an argument that its annotation excludes.

    Args:
        kind: the class; the methods of its bases are wrapped in it, not in the bases.
    """
    for name, method in inspect.getmembers(kind, inspect.isfunction):
        if not name.startswith("_") and inspect.signature(method).return_annotation != "NoReturn":  # whose refusal says more
            setattr(kind, name, checking(method))
    return kind


def checking(method: _Method) -> _Method:
    """Makes a method raise TypeError for an argument that its annotation excludes.

    Args:
        method: the method, which may be a coroutine.
    """

    @functools.wraps(method)
    def plain(*given: Any, **named: Any) -> Any:
        given, named = _arguments(method, given, named)
        return method(*given, **named)

    @functools.wraps(method)
    async def awaited(*given: Any, **named: Any) -> Any:
        given, named = _arguments(method, given, named)
        return await method(*given, **named)

    return cast("_Method", awaited if inspect.iscoroutinefunction(method) else plain)


def _arguments(method: Callable[..., Any], given: tuple[Any, ...], named: dict[str, Any]) -> _Arguments:
    """Returns the arguments of a call, if they are right."""
    try:
        found = inspect.signature(method).bind(*given, **named)
    except TypeError:  # one is missing, or too many: the call itself will say it with the method's name
        return given, named
    for name, hint in _hints(method).items():
        if name in found.arguments:
            found.arguments[name] = _taken(method.__name__, name, found.arguments[name], hint)
    return found.args, found.kwargs


@functools.cache
def _hints(method: Callable[..., Any]) -> Mapping[str, Any]:
    return {name: hint for name, hint in get_type_hints(method).items() if name != "return"}


def _taken(method: str, name: str, value: Any, hint: Any) -> Any:
    """Returns an argument; an iterator as a list, because looking at it uses it up."""
    given = list(value) if isinstance(value, Iterator) else value
    if not _fits(given, hint):
        raise TypeError(f"{name}={reprlib.repr(given)} has a wrong type; {method} takes {_written(hint)} there")
    return given


def _fits(value: Any, hint: Any) -> bool:
    """Returns whether a value is what an annotation says, with all that is in it."""
    kind, parts = get_origin(hint) or hint, get_args(hint)
    if kind in _UNIONS:
        mappings = [each for each in parts if isinstance(value, Mapping) and get_origin(each) is Mapping]
        return any(_fits(value, each) for each in mappings or parts)  # its keys alone would be an Iterable, too
    if kind in _UNCHECKED:
        return True
    if not isinstance(value, Real if kind is float else kind) or (kind is Iterable and isinstance(value, str | bytes)):
        return False  # text, too, where several are taken: its letters would be names of topics to delete
    if isinstance(value, Mapping) and len(parts) == 2:
        return all(_fits(key, parts[0]) and _fits(each, parts[1]) for key, each in value.items())
    return not parts or not isinstance(value, Collection) or all(_fits(each, parts[0]) for each in value)


def _written(hint: Any) -> str:
    """Returns an annotation without the modules of its names."""
    return inspect.formatannotation(hint).replace("collections.abc.", "").replace("typing.", "")
