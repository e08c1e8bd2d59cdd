"""The command line, `pylog`: one module a command, with what they share beside them.

`app` registers commands, `run` runs them, `exits` turns what they raise into a sentence and an exit code, `streams` sees to
stdin, stdout and stderr, `output` prints (tables, JSON, progress), `text` makes bytes of a log harmless to a terminal, `confirm`
asks before anything is destroyed.

Commands print through `output` only: the same data is a table on a terminal, aligned text on a pipe, JSON with `--json`.
Heavy imports (numba, pyarrow) are inside the commands' functions: `pylog --help` and shell completion are to be quick.
"""

from __future__ import annotations

import sys
from typing import NoReturn

from pylog.cli.streams import prepare

_NEEDED = ("cyclopts", "rich")


def main() -> NoReturn:
    """The program `pylog`. Ends the process with one of the exit codes of `pylog.cli.exits`."""
    prepare()
    try:
        from pylog.cli.run import run
    except ModuleNotFoundError as error:
        if error.name not in _NEEDED:
            raise
        sys.exit(f"pylog: the command line needs {' and '.join(_NEEDED)}; install them: pip install 'pylogdb[cli]'")
    sys.exit(run(sys.argv[1:]))
