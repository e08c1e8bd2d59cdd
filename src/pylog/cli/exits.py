"""How a command ends: its exit code, and the one sentence on stderr that says why."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable
from typing import Final

from pylog.cli.text import printable
from pylog.errors import (
    InvalidArgumentError,
    InvalidRecordError,
    PylogError,
    RecordTooLargeError,
    StoreLockedError,
    TopicAlreadyExistsError,
)

OK: Final = 0
FAILED: Final = 1
USAGE: Final = 2
LOCKED: Final = 3
INTERRUPTED: Final = 130
PIPE_CLOSED: Final = 141

EXIT_CODES: Final = {
    OK: "done, nothing to complain about",
    FAILED: "it failed, or found something: stderr or the output says what",
    USAGE: "the command line is wrong, or wants --yes: nothing was done",
    LOCKED: "a broker or another process has the directory open for writing",
    INTERRUPTED: "interrupted (Ctrl-C)",
    PIPE_CLOSED: "who reads the output has closed it, as `head` does",
}

# The first that fits. An argument that is wrong is the command line's fault; a record or a topic that is there is not.
_CODES: Final[tuple[tuple[type[PylogError], int], ...]] = (
    (StoreLockedError, LOCKED),
    (TopicAlreadyExistsError, FAILED),
    (InvalidRecordError, FAILED),
    (RecordTooLargeError, FAILED),
    (InvalidArgumentError, USAGE),
    (PylogError, FAILED),
)


class UsageError(InvalidArgumentError):
    """The command line is wrong; nothing was done."""


class CommandFailed(PylogError):  # noqa: N818 - it is what happened, said to a person
    """A command cannot do what it is for; the sentence says why."""


def ended(call: Callable[[], int | None]) -> int:
    """Runs a command, reports what it raises, and returns the exit code. What is no error of ours is a bug, and goes on up."""
    try:
        code = call() or OK
        sys.stdout.flush()
        return code
    except PylogError as error:
        _let_go_of_output()  # what it has printed comes before the reason why there is no more
        complain(str(error))
        return next(code for kind, code in _CODES if isinstance(error, kind))
    except KeyboardInterrupt:
        _let_go_of_output()
        return INTERRUPTED
    except BrokenPipeError:
        _let_go_of_output()
        return PIPE_CLOSED


def complain(sentence: str) -> None:
    """Prints a sentence on stderr, for people. Nobody reading it is no error."""
    with contextlib.suppress(BrokenPipeError):
        print(f"pylog: {printable(sentence)}", file=sys.stderr, flush=True)


def _let_go_of_output() -> None:
    """Writes what is buffered; if nobody reads it any more the interpreter, as it ends, shall not complain about that."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except BrokenPipeError:
            with contextlib.suppress(BrokenPipeError):
                stream.close()
