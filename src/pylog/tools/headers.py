"""Every batch header of a partition, segment by segment, and what is damaged in between: the pass that tools make over a log.

Files are read, never mapped, and no index is asked or made: it works on sick directories, and beside whoever writes.
"""

from __future__ import annotations

from collections.abc import Iterator

from pylog.errors import StorageFailedError
from pylog.log.report import Partition
from pylog.log.walk import Stretch, walk
from pylog.segment.segment import LogSegment, vanished


def stretches(partition: Partition) -> Iterator[tuple[LogSegment, Stretch]]:
    """The good batches of a partition as tables, with the segment that they lie in; checksums are looked at.

    Args:
        partition: as it was published at one moment; what is appended meanwhile is not seen.

    Raises:
        StorageFailedError: a file cannot be read. One that retention has removed meanwhile is left out.

    Cost: one read of the log; memory for a chunk, or for the largest batch.
    """
    for segment, following in partition.segments():
        try:
            for stretch in walk(segment, 0, partition.state.size_of(segment), following, verify=True):
                yield segment, stretch
        except StorageFailedError as error:
            if not vanished(error):
                raise
        finally:
            segment.release()
