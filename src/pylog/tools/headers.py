"""A pass over all batch headers of a partition, segment by segment, and the damage between them.

Files are read, not mapped, and indexes are neither used nor built. So it works on damaged directories and while another process
writes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pylog.errors import StorageFailedError
from pylog.log.checking.report import Partition
from pylog.segment.batch_walk import WalkedRange, walk
from pylog.segment.segment import LogSegment, vanished

Segments = Sequence[tuple[LogSegment, int | None]]  # each with the base offset of the next one


def walked_ranges(partition: Partition, segments: Segments | None = None) -> Iterator[tuple[LogSegment, WalkedRange]]:
    """Yields the good batches of a partition as tables, with their segment. Checks checksums.

    Args:
        partition: a snapshot of the partition; later appends are not read.
        segments: only these of its segments; None for all.

    Raises:
        StorageFailedError: a file cannot be read. Segments that retention deletes meanwhile are skipped.

    Cost: one read of the log; memory for a chunk, or for the largest batch.
    """
    for segment, following in partition.segments() if segments is None else segments:
        try:
            for walked in walk(segment, 0, partition.state.size_of(segment), following, verify=True):
                yield segment, walked
        except StorageFailedError as error:
            if not vanished(error):
                raise
        finally:
            segment.release()
