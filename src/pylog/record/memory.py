"""Building blocks of kernels: loads, stores and copies at addresses, varints.

An array used inside an inlined function costs reference counting in the loop (measured: between a fifth and half of the speed).
So a kernel takes arrays, gets their addresses once, and its loops use addresses only; the caller keeps the arrays alive
meanwhile. Nothing here checks bounds: each kernel compares with the end of its buffer before it reads.

With NUMBA_DISABLE_JIT=1 the same kernels run as plain Python on the same addresses. Each load and store is then checked against
the arrays whose addresses were taken: a kernel that would touch any other byte raises.
"""

from __future__ import annotations

import ctypes
import functools
import hashlib
from importlib import resources
from typing import Any

import numpy as np
import numpy.ma  # numba uses it at a kernel's first call, where several threads may import it at once
from llvmlite import ir
from numba import config, njit, types
from numba.core import cgutils
from numba.core.caching import FunctionCache
from numba.core.compiler_lock import global_compiler_lock
from numba.extending import intrinsic
from numba.np.arrayobj import make_array

from pylog.fs import hold_over_forks

u8, u32, u64, i64 = np.uint8, np.uint32, np.uint64, np.int64

# Argument types of kernels: bytes are always passed as read-only arrays, so that one compiled version serves all.
BYTES = types.Array(types.uint8, 1, "C", readonly=True)
OUT_BYTES = types.uint8[::1]
OUT_INTS = types.int32[::1]
OUT_LONGS = types.int64[::1]
OUT_TABLE = types.int64[:, ::1]

INTERPRETED = bool(config.DISABLE_JIT)

SOURCES = ("index", "record", "limits.py")  # files of the package that contain helpers and constants of kernels

I8, I32, I64 = ir.IntType(8), ir.IntType(32), ir.IntType(64)
_V32 = ir.VectorType(I8, 32)


def kernel(signature: Any, *, nogil: bool = True) -> Any:
    """Declares a kernel with explicit types. It is compiled when first called, and cached on disk if possible.

    A kernel that runs less than about 10 µs keeps the GIL: among busy threads, taking it again costs more than the kernel.
    """

    def decorate(function: Any) -> Any:
        if INTERPRETED:
            return function
        return _LazyKernel(function, signature, nogil)

    return decorate


@functools.cache
def source_digest() -> str:
    """Returns a digest of the sources of all kernels. Cost: 2 ms, once in a process."""
    digest = hashlib.blake2b(digest_size=8)
    for name in SOURCES:
        part = resources.files("pylog") / name
        files = sorted(part.iterdir(), key=lambda file: file.name) if part.is_dir() else [part]
        for file in files:
            if file.name.endswith(".py"):
                digest.update(file.read_bytes())
    return digest.hexdigest()


class _LazyKernel:
    """A kernel that is compiled, or loaded from numba's cache, when it is first called instead of when it is imported."""

    def __init__(self, function: Any, signature: Any, nogil: bool) -> None:
        self.py_func = function
        self._signature = signature
        self._nogil = nogil
        self._compiled: Any = None
        self.__doc__ = function.__doc__
        self.__name__ = function.__name__

    def compile(self) -> Any:
        """Compiles the kernel, once, even if several threads call it first at the same moment."""
        with global_compiler_lock:
            return self._compiled or self._compile()

    def _compile(self) -> Any:
        """Compiles the kernel. numba's cache compares only the kernel's own file, so the kernel's name depends on the other
        files too: after an upgrade an old kernel would otherwise use old constants.
        """
        self.py_func.__qualname__ = f"{self.__name__}.{source_digest()}"
        try:
            self._compiled = self._made(cache=True)
        except Exception as error:  # noqa: BLE001 - cache errors are of many kinds; a compilation error is raised again
            self._compiled = self._made(cache=self._is_healed(error))
        return self._compiled

    def _made(self, *, cache: bool) -> Any:
        return njit(self._signature, nogil=self._nogil, cache=cache)(self.py_func)

    def _is_healed(self, error: Exception) -> bool:
        """Removes this kernel from the cache if that caused the error: a power loss leaves cache files short or empty."""
        if isinstance(error, OSError | RuntimeError):  # OSError: the cache cannot be written; RuntimeError: it has no directory
            return False
        try:
            FunctionCache(self.py_func).flush()
        except (OSError, RuntimeError):
            return False
        return True

    def __call__(self, *arguments: Any) -> Any:
        return (self._compiled or self.compile())(*arguments)


