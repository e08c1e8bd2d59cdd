"""A kernel that returns the digest of some bytes, so that tests compare it with the reference."""

from __future__ import annotations

from typing import Any

from pylog.record.compacting import digest
from pylog.record.kernel import kernel
from pylog.record.memory import address
from pylog.record.signatures import BYTES, INT64, OUT_WORDS, UINT64, VOID


@kernel(VOID(BYTES, INT64, INT64, UINT64, UINT64, OUT_WORDS), nogil=False)
def key_digest(buffer: Any, position: int, end: int, k0: int, k1: int, out: Any) -> None:
    """Writes the digest of `buffer[position:end]` to the first two words of `out`; nothing if the range is outside the buffer."""
    if 0 <= position <= end <= buffer.size and out.size >= 2:
        high, low = digest(address(buffer) + position, end - position, k0, k1)
        out[0] = high
        out[1] = low
