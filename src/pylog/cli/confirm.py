"""Confirmation before a command deletes anything."""

from __future__ import annotations

import sys

from pylog.cli.exits import CommandFailed, UsageError, print_stderr
from pylog.text import printable


def confirm(what: str, *, yes: bool) -> None:
    """Prints on stderr what the command will do, and returns if the user agrees.

    Args:
        what: a sentence, such as "This deletes the topic 'orders' and its 12 records".
        yes: whether `--yes` was given. Without it the user is asked.

    Raises:
        UsageError: `yes` is False, and stdin or stderr is not a terminal.
        CommandFailed: the user answered no.
    """
    print_stderr(f"{printable(what)}.\n")
    if yes:
        return
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise UsageError("nothing was done; give --yes to confirm")
    print_stderr("Continue? [y/N] ")
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        raise CommandFailed("nothing was done")
