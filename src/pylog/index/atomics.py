"""Loads and stores of one int32 that threads share: kernels publish and follow links with them.

A thread that sees the value of a `release32` through `acquire32` also sees everything stored before it, on every processor. On
x86 both are plain moves, on ARM `ldar` and `stlr`. The compiler may not repeat, drop or reorder them.
"""

# ruff: noqa: ARG001 -- numba gives an intrinsic's parameters by name and its code generator's by position, used or not

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from pylog.record.memory import INTERPRETED

_I32, _I64 = ir.IntType(32), ir.IntType(64)

if not INTERPRETED:

    @intrinsic
    def acquire32(typingctx: Any, at: Any) -> Any:
        """Loads the int32 at an address divisible by four."""

        def codegen(ctx: Any, b: Any, sig: Any, args: Any) -> Any:
            value = b.load_atomic(b.inttoptr(args[0], _I32.as_pointer()), "acquire", 4)
            return b.sext(value, _I64)

        return types.int64(types.int64), codegen

    @intrinsic
    def release32(typingctx: Any, at: Any, value: Any) -> Any:
        """Stores an int32 at an address divisible by four."""

        def codegen(ctx: Any, b: Any, sig: Any, args: Any) -> Any:
            b.store_atomic(b.trunc(args[1], _I32), b.inttoptr(args[0], _I32.as_pointer()), "release", 4)
            return ctx.get_dummy_value()

        return types.void(types.int64, types.int64), codegen

else:
    import sys

    from pylog.record.memory import load8, store8

    def acquire32(at: Any) -> Any:
        data = bytes(int(load8(at + byte)) for byte in range(4))
        return int.from_bytes(data, sys.byteorder, signed=True)

    def release32(at: Any, value: Any) -> None:
        for byte, stored in enumerate(int(value).to_bytes(4, sys.byteorder, signed=True)):
            store8(at + byte, stored)
