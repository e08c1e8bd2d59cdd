"""Asking the system to begin writing a file out, so that the sync that comes later has little left to wait for.

Left alone, Linux keeps what is written for half a minute, or until there are gigabytes of it. The sync of a full segment then
writes all of it at once, while the append that filled it waits and the disk has been idle. This promises nothing and waits for
nothing: what is durable is still decided by a sync, and an error of this writing is still that sync's to report.
"""

from __future__ import annotations

import ctypes
import functools
import mmap
import sys
from collections.abc import Callable
from typing import Final

_WRITE: Final = 2  # SYNC_FILE_RANGE_WRITE of <fcntl.h>: begin to write dirty pages, wait for none


@functools.cache
def _function() -> Callable[[int, int, int, int], int] | None:
    """`sync_file_range`, where there is one: on Linux."""
    found = getattr(ctypes.CDLL(None), "sync_file_range", None) if sys.platform == "linux" else None
    if found is not None:
        found.argtypes = [ctypes.c_int, ctypes.c_int64, ctypes.c_int64, ctypes.c_uint]
    return found


def begin_writing_out(descriptor: int, start: int, end: int) -> int:
    """Has the whole pages of a file from `start` to before `end` written out, soon.

    Args:
        descriptor: the file's.
        start, end: positions in bytes. The page that `end` lies in is left out: it is about to be written to again.

    Returns:
        Where to begin the next time.

    Cost: some 0.1 ms for 16 MiB; where the system has no such call, or not for this file, nothing happens.
    """
    whole = end // mmap.PAGESIZE * mmap.PAGESIZE
    function = _function()
    if function is not None and whole > start:
        function(descriptor, start, whole - start, _WRITE)
    return whole
