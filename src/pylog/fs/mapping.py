"""Maps files into memory without keeping a descriptor.

Python's `mmap.mmap` keeps a duplicate of the descriptor that it was made with, as long as the mapping exists. A store that maps
hundreds of segments and their indexes would use up the descriptors of its process.
"""

from __future__ import annotations

import ctypes
import mmap
import os
from typing import Any, Final

from pylog.fs.protocols import Bytes

_LIBC: Final = ctypes.CDLL(None, use_errno=True)
_FAILED: Final = ctypes.c_void_p(-1).value
_mmap: Final = _LIBC.mmap
_mmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_int64)
_mmap.restype = ctypes.c_void_p
_munmap: Final = _LIBC.munmap
_munmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t)
_madvise: Final = _LIBC.madvise
_madvise.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)


class Mapping:
    """A whole file in memory, read-only. It is unmapped when the last array that shows it is collected.

    Args:
        descriptor: the file's descriptor; it may be closed afterwards.
        size: the size of the file in bytes, more than 0.

    Raises:
        OSError: the file cannot be mapped.
    """

    __slots__ = ("__array_interface__", "__weakref__", "_address", "size")

    _address: int | None
    size: int
    __array_interface__: dict[str, Any]

    def __init__(self, descriptor: int, size: int) -> None:
        self._address = None
        address = _mmap(None, size, mmap.PROT_READ, mmap.MAP_SHARED, descriptor, 0)
        if address in (None, _FAILED):
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number))
        self._address, self.size = address, size
        self.__array_interface__ = {"shape": (size,), "typestr": "|u1", "data": (address, True), "version": 3}

    def array(self) -> Bytes:
        """Returns the bytes. The array keeps the mapping, and so does each view of it."""
        return array_of(self)

    def give_back(self, start: int, size: int) -> None:
        """Gives pages back to the system, which reads them again when they are touched. A failure is harmless.

        Args:
            start: in bytes, a multiple of a page.
            size: in bytes; bytes past the mapping do not count.
        """
        assert self._address is not None
        _madvise(self._address + start, min(size, self.size - start), mmap.MADV_DONTNEED)

    def __del__(self, unmap: Any = _munmap) -> None:
        address, self._address = self._address, None
        if address is not None:
            unmap(address, self.size)


def array_of(source: Mapping | bytes) -> Bytes:
    """Returns the bytes of a mapping or of an object as a read-only array, without a copy."""
    import numpy as np

    return np.asarray(source) if isinstance(source, Mapping) else np.frombuffer(source, np.uint8)
