"""The command line, `pylog`: one module per command, and the modules that commands share.

* `app` registers commands. `start` runs a command line with only the modules that it needs, `run` with all commands.
* `exits` turns an error into a sentence on stderr and an exit code.
* `streams` prepares stdin, stdout and stderr.
* `output` prints tables, JSON and progress. `pylog.text` escapes keys, values and names for terminals.
* `confirm` asks before a command deletes anything.

Commands print through `output` only: the same data is a table on a terminal, aligned text on a pipe, and JSON with `--json`.
Commands import heavy libraries (numba, pyarrow) inside their functions, so that `pylog --help` and shell completion stay fast.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Final, NoReturn

from pylog import __version__
from pylog.cli.exits import ended
from pylog.cli.help_page import page
from pylog.cli.streams import prepare
from pylog.extras import install_command

_NEEDED = ("cyclopts", "rich")
_PAGES: Final[dict[tuple[str, ...], Callable[[], str]]] = {  # printed without any library
    ("--help",): page,
    ("-h",): page,
    ("--version",): lambda: f"{__version__}\n",
}


def main() -> NoReturn:
    """Runs the program `pylog`, then ends the process with one of the exit codes of `pylog.cli.exits`."""
    prepare()
    if (text := _PAGES.get(tuple(sys.argv[1:]))) is not None:
        sys.exit(ended(lambda: _print(text())))
    try:
        from pylog.cli.start import run
    except ModuleNotFoundError as error:
        if error.name not in _NEEDED:
            raise
        sys.exit(f"pylog: the command line requires {' and '.join(_NEEDED)}; install them: {install_command('cli')}")
    sys.exit(run(sys.argv[1:]))


def _print(text: str) -> None:
    sys.stdout.write(text)
