"""Constants of Kafka's record formats (storage-format 1 and 2).

Positions are relative to the start of a batch. Sizes are derived, and checked when this module is imported.
"""

from __future__ import annotations

import struct
from typing import Final

# Every format: storage-format 1.1.1.
OFFSET_AT: Final = 0
LENGTH_AT: Final = 8
MAGIC_AT: Final = 16
LOG_OVERHEAD: Final = 12  # bytes that the length field excludes
FRAME_SIZE: Final = 17  # offset, length, four bytes, magic: enough to classify a batch

# Magic 2: storage-format 1.1.
LEADER_EPOCH_AT: Final = 12
CRC_AT: Final = 17
ATTRIBUTES_AT: Final = 21  # the CRC covers everything from here to the end
MAX_TIMESTAMP_AT: Final = 35
PRODUCER_ID_AT: Final = 43
HEADER_SIZE: Final = 61
HEADER: Final = struct.Struct(">qiibIhiqqqhii")  # base offset … records count, in the order above
OFFSETS_AND_LENGTH: Final = struct.Struct(">qi11xi")  # of the header: base offset, batch length, last offset delta
HEADER_FRONT: Final = struct.Struct(">qiibI")  # the fields outside a batch's CRC, and the CRC
PREFIX_SIZE: Final = HEADER_FRONT.size
HEADER_CHECKED: Final = struct.Struct(">hiqqqhii")  # the header fields that the CRC covers
assert HEADER.size == HEADER_SIZE == HEADER_FRONT.size + HEADER_CHECKED.size

# Magic 0 and 1: storage-format 2.1.
LEGACY_CRC_AT: Final = 12
LEGACY_TIMESTAMP_AT: Final = 18
LEGACY_HEADER_SIZE: Final = (26, 34)  # whole entry with null key and value: overhead 12 + 14, 12 + 22
MIN_LENGTH: Final = 14  # the smallest legal length field of any format

# Attributes: storage-format 1.2.
CODEC_MASK: Final = 0x07
LOG_APPEND_TIME_BIT: Final = 0x08
TRANSACTIONAL_BIT: Final = 0x10
CONTROL_BIT: Final = 0x20
DELETE_HORIZON_BIT: Final = 0x40

# Codecs: storage-format 1.2, bits 0-2.
CODEC_NONE: Final = 0
CODEC_GZIP: Final = 1
CODEC_SNAPPY: Final = 2
CODEC_LZ4: Final = 3
CODEC_ZSTD: Final = 4
CODEC_NAMES: Final = ("none", "gzip", "snappy", "lz4", "zstd")

# Timestamp types, numbered as Kafka's clients number them.
NO_TIMESTAMP_TYPE: Final = -1
CREATE_TIME: Final = 0
LOG_APPEND_TIME: Final = 1

# "None" in the fields of a header.
NO_TIMESTAMP: Final = -1
NO_SEQUENCE: Final = -1

# Control records: storage-format 1.8.2.
CONTROL_ABORT: Final = 0
CONTROL_COMMIT: Final = 1
LARGEST_MARKER: Final = 100  # bytes of a batch, rounded up: Kafka's markers have 78

# The rows of the table that `scan_batches` fills, with one column per batch (record/batch.py). All int64.
POSITION: Final = 0  # position of the batch in the buffer, bytes
SIZE: Final = 1  # size of the whole batch, bytes
BASE_OFFSET: Final = 2
LAST_OFFSET: Final = 3
COUNT: Final = 4  # records; -1 for magic 0 and 1, which do not store it
BASE_TIMESTAMP: Final = 5
MAX_TIMESTAMP: Final = 6
ATTRIBUTES: Final = 7
MAGIC: Final = 8
LEADER_EPOCH: Final = 9
PRODUCER_ID: Final = 10
PRODUCER_EPOCH: Final = 11
BASE_SEQUENCE: Final = 12
CRC: Final = 13  # as stored
CRC_STATE: Final = 14  # one of the three below
COLUMN_COUNT: Final = 15

CRC_BAD: Final = 0
CRC_GOOD: Final = 1
CRC_UNCHECKED: Final = 2  # not requested; or magic 0 and 1, whose CRC is different
