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
from typing import NoReturn

from pylog.cli.streams import prepare

_NEEDED = ("cyclopts", "rich")


def main() -> NoReturn:
    """Runs the program `pylog`, then ends the process with one of the exit codes of `pylog.cli.exits`."""
    prepare()
    try:
        from pylog.cli.start import run
    except ModuleNotFoundError as error:
        if error.name not in _NEEDED:
            raise
        sys.exit(f"pylog: the command line requires {' and '.join(_NEEDED)}; in a clone of pylog: pip install '.[cli]'")
    sys.exit(run(sys.argv[1:]))