def emit_prefetch(b: Any, at: Any) -> None:
    """Emits the instruction that prefetches a cache line, in a kernel under construction."""
    kind = ir.FunctionType(ir.VoidType(), [I8.as_pointer(), I32, I32, I32])
    function = cgutils.get_or_insert_function(b.module, kind, "llvm.prefetch.p0")
    b.call(function, [b.inttoptr(at, I8.as_pointer()), I32(0), I32(3), I32(1)])


if not INTERPRETED:
    hold_over_forks(global_compiler_lock.acquire, global_compiler_lock.release)  # a fork waits for a running compilation

    inlined = njit(forceinline=True)
    shared = njit(nogil=True)  # called, not inlined: inlining a widely used helper would slow the compilation of its callers

    @intrinsic
    def address(typingctx: Any, array: Any) -> Any:
        """Returns the address of an array's first byte."""

        def codegen(ctx: Any, b: Any, sig: Any, args: Any) -> Any:
            return b.ptrtoint(make_array(sig.args[0])(ctx, b, args[0]).data, I64)

        return types.int64(array), codegen

    def _loader(bits: int, swap: bool) -> Any:
        @intrinsic
        def load(typingctx: Any, at: Any) -> Any:
            def codegen(ctx: Any, b: Any, sig: Any, args: Any) -> Any:
                kind = ir.IntType(bits)
                value = b.load(b.inttoptr(args[0], kind.as_pointer()), align=1)
                if swap:
                    value = b.bswap(value)
                return value if bits == 64 else b.sext(value, I64) if swap else b.zext(value, I64)

            return (types.int64 if swap else types.uint64)(types.int64), codegen

        return load

    def _storer(bits: int, swap: bool) -> Any:
        @intrinsic
        def store(typingctx: Any, at: Any, value: Any) -> Any:
            def codegen(ctx: Any, b: Any, sig: Any, args: Any) -> Any:
                kind = ir.IntType(bits)
                stored = args[1] if bits == 64 else b.trunc(args[1], kind)
                if swap:
                    stored = b.bswap(stored)
                b.store(stored, b.inttoptr(args[0], kind.as_pointer()), align=1)
                return ctx.get_dummy_value()

            return types.void(types.int64, types.int64), codegen

        return store

    load8, load64 = _loader(8, False), _loader(64, False)
    be16, be32, be64 = _loader(16, True), _loader(32, True), _loader(64, True)
    store8, store32, store64 = _storer(8, False), _storer(32, False), _storer(64, False)
    put16, put32, put64 = _storer(16, True), _storer(32, True), _storer(64, True)

    def _copier(raw: Any) -> Any:
        @intrinsic
        def copy(typingctx: Any, target: Any, source: Any, size: Any) -> Any:
            def codegen(ctx: Any, b: Any, sig: Any, args: Any) -> Any:
                pointers = [b.inttoptr(arg, I8.as_pointer()) for arg in args[:2]]
                raw(b, pointers[0], pointers[1], args[2], 1)
                return ctx.get_dummy_value()

            return types.void(types.int64, types.int64, types.int64), codegen

        return copy

    memcpy = _copier(cgutils.raw_memcpy)  # of `size` bytes; the two regions must not overlap
    memmove = _copier(cgutils.raw_memmove)  # the same for regions that may overlap

    @intrinsic
    def copy32(typingctx: Any, target: Any, source: Any) -> Any:
        """Copies exactly 32 bytes: one vector load and one store."""

        def codegen(ctx: Any, b: Any, sig: Any, args: Any) -> Any:
            value = b.load(b.inttoptr(args[1], _V32.as_pointer()), align=1)
            b.store(value, b.inttoptr(args[0], _V32.as_pointer()), align=1)
            return ctx.get_dummy_value()

        return types.void(types.int64, types.int64), codegen

    @intrinsic
    def leading_zeros(typingctx: Any, bits: Any) -> Any:
        """Returns how many of 64 bits are zero before the first one bit; 64 for 0."""

        def codegen(ctx: Any, b: Any, sig: Any, args: Any) -> Any:
            return b.ctlz(args[0], ir.IntType(1)(0))

        return types.int64(types.uint64), codegen

    @intrinsic
    def prefetch(typingctx: Any, at: Any) -> Any:
        """Prefetches a cache line before its use; any address is allowed."""

        def codegen(ctx: Any, b: Any, sig: Any, args: Any) -> Any:
            emit_prefetch(b, args[0])
            return ctx.get_dummy_value()

        return types.void(types.int64), codegen

else:
    _known: dict[int, tuple[int, Any]] = {}  # address -> (size, array): the arrays that interpreted kernels may touch

    def inlined(function: Any) -> Any:
        return function

    shared = inlined

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
