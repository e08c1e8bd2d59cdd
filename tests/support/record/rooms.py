"""Kernels with the rooms that they write to."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from hypothesis import settings

from pylog.record.kernel import INTERPRETED
from support.reference import records as reference
from support.reference.records import Column

EXAMPLES = settings(max_examples=25 if INTERPRETED else 40)
TWO_RECORDS = bytes.fromhex(  # storage-format A.2
    "0000000000000000 00000055 ffffffff 02 e58cf1ff 0000 00000001 00000000000454c3 00000000000454c3"
    "ffffffffffffffff ffff ffffffff 00000002 2000000008 6b657931 0c 76616c756531 00 2400e1bf220208 6b657932 0c 76616c756532 00"
)


def wrapping_integers() -> Iterator[None]:
    """Interpreted, sums wrap as the compiled ones do, but numpy would warn of it."""
    with np.errstate(over="ignore"):
        yield


def columns_in(data: bytes) -> list[Column]:
    return reference.scan_batches(data, 0, len(data), verify=False, capacity=99)[0]
