"""Runs command lines in this process, at what looks like a terminal or like a pipe."""

from __future__ import annotations

import io
import json
import sys
from typing import Any, NamedTuple

from pylog.cli.run import run


class Outcome(NamedTuple):
    """How a command ended."""

    code: int
    output: bytes
    complaints: str

    @property
    def text(self) -> str:
        return self.output.decode()

    @property
    def lines(self) -> list[str]:
        return self.text.splitlines()

    @property
    def json(self) -> Any:
        return json.loads(self.output)

    @property
    def json_lines(self) -> list[Any]:
        return [json.loads(line) for line in self.lines]


class Stream(io.TextIOWrapper):
    """What stands for stdin, stdout or stderr."""

    def __init__(self, data: bytes = b"", *, terminal: bool = False) -> None:
        super().__init__(io.BytesIO(data), encoding="utf-8", newline="")
        self.terminal = terminal

    def isatty(self) -> bool:
        return self.terminal

    def written(self) -> bytes:
        self.flush()
        buffer = self.buffer
        assert isinstance(buffer, io.BytesIO)
        return buffer.getvalue()


def call(*arguments: object, stdin: bytes = b"", terminal: bool = False) -> Outcome:
    """Runs a command line in this process.

    Args:
        arguments: of the command line.
        stdin: what it reads.
        terminal: all three streams are a terminal.
    """
    streams = Stream(stdin, terminal=terminal), Stream(terminal=terminal), Stream(terminal=terminal)
    before = sys.stdin, sys.stdout, sys.stderr
    sys.stdin, sys.stdout, sys.stderr = streams
    try:
        code = run([str(argument) for argument in arguments])
    finally:
        sys.stdin, sys.stdout, sys.stderr = before
    return Outcome(code, streams[1].written(), streams[2].written().decode())
