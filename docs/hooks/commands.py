"""A hook of MkDocs: the page of the commands has what `pylog COMMAND --help` says of each, as it says it now."""

from __future__ import annotations

import contextlib
import io
import os
from collections.abc import Iterator
from typing import Any, Final

from cyclopts import App
from mkdocs.structure.pages import Page

from pylog.cli.run import app, run

_PAGE: Final = "reference/commands.md"
_COLUMNS: Final = "100"


def on_page_markdown(markdown: str, *, page: Page, **_: Any) -> str:
    """Adds a part for each command to the page."""
    if page.file.src_uri != _PAGE:
        return markdown
    return markdown + "".join(f"\n## pylog {' '.join(name)}\n\n```text\n{_help(name)}```\n" for name in _commands(app))


def _commands(of: App, before: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Every command by its words, those below a command after it."""
    for name in sorted(name for name in of if not name.startswith("-")):
        words = (*before, name)
        below = list(_commands(of[name], words))
        yield from below or [words]


def _help(words: tuple[str, ...]) -> str:
    os.environ["COLUMNS"] = _COLUMNS
    with contextlib.redirect_stdout(io.StringIO()) as output:
        run([*words, "--help"])
    return output.getvalue()
