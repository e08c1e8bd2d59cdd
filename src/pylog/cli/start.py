"""Runs a command line with the modules of its own command: a process that runs one command loads no other."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import Final

from cyclopts import CycloptsError

from pylog.cli.app import app
from pylog.cli.exits import USAGE, complain, ended

# By the words that name a command: the modules in this package whose import registers it. Two words are tried first. Any other
# command line, such as `--help` or one with a mistyped command, needs all commands.
MODULES: Final[dict[tuple[str, ...], tuple[str, ...]]] = {
    ("--version",): (),
    ("groups", "list"): ("groups",),
    ("groups", "describe"): ("groups",),
    ("groups", "health"): ("groups", "groups_health"),
    ("transactions",): ("transactions",),
    ("groups",): ("groups", "groups_delete", "groups_export", "groups_health", "groups_reset"),
    **{(name,): (name,) for name in ("topics", "describe", "create", "config", "delete", "cat", "produce", "copy", "compact")},
    ("backup",): ("archive",),
    **{
        (name,): (name,)
        for name in (
            "retain",
            "stats",
            "sweep",
            "compare",
            "dump",
            "verify",
            "repair",
            "restore",
            "archive",
            "graduate",
            "doctor",
            "metrics",
            "ops",
            "ui",
            "warm",
        )
    },
}
_ALL: Final = ("run",)
_KAFKAS_NAMES: Final[dict[tuple[str, ...], tuple[str, ...]]] = {  # of commands that have a shorter name here
    ("transactions", "find-hanging"): ("transactions", "hanging"),
}


def run(arguments: Sequence[str]) -> int:
    """Runs a command and returns its exit code.

    Args:
        arguments: the command line without the program name.
    """
    named = (*_KAFKAS_NAMES.get(tuple(arguments[:2]), arguments[:2]), *arguments[2:])
    for module in modules_for(named):
        importlib.import_module(f"pylog.cli.{module}")
    return ended(lambda: _call(named))


def modules_for(arguments: Sequence[str]) -> tuple[str, ...]:
    """Returns the names of the modules in this package that a command line needs.

    >>> modules_for(["groups", "list", "shop"]), modules_for(["topics", "shop"]), modules_for(["--help"])
    (('groups',), ('topics',), ('run',))
    """
    return MODULES.get(tuple(arguments[:2])) or MODULES.get(tuple(arguments[:1]), _ALL)


def _call(arguments: Sequence[str]) -> int | None:
    try:
        code: int | None = app(arguments, exit_on_error=False, print_error=False)
    except CycloptsError as error:
        from pylog.cli.usage import usage_text

        complain(usage_text(error))
        return USAGE
    return code
