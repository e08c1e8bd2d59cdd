"""Compiles kernels: numba, and instructions that its own functions do not offer.

Only `record.kernel` imports this module, when it compiles the first kernel: numba takes half a second to import.
"""

# ruff: noqa: ARG001 -- numba gives an intrinsic's parameters by name and its code generator's by position, used or not

from __future__ import annotations

from typing import Any

import numpy.ma  # noqa: F401 - numba uses it at a kernel's first call, where several threads may import it at once
from llvmlite import ir
from numba import njit, types
from numba.core import cgutils
from numba.core.caching import FunctionCache
from numba.core.compiler_lock import global_compiler_lock
from numba.core.registry import cpu_target
from numba.extending import intrinsic
from numba.np.arrayobj import make_array

I8, I32, I64 = ir.IntType(8), ir.IntType(32), ir.IntType(64)
_V32 = ir.VectorType(I8, 32)

LOCK = global_compiler_lock  # of numba, which all compilations of a process share

inlined = njit(forceinline=True)
shared = njit(nogil=True)


def compiled(function: Any, signature: str, *, nogil: bool) -> Any:
    """Compiles a kernel, or loads it from numba's cache."""

    def made(*, cache: bool) -> Any:
        return njit(signature, nogil=nogil, cache=cache)(function)

    try:
        return made(cache=True)
    except Exception as error:  # noqa: BLE001 - cache errors are of many kinds; a compilation error is raised again
        return made(cache=_is_healed(function, error))


def came_from_cache(kernel: Any) -> bool:
    """Returns whether a kernel was loaded from numba's cache."""
    return bool(kernel.stats.cache_hits)


def type_of(value: Any) -> Any:
    """Returns numba's type of a helper, which may have been made after numba last looked for new ones."""
    context = cpu_target.typing_context
    context.refresh()
    return context.resolve_value_type(value)


def _is_healed(function: Any, error: Exception) -> bool:
    """Removes a kernel from the cache if that caused the error: a power loss leaves cache files short or empty."""
    if isinstance(error, OSError | RuntimeError):  # OSError: the cache cannot be written; RuntimeError: it has no directory
        return False
    try:
        FunctionCache(function).flush()
    except (OSError, RuntimeError):
        return False
    return True


def cache_path(function: Any) -> str | None:
    """Returns the directory where numba caches a function; None if no directory is writable."""
    try:
        return str(FunctionCache(function).cache_path)
    except RuntimeError:
        return None


def emit_prefetch(b: Any, at: Any) -> None:
    """Emits the instruction that prefetches a cache line, in a kernel under construction."""
    kind = ir.FunctionType(ir.VoidType(), [I8.as_pointer(), I32, I32, I32])
    function = cgutils.get_or_insert_function(b.module, kind, "llvm.prefetch.p0")
    b.call(function, [b.inttoptr(at, I8.as_pointer()), I32(0), I32(3), I32(1)])


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
