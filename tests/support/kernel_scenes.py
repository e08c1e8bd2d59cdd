"""Scenes for the events of kernels; see `support.scenes`."""

from __future__ import annotations

from pathlib import Path
from types import FunctionType
from unittest.mock import patch

import pylog
from pylog.record.kernel import INTERPRETED, KERNELS, WORK, Kernel, kernel
from pylog.record.signatures import INT64
from support.scenes import scene


def _doubled(number: int) -> int:
    return 2 * number


@scene("KERNEL_COMPILED")
def a_kernel_is_compiled(_: Path) -> None:
    nowhere = _doubled.__code__.replace(co_filename="<no file>")  # numba caches no function that is in no file
    if not INTERPRETED:
        made = kernel(INT64(INT64))(FunctionType(nowhere, {}))
        KERNELS.remove(made)  # `pylog warm` would compile it, too
        assert made.compile()(21) == 42


@scene("COMPILER_REFUSED")
def the_compiler_is_not_loaded(_: Path) -> None:
    made = Kernel(_doubled, INT64(INT64), True, None)
    KERNELS.remove(made)
    with patch.object(WORK, "refusal", ""), patch.object(made, "_compile", side_effect=MemoryError):
        try:
            made.compile()
        except pylog.StorageFailedError:
            return
        raise AssertionError("a kernel was compiled without a compiler")
