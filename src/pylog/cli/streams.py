"""The standard streams of the program, which work even if they are closed or cannot encode a character."""

from __future__ import annotations

import io
import sys
from typing import Final

from pylog.text import ESCAPES

_NULL_DEVICE: Final = "/dev/null"


class Closed(io.TextIOWrapper):
    """Replaces a closed stream: reading returns nothing, and writes are discarded.

    Args:
        name: name of the stream: `"stdin"`, `"stdout"` or `"stderr"`.
    """

    def __init__(self, name: str) -> None:
        # Opens the null device to occupy the descriptor of the stream. Otherwise the next file opened would get it, and a C
        # library that prints to stderr would write into a log.
        raw = io.FileIO(_NULL_DEVICE, "r" if name == "stdin" else "w")
        super().__init__(io.BufferedReader(raw) if name == "stdin" else io.BufferedWriter(raw), encoding="utf-8")

    def __del__(self) -> None:
        self.close()  # avoids a ResourceWarning: the stream stays open until the program ends


def prepare() -> None:
    """Prepares the streams. The program calls this first."""
    stand_in()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # the default raises in the middle of a table
            stream.reconfigure(errors=ESCAPES)


def stand_in() -> None:
    """Replaces the streams that were closed when the program started, which are None."""
    for name in ("stdin", "stdout", "stderr"):  # in the order of their descriptors: each takes the lowest free one
        if getattr(sys, name) is None:
            setattr(sys, name, Closed(name))
