"""Registers all commands. Importing this module is for programs that run several, and for `pylog --help`."""

from __future__ import annotations

from typing import Final

from pylog.cli import (
    archive,
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
    metrics,
    ops,
    produce,
    repair,
    restore,
    retain,
    stats,
    sweep,
    topics,
    transactions,
    ui,
    verify,
    warm,
)
from pylog.cli.app import app
from pylog.cli.start import run

__all__ = ["COMMANDS", "app", "run"]

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
    transactions,
    metrics,
    ops,
    ui,
    archive,
    copy,
    compact,
    retain,
    stats,
    sweep,
    compare,
    dump,
    verify,
    repair,
    restore,
    graduate,
    doctor,
    warm,
    completion,
)
