"""`Board`: what a writer tells the readers of all processes, in a file that each of them maps."""

from __future__ import annotations

import mmap
import struct
from pathlib import Path
from typing import Final

BOARD_SIZE: Final = 40


class Board:
    """The end of the log that the writer vouches for, and the number of its truncations, for readers in all processes."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("r+b")
        self._memory = mmap.mmap(self._file.fileno(), BOARD_SIZE)

    @classmethod
    def new(cls, path: Path) -> Board:
        path.write_bytes(bytes(BOARD_SIZE))
        return cls(path)

    @property
    def end(self) -> int:
        found: int = struct.unpack("q", self._memory[:8])[0]
        return found

    @end.setter
    def end(self, end: int) -> None:
        self._memory[:8] = struct.pack("q", end)

    @property
    def truncations(self) -> int:
        found: int = struct.unpack("q", self._memory[8:16])[0]
        return found

    def has_changed(self, before: int) -> bool:
        """Whether the store was closed or the topic deleted since, or is being: the number is odd meanwhile."""
        return before % 2 == 1 or self.truncations != before

    def note_truncation(self) -> None:
        self._memory[8:16] = struct.pack("q", self.truncations + 1)

    @property
    def is_over(self) -> bool:
        """Whether a writer in another process is to end."""
        return self._memory[16] != 0

    @property
    def changes(self) -> int:
        """How many changes of the kind that a test is about were made."""
        found: int = struct.unpack("q", self._memory[24:32])[0]
        return found

    def note_change(self) -> None:
        self._memory[24:32] = struct.pack("q", self.changes + 1)

    @property
    def trimmed(self) -> int:
        """The offset before which records may be deleted by now."""
        found: int = struct.unpack("q", self._memory[32:])[0]
        return found

    @trimmed.setter
    def trimmed(self, before: int) -> None:
        self._memory[32:] = struct.pack("q", before)

    def end_writing(self) -> None:
        self._memory[16] = 1

    def close(self) -> None:
        self._memory.close()
        self._file.close()
