"""Asking before anything is destroyed."""

from __future__ import annotations

import sys

from pylog.cli.exits import CommandFailed, UsageError, tell
from pylog.text import printable


def confirm(what: str, *, yes: bool) -> None:
    """Says on stderr what will be done, and returns if it may be.

    Args:
        what: a sentence, such as "This deletes the topic 'orders' and its 12 records".
        yes: whether `--yes` was given. Without it a person is asked; where nobody can be, it is refused.

    Raises:
        UsageError: there is nobody to ask.
        CommandFailed: the person said no.
    """
    tell(f"{printable(what)}.\n")
    if yes:
        return
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise UsageError("nothing was done: say --yes if this is what you want")
    tell("Go on? [y/N] ")
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        raise CommandFailed("nothing was done")
