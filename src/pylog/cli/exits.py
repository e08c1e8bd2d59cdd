"""How a command ends: its exit code, and the one sentence on stderr that says why."""

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
    """Runs a command, reports what it raises, and returns the exit code. What is no error of ours is a bug, and goes on up.

    An OSError that names no file is stdout's: of files all come as errors of ours.
    """
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
    except (BrokenPipeError, SystemExit):  # which is how rich, who draws help and tables, ends a program then
        _let_go_of_output()
        return PIPE_CLOSED
    except OSError as error:
        if error.filename is not None:
            raise
        _let_go_of_output()
        complain(f"cannot write the output: {error.strerror or error}")
        return FAILED


def complain(sentence: str) -> None:
    """Prints a sentence on stderr, for people. Nobody reading it is no error."""
    tell(f"pylog: {printable(sentence)}\n")


def tell(text: str) -> None:
    """Prints text on stderr, for people. That it cannot be written is no error: the exit code and the output say enough."""
    try:
        sys.stderr.write(text)
        sys.stderr.flush()
    except OSError:
        _let_go_of("stderr")


def _let_go_of_output() -> None:
    """Writes what is buffered; if that cannot be, the interpreter, as it ends, shall not complain about that."""
    for name in ("stdout", "stderr"):
        try:
            getattr(sys, name).flush()
        except OSError:
            _let_go_of(name)


def _let_go_of(name: str) -> None:
    stream = getattr(sys, name)
    setattr(sys, name, Closed(name))
    with contextlib.suppress(OSError):
        stream.close()
