"""Kafka's index files: sorted big-endian entries without header or checksum (storage-format 4 and 5).

An offset entry has 8 bytes: relative offset, position. A time entry has 12: timestamp, relative offset.
"""

from __future__ import annotations

import struct
from typing import Final

OFFSET_ENTRY_SIZE: Final = 8
POSITION_AT: Final = 4
TIME_ENTRY_SIZE: Final = 12
TIME_OFFSET_AT: Final = 8
OFFSET_FIELDS: Final = struct.Struct(">ii")  # of an offset entry: relative offset, position
TIME_FIELDS: Final = struct.Struct(">qi")  # of a time entry: timestamp, relative offset
