"""`python -m pylog.compat`: runs an unmodified Kafka program on a pylog store.

python -m pylog.compat [--directory DIR | --memory] program.py ARGUMENTS...
python -m pylog.compat [--directory DIR | --memory] -m module ARGUMENTS...
python -m pylog.compat --path
"""

from __future__ import annotations

import argparse
import runpy
import sys

from pylog.compat import install
from pylog.compat.clusters import MEMORY
from pylog.fs import join, parent_of


def main(arguments: list[str]) -> int:
    """Runs a program, or prints a folder. Returns the exit code.

    Args:
        arguments: the command line's arguments.
    """
    own, rest = _split(arguments)
    options = _parser().parse_args(own)
    if options.path:
        sys.stdout.write(join(parent_of(__file__), "path") + "\n")
        return 0
    if options.module is None and not rest:
        sys.stderr.write("name a program, as in: python -m pylog.compat program.py\n")
        return 2
    install(MEMORY if options.memory else options.directory)
    if options.module is not None:
        sys.argv = [options.module, *rest]
        runpy.run_module(options.module, run_name="__main__", alter_sys=True)
    else:
        sys.argv = rest
        sys.path[0] = parent_of(rest[0])
        runpy.run_path(rest[0], run_name="__main__")
    return 0


def _split(arguments: list[str]) -> tuple[list[str], list[str]]:
    """Returns the options of this command, and the program with its arguments, which may look like options of this command."""
    for number, argument in enumerate(arguments):
        if argument == "-m":
            return arguments[: number + 2], arguments[number + 2 :]
        if not argument.startswith("-") and arguments[number - 1 : number] != ["--directory"]:
            return arguments[:number], arguments[number:]
    return arguments, []


def _parser() -> argparse.ArgumentParser:
    description = "Runs a Kafka program on a pylog store."
    parser = argparse.ArgumentParser(prog="python -m pylog.compat", description=description, allow_abbrev=False)
    where = parser.add_mutually_exclusive_group()
    where.add_argument("--directory", metavar="DIR", help="Directory of the store. Default: PYLOG_KAFKA, else pylog-kafka.")
    where.add_argument("--memory", action="store_true", help="Keep everything in memory.")
    where.add_argument("--path", action="store_true", help="Print the folder to put into PYTHONPATH, and exit.")
    parser.add_argument("-m", dest="module", metavar="MODULE", help="Run a module instead of a file.")
    parser.usage = "%(prog)s [--directory DIR | --memory | --path] {PROGRAM | -m MODULE} [ARGUMENT ...]"
    return parser


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
