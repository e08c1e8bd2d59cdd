"""The three standard streams of the program: all of them are there, whoever started it, and nothing printed stops it."""

from __future__ import annotations

import io
import sys
from typing import Final

from pylog.text import ESCAPES

_NULL_DEVICE: Final = "/dev/null"


class Closed(io.TextIOWrapper):
    """Stands for a stream that nobody has: nothing comes from it, and what is printed on it is gone.

    Args:
        name: of the stream: `"stdin"`, `"stdout"` or `"stderr"`.
    """

    def __init__(self, name: str) -> None:
        # The device, not memory: its descriptor is the stream's own, which the next file opened would have otherwise. What C
        # libraries print there would be written into a log.
        raw = io.FileIO(_NULL_DEVICE, "r" if name == "stdin" else "w")
        super().__init__(io.BufferedReader(raw) if name == "stdin" else io.BufferedWriter(raw), encoding="utf-8")

    def __del__(self) -> None:
        self.close()  # without the warning that nobody had closed it: it is wanted until the program ends


def prepare() -> None:
    """What the program begins with."""
    stand_in()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # Python's own choice is to raise in the midst of a table
            stream.reconfigure(errors=ESCAPES)


def stand_in() -> None:
    """Puts something in place of the streams that were closed when the program began: they are None then."""
    for name in ("stdin", "stdout", "stderr"):  # in the order of their descriptors: each gets the lowest that is free
        if getattr(sys, name) is None:
            setattr(sys, name, Closed(name))
