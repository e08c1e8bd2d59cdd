"""Reads the control record of a batch: the usual marker from its bytes, any other one as other records are decoded."""

from __future__ import annotations

import struct
from typing import Final

import numpy as np

from pylog.record.batch import Bytes, Table
from pylog.record.control import ControlRecord, parse_control
from pylog.record.decoder import RecordDecoder
from pylog.record.format import ATTRIBUTES_AT, CODEC_MASK, CONTROL_ABORT, CONTROL_COMMIT, HEADER_SIZE, POSITION, SIZE

# A whole record: its size, attributes, deltas, the key with its size, the value with its size, the number of headers.
_USUAL_MARKER: Final = struct.Struct(">BBBBBhhBhiB")
_USUAL_FRAME: Final = (32, 0, 0, 0, 8, 0, 12, 0, 0)  # sizes are zig-zag varints: twice the number of bytes
_USUAL_SIZE: Final = HEADER_SIZE + _USUAL_MARKER.size
_COUNT_AT: Final = HEADER_SIZE - 4
_ONE: Final = bytes([0, 0, 0, 1])


def usual_marker(batch: memoryview) -> ControlRecord | None:
    """Returns the marker in a batch of one uncompressed record, as every version of Kafka and pylog writes it.

    Args:
        batch: the bytes of a whole control batch.

    Returns:
        None if the batch has any other form: decode its records then.

    >>> usual_marker(memoryview(bytes(78))) is None
    True
    """
    if len(batch) != _USUAL_SIZE or batch[ATTRIBUTES_AT + 1] & CODEC_MASK or batch[_COUNT_AT:HEADER_SIZE] != _ONE:
        return None
    size, attributes, time_delta, offset_delta, key_size, version, kind, value_size, value_version, epoch, headers = (
        _USUAL_MARKER.unpack_from(batch, HEADER_SIZE)
    )
    frame = size, attributes, time_delta, offset_delta, key_size, version, value_size, value_version, headers
    return ControlRecord(kind, epoch) if frame == _USUAL_FRAME and kind in (CONTROL_ABORT, CONTROL_COMMIT) else None


def control_record(buffer: Bytes, table: Table, batch: int) -> ControlRecord | None:
    """Returns the control record of a batch; None if compaction emptied it."""
    start = table.item(POSITION, batch)
    if (usual := usual_marker(buffer[start : start + table.item(SIZE, batch)].data)) is not None:
        return usual
    decoder = RecordDecoder(("key", "value"), verify=False)
    single = np.ascontiguousarray(table[:, batch : batch + 1])
    for frame in (*decoder.feed(buffer, single), *decoder.finish()):
        return parse_control(frame.column(0)[0].as_py(), frame.column(1)[0].as_py())
    return None
