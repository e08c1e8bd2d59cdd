"""aiokafka's ways to write offsets that are committed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pylog.record.types import OffsetAndMetadata, TopicPartition


def commit_structure_validate(offsets: Mapping[TopicPartition, Any]) -> dict[Any, OffsetAndMetadata]:
    """Returns offsets as pylog takes them.

    Args:
        offsets: by partition, an offset, or an offset and a text.

    Raises:
        ValueError: there are none, or one has another form. TypeError: a key is no partition, or a text is none.

    >>> commit_structure_validate({TopicPartition("orders", 0): (7, "note")})[TopicPartition("orders", 0)].metadata
    'note'
    """
    if not offsets or not isinstance(offsets, dict):
        raise ValueError(f"offsets={offsets!r} is not a dict with offsets by partition")
    found: dict[Any, OffsetAndMetadata] = {}
    for partition, given in offsets.items():
        if not isinstance(partition, TopicPartition):
            raise TypeError(f"Key should be TopicPartition instance, not {partition!r}")
        if isinstance(given, int):
            found[partition] = OffsetAndMetadata(given)
            continue
        try:
            offset, metadata = given
        except (TypeError, ValueError) as error:
            raise ValueError(f"{given!r} is neither an offset nor a pair of an offset and a text") from error
        if not isinstance(metadata, str):
            raise TypeError(f"Metadata should be a string, not {metadata!r}")
        found[partition] = OffsetAndMetadata(offset, metadata)
    return found
