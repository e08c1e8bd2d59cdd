"""Writes `pylog/cli/help_page.py` again: the rows of `pylog --help`, read from what cyclopts prints.

python -m support.docs.help_page
"""

from __future__ import annotations

import io
import json
import textwrap
from pathlib import Path
from typing import Final

from rich.console import Console

from pylog.cli.run import app

MODULE: Final = Path(__file__).resolve().parents[3] / "src" / "pylog" / "cli" / "help_page.py"
_WIDE: Final = 400
_LONGEST: Final = 100
Panels = list[tuple[str, list[tuple[str, str]]]]


def printed(width: int) -> str:
    """Returns what cyclopts prints for `pylog --help` in a terminal of this width, without spaces at the ends of lines."""
    out = io.StringIO()
    app(["--help"], exit_on_error=False, print_error=False, console=Console(file=out, width=width))
    return "\n".join(line.rstrip() for line in out.getvalue().splitlines()) + "\n"


def panels() -> Panels:
    """Returns the titles of the panels, each with its rows."""
    found: Panels = []
    for line in printed(_WIDE).splitlines():
        if line.startswith("╭"):
            found.append((line.strip("╭╮─ "), []))
        elif line.startswith("│"):
            name, _, text = line.strip("│ ").partition("  ")
            found[-1][1].append((name, text.strip()))
    return found


def source(found: Panels) -> str:
    """Returns the module's text with other rows."""
    begin, _, rest = MODULE.read_text().partition("PANELS: Final")
    _, _, end = rest.partition("\n)\n")
    lines = ["PANELS: Final[tuple[tuple[str, tuple[tuple[str, str], ...]], ...]] = ("]
    for title, rows in found:
        lines += ["    (", f"        {json.dumps(title)},", "        ("]
        lines += [f"            ({json.dumps(name)}, {_literal(text)})," for name, text in rows]
        lines += ["        ),", "    ),"]
    return f"{begin}{chr(10).join(lines)}\n)\n{end}"


def _literal(text: str) -> str:
    """Returns the source of a text, which may take several lines."""
    parts = textwrap.wrap(text, _LONGEST, break_on_hyphens=False, drop_whitespace=False)
    written = "\n".join(json.dumps(part, ensure_ascii=False) for part in parts)
    return f"({written})" if len(parts) > 1 else written


if __name__ == "__main__":
    MODULE.write_text(source(panels()))
