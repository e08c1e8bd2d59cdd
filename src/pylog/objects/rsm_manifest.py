"""The `.rsm-manifest` objects of Aiven's plugin, for segments that are neither compressed nor encrypted. Pure.

The plugin's format, version 1. `chunkIndex` of the type `fixed` describes chunks of one size; plain data is the same in any
chunks, so pylog writes one size for all segments. `remoteLogSegmentMetadata` has what Kafka keeps in `__remote_log_metadata`.
"""

from __future__ import annotations

from typing import Final

import msgspec

from pylog.objects.layout import ArchivedPartition
from pylog.objects.manifest import BUNDLED, SEAL, TRANSACTION, RemoteSegment

CHUNK_BYTES: Final = 4 << 20  # what the plugin recommends
_BROKER: Final = 0


def encode_rsm_manifest(partition: ArchivedPartition, segment: RemoteSegment, written_ms: int) -> bytes:
    """Returns the bytes of a segment's `.rsm-manifest`.

    Args:
        partition: the segment's.
        segment: its description.
        written_ms: time of the upload, in milliseconds since 1970.
    """
    return msgspec.json.encode(
        {
            "version": "1",
            "chunkIndex": _chunks(segment.size),
            "segmentIndexes": {name: _piece(segment, name) for name in BUNDLED if name != SEAL},
            "compression": False,
            "remoteLogSegmentMetadata": _metadata(partition, segment, written_ms),
        }
    )


def _chunks(size: int) -> dict[str, object]:
    last = size % CHUNK_BYTES or min(size, CHUNK_BYTES)
    return {
        "type": "fixed",
        "originalChunkSize": CHUNK_BYTES,
        "originalFileSize": size,
        "transformedChunkSize": CHUNK_BYTES,
        "finalTransformedChunkSize": last,
    }


def _piece(segment: RemoteSegment, name: str) -> dict[str, int] | None:
    """Returns the place of a small file. The plugin requires all of them except the transaction index."""
    found = segment.indexes.get(name)
    if found is None:
        return None if name == TRANSACTION else {"position": 0, "size": 0}
    return {"position": found.position, "size": found.size}


def _metadata(partition: ArchivedPartition, segment: RemoteSegment, written_ms: int) -> dict[str, object]:
    names = {"topic": partition.topic, "partition": partition.partition}
    return {
        "remoteLogSegmentId": {
            "topicIdPartition": {"topicId": partition.topic_id, "topicPartition": names},
            "id": segment.segment_id,
        },
        "startOffset": segment.base_offset,
        "endOffset": segment.end_offset - 1,
        "maxTimestampMs": segment.max_timestamp,
        "brokerId": _BROKER,
        "eventTimestampMs": written_ms,
        "segmentLeaderEpochs": {str(epoch): start for epoch, start in segment.epochs},
    }
