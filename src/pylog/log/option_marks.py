"""The marks of topic options in the headers of partitions. Imports no kernels, because planning reads headers too."""

from __future__ import annotations

import functools
import hashlib
from typing import Final

from pylog.config import TopicConfig

EPOCH_BITS: Final = 44  # of a header's epoch number; the bits above hold the mark
_MARK_BITS: Final = 20
_NUMBERS: Final = (1 << EPOCH_BITS) - 1


@functools.lru_cache(1024)
def mark_of(config: TopicConfig) -> int:
    """Returns the mark of a version of the options for headers: 20 bits of a hash, never 0."""
    changed = ",".join(f"{name}={value!r}" for name, value in sorted(config.changed().items()))
    return int.from_bytes(hashlib.blake2b(changed.encode(), digest_size=8).digest(), "little") % ((1 << _MARK_BITS) - 1) + 1


def marked(epoch: int, mark: int) -> int:
    """Returns an epoch number with another mark.

    >>> marked(6, 1) == (1 << 44) + 6
    True
    """
    return (epoch & _NUMBERS) | (mark << EPOCH_BITS)


def mark_in(epoch: int) -> int:
    """Returns the mark of an epoch number; 0 in a header written by an older pylog."""
    return epoch >> EPOCH_BITS
