"""Building blocks of kernels: loads, stores and copies at addresses, varints.

An array used inside an inlined function costs reference counting in the loop (measured: between a fifth and half of the speed).
So a kernel takes arrays, gets their addresses once, and its loops use addresses only; the caller keeps the arrays alive
meanwhile. Nothing here checks bounds: each kernel compares with the end of its buffer before it reads.

With NUMBA_DISABLE_JIT=1 the same kernels run as plain Python on the same addresses. Each load and store is then checked against
the arrays whose addresses were taken: a kernel that would touch any other byte raises.
"""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np

from pylog.record.kernel import INTERPRETED, inlined, late, shared

u8, u32, u64, i64 = np.uint8, np.uint32, np.uint64, np.int64

LINE = 64  # bytes of a cache line

crc32c = late("pylog.record.crc32c", "crc32c")  # of the bytes from an address to another (storage-format 1.3.1)
crc32c_on = late("pylog.record.crc32c", "crc32c_on")  # of bytes with a known CRC-32C, followed by others

if not INTERPRETED:

    def _intrinsic(name: str) -> Any:
        return late("pylog.record.compiled", name)

    address = _intrinsic("address")
    load8, load64 = _intrinsic("load8"), _intrinsic("load64")
    be16, be32, be64 = _intrinsic("be16"), _intrinsic("be32"), _intrinsic("be64")
    store8, store32, store64 = _intrinsic("store8"), _intrinsic("store32"), _intrinsic("store64")
    put16, put32, put64 = _intrinsic("put16"), _intrinsic("put32"), _intrinsic("put64")
    memcpy, memmove, copy32 = _intrinsic("memcpy"), _intrinsic("memmove"), _intrinsic("copy32")
    leading_zeros, prefetch = _intrinsic("leading_zeros"), _intrinsic("prefetch")

else:
    _known: dict[int, tuple[int, Any]] = {}  # address -> (size, array): the arrays that interpreted kernels may touch

    def address(array: Any) -> Any:
        at = int(array.ctypes.data)
        _known.pop(at, None)
        _known[at] = (int(array.nbytes), array)
        if len(_known) > 64:
            del _known[next(iter(_known))]  # the oldest: no kernel takes half as many arrays
        return at

    def _check(at: Any, size: Any) -> int:
        at = int(at)
        if not any(start <= at and at + int(size) <= start + extent for start, (extent, _) in _known.items()):
            raise IndexError(f"a kernel accesses {int(size)} bytes at {at:#x}, outside its arrays")
        return at

    def _pair(size: int, signed: bool, order: Any, kind: Any) -> tuple[Any, Any]:
        def load(at: Any) -> Any:
            return kind(int.from_bytes(ctypes.string_at(_check(at, size), size), order, signed=signed))

        def store(at: Any, value: Any) -> None:
            data = (int(value) & (1 << 8 * size) - 1).to_bytes(size, order)
            ctypes.memmove(_check(at, size), data, size)

        return load, store

    load8, store8 = _pair(1, False, "little", u64)
    load64, store64 = _pair(8, False, "little", u64)
    _, store32 = _pair(4, False, "little", u64)
    be16, put16 = _pair(2, True, "big", int)
    be32, put32 = _pair(4, True, "big", int)
    be64, put64 = _pair(8, True, "big", int)

    def memcpy(target: Any, source: Any, size: Any) -> None:
        ctypes.memmove(_check(target, size), _check(source, size), int(size))

    memmove = memcpy

    def copy32(target: Any, source: Any) -> None:
        memcpy(target, source, 32)

    def prefetch(at: Any) -> None:
        pass

    def leading_zeros(bits: Any) -> int:
        return 64 - int(bits).bit_length()


@inlined
def copy(target, source, size, slack):  # type: ignore[no-untyped-def]
    """Copies `size` bytes. With `slack` (32 bytes after both ends may be touched) short copies use vectors instead of a call."""
    if slack and size <= 256:
        copy32(target, source)
        done = 32
        while done < size:
            copy32(target + done, source + done)
            done += 32
    else:
        memcpy(target, source, size)


@inlined
def clear_bit(bits, index):  # type: ignore[no-untyped-def]
    """Clears one bit of a bitmap, as Arrow counts bits."""
    store8(bits + (index >> 3), i64(load8(bits + (index >> 3))) & ~(1 << (index & 7)))


# ---- varints: storage-format 1.4 -------------------------------------------------------------------------------------------

FAR = 1 << 62  # an address beyond any end: the result of reading a malformed varint


@inlined
def varint(at, end):  # type: ignore[no-untyped-def]
    """Returns (value, next address) of a zig-zag varint; the address is FAR if it is cut off or has more than ten bytes."""
    if at >= end:
        return i64(0), i64(FAR)
    byte = load8(at)
    at += 1
    bits = byte & u64(127)
    shift = u64(0)
    while byte >= u64(128):
        shift += u64(7)
        if at >= end or shift > u64(63):
            return i64(0), i64(FAR)
        byte = load8(at)
        at += 1
        bits |= (byte & u64(127)) << shift
    return i64(bits >> u64(1)) ^ -i64(bits & u64(1)), at


@inlined
def zigzag(value):  # type: ignore[no-untyped-def]
    """Returns the unsigned form of a signed value: 0, -1, 1, -2 become 0, 1, 2, 3."""
    return (u64(i64(value)) << u64(1)) ^ u64(i64(value) >> i64(63))


@inlined
def varint_width(bits):  # type: ignore[no-untyped-def]
    """Returns how many bytes the unsigned form takes: one for each 7 bits, at least one."""
    return (70 - leading_zeros(bits | u64(1))) // 7


@shared
def put_varint(at, bits):  # type: ignore[no-untyped-def]
    """Writes the unsigned form and returns the next address."""
    while bits >= u64(128):
        store8(at, i64((bits & u64(127)) | u64(128)))
        bits >>= u64(7)
        at += 1
    store8(at, i64(bits))
    return at + 1


# ---- sorted tables: O(log n) ------------------------------------------------------------------------------------------------


@inlined
def floor32(at, stride, count, key):  # type: ignore[no-untyped-def]
    """Returns the last index whose int32, at `at + index * stride`, is at most `key`; -1 if there is none."""
    low, high = 0, count
    while low < high:
        middle = (low + high) >> 1
        if be32(at + middle * stride) <= key:
            low = middle + 1
        else:
            high = middle
    return low - 1


@inlined
def floor64(at, stride, count, key):  # type: ignore[no-untyped-def]
    """Does the same for an int64."""
    low, high = 0, count
    while low < high:
        middle = (low + high) >> 1
        if be64(at + middle * stride) <= key:
            low = middle + 1
        else:
            high = middle
    return low - 1
