"""`Skipped`: a record of an internal topic that a replay did not use."""

from __future__ import annotations

from typing import NamedTuple


class Skipped(NamedTuple):
    """A record that a replay skipped: its offset in its partition, and why."""

    offset: int
    why: str
