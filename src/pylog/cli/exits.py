"""Exit codes, and the sentence on stderr that explains a failure."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable
from typing import Final

from pylog.cli.streams import Closed
from pylog.errors import (
    InvalidArgumentError,
    InvalidRecordError,
    PylogError,
    RecordTooLargeError,
    StoreLockedError,
    TopicAlreadyExistsError,
)
from pylog.text import printable

OK: Final = 0
FAILED: Final = 1
USAGE: Final = 2
LOCKED: Final = 3
INTERRUPTED: Final = 130
PIPE_CLOSED: Final = 141

EXIT_CODES: Final = {
    OK: "success",
    FAILED: "failure, or something was found: see stderr or the output",
    USAGE: "the command line is wrong, or --yes is required; nothing was done",
    LOCKED: "a broker or another process has the directory open for writing",
    INTERRUPTED: "interrupted (Ctrl-C)",
    PIPE_CLOSED: "the reader of the output closed the pipe, as `head` does",
}

# The first class that matches decides. A wrong argument is an error of usage; a record or topic that is refused is not.
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


class CommandFailed(PylogError):  # noqa: N818 - the name describes the event for a user
    """A command cannot finish; the message says why."""


def ended(call: Callable[[], int | None]) -> int:
    """Runs a command, prints the error that it raises, and returns the exit code. Other exceptions are bugs, and propagate.

    An OSError without a file name comes from stdout: errors of files are PylogErrors.
    """
    try:
        code = call() or OK
        sys.stdout.flush()
        return code
    except PylogError as error:
        _detach_output()  # the output so far comes before the error message
        complain(_in_commands(str(error)))
        return next(code for kind, code in _CODES if isinstance(error, kind))
    except KeyboardInterrupt:
        _detach_output()
        return INTERRUPTED
    except (BrokenPipeError, SystemExit):  # rich, which prints help and tables, raises SystemExit
        _detach_output()
        return PIPE_CLOSED
    except OSError as error:
        if error.filename is not None:
            raise
        _detach_output()
        complain(f"cannot write the output: {error.strerror or error}")
        return FAILED


def _in_commands(message: str) -> str:
    """Returns a message without advice on arguments that commands do not have."""
    message = message.replace(", or pass create=True to use this one", "")
    return message.replace(", or open the store with mode='r'", ". Commands that only read can run meanwhile")


def complain(sentence: str) -> None:
    """Prints a message on stderr. A closed stderr is ignored."""
    print_stderr(f"pylog: {printable(sentence)}\n")


def print_stderr(text: str) -> None:
    """Prints text on stderr. A failure to write is ignored: the exit code and the output are enough."""
    try:
        sys.stderr.write(text)
        sys.stderr.flush()
    except OSError:
        _detach("stderr")


def _detach_output() -> None:
    """Flushes the streams. Replaces a stream that fails, so that the interpreter prints no error when it exits."""
    for name in ("stdout", "stderr"):
        try:
            getattr(sys, name).flush()
        except OSError:
            _detach(name)


def _detach(name: str) -> None:
    stream = getattr(sys, name)
    setattr(sys, name, Closed(name))
    with contextlib.suppress(OSError):
        stream.close()
