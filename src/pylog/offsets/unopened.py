"""The names of the groups of a log directory, read without the engine.

Most stores have few commits in `__consumer_offsets`, in batches without compression or transactions, and nothing is unusual about
its files. For all others there is no answer here, and the caller opens the store.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from pylog.errors import PylogError
from pylog.fs import join
from pylog.log.reading.outline import PartitionExtent
from pylog.offsets.image import Image
from pylog.offsets.schema import OFFSETS_TOPIC, group_name
from pylog.record.format import ATTRIBUTES, BASE_OFFSET, COUNT, HEADER_SIZE, LAST_OFFSET, LEADER_EPOCH, SIZE
from pylog.record.header import header_column
from pylog.record.pure_rows import good_crc, parse_rows
from pylog.record.types import TopicPartition
from pylog.segment.names import LOG, file_name
from pylog.unopened import UnopenedDirectory

_MOST_BYTES: Final = 1 << 19  # of all partitions together: some 6,000 commits, 20 ms
_PLAIN: Final = 0x08  # the only attribute that a batch may have here: its timestamps are those of the append


class _UnusualError(Exception):
    """The engine is needed."""


def group_names(unopened: UnopenedDirectory) -> list[str] | None:
    """Returns the names of the groups, sorted, as `OffsetStore.known_groups`; None if the engine is needed.

    Raises:
        PylogError: as `UnopenedDirectory.topics`.

    Cost: 0.2 ms for each partition of `__consumer_offsets`, and 3 µs for each record.
    """
    topic = unopened.topics().get(OFFSETS_TOPIC)
    names: list[str] = []
    left = _MOST_BYTES
    try:
        for number in () if topic is None else topic.partition_ids:
            image, read = _image_of(unopened, TopicPartition(OFFSETS_TOPIC, number), left)
            left -= read
            names += [group_name(name) for name, group in image.groups.items() if group.exists]
    except (_UnusualError, PylogError):
        return None
    return sorted(names)


def _image_of(unopened: UnopenedDirectory, partition: TopicPartition, most: int) -> tuple[Image, int]:
    """Returns the image of a partition, and the bytes read for it."""
    seen = unopened.fast_outline(partition)
    if seen is None:
        if unopened.is_unwritten(partition):
            return Image(), 0
        raise _UnusualError
    image, extent, size = Image(), seen.outline, sum(seen.outline.sizes)
    if extent.start_offset == extent.end_offset:
        return image, 0
    if size > most:
        raise _UnusualError
    for offset, key, value in _records(unopened, partition, extent):
        image.take(offset, key, value)
    if image.skipped_count or not unopened.is_still_so(partition, seen):
        raise _UnusualError
    return image, size


def _records(
    unopened: UnopenedDirectory, partition: TopicPartition, extent: PartitionExtent
) -> Iterator[tuple[int, bytes | None, bytes | None]]:
    """Yields offset, key and value of a partition's records."""
    following, epoch = extent.bases[0], -1
    for base, size in zip(extent.bases, extent.sizes, strict=True):
        file = unopened.fs.open(join(unopened.directory(partition), file_name(base, LOG)))
        try:
            data = bytes(file.read(size, 0))
        finally:
            file.close()
        if len(data) != size or base < following:
            raise _UnusualError
        at = 0
        while at < size:
            column = _plain_column(data, at)
            if column[BASE_OFFSET] < following or column[LEADER_EPOCH] < epoch:
                raise _UnusualError
            batch = data[at : at + column[SIZE]]
            for offset, key, value in _records_in(batch, column):
                if offset >= extent.start_offset:
                    yield offset, key, value
            following, epoch, at = column[LAST_OFFSET] + 1, column[LEADER_EPOCH], at + column[SIZE]
    if following != extent.end_offset:
        raise _UnusualError


def _plain_column(data: bytes, at: int) -> tuple[int, ...]:
    """Returns the header of a batch that is neither compressed nor damaged nor of a transaction."""
    column = header_column(data[at : at + HEADER_SIZE], at)
    if column is None or column[ATTRIBUTES] & ~_PLAIN or at + column[SIZE] > len(data):
        raise _UnusualError
    if not good_crc(data, at, at + column[SIZE]):
        raise _UnusualError
    return column


def _records_in(batch: bytes, column: tuple[int, ...]) -> Iterator[tuple[int, bytes | None, bytes | None]]:
    try:
        rows = parse_rows(batch, column[COUNT], column[LAST_OFFSET] - column[BASE_OFFSET])
    except (ValueError, IndexError) as error:
        raise _UnusualError from error
    for delta, key, value in zip(rows.offset_deltas, rows.keys, rows.values, strict=True):
        yield column[BASE_OFFSET] + delta, key, value
