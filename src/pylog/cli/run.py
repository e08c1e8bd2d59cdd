"""Runs a command line."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from cyclopts import CycloptsError

from pylog.cli import (
    cat,
    compact,
    compare,
    completion,
    config,
    copy,
    create,
    delete,
    describe,
    doctor,
    dump,
    graduate,
    groups_delete,
    groups_export,
    groups_health,
    groups_reset,
    produce,
    repair,
    retain,
    stats,
    topics,
    verify,
    warm,
)
from pylog.cli.app import app
from pylog.cli.exits import USAGE, complain, ended
from pylog.cli.usage import usage_text

COMMANDS: Final = (  # importing a module registers its commands
    topics,
    describe,
    create,
    config,
    delete,
    cat,
    produce,
    groups_delete,
    groups_export,
    groups_health,
    groups_reset,
    copy,
    compact,
    retain,
    stats,
    compare,
    dump,
    verify,
    repair,
    graduate,
    doctor,
    warm,
    completion,
)


def run(arguments: Sequence[str]) -> int:
    """Runs a command and returns its exit code.

    Args:
        arguments: the command line without the program name.
    """
    return ended(lambda: _call(arguments))


def _call(arguments: Sequence[str]) -> int | None:
    try:
        code: int | None = app(arguments, exit_on_error=False, print_error=False)
    except CycloptsError as error:
        complain(usage_text(error))
        return USAGE
    return code
