"""Topic ids, and the file `partition.metadata` that keeps a partition's (storage-format 3.4)."""

from __future__ import annotations

import base64
import binascii
import re
import secrets
from typing import Final

from pylog import limits
from pylog.errors import CorruptionError
from pylog.fs import FileKind, FileSystem, at_most, join
from pylog.segment.names import PARTITION_METADATA


def new_topic_id() -> str:
    """Returns a random topic id: 16 bytes as 22 characters of base64url that do not begin with '-' (storage-format 3.4.3)."""
    while True:
        text = id_text(secrets.token_bytes(16))
        if not text.startswith("-"):
            return text


def id_text(data: bytes) -> str:
    """Returns the 22 characters of an id of 16 bytes.

    >>> id_text(bytes(16))
    'AAAAAAAAAAAAAAAAAAAAAA'
    """
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


def format_partition_metadata(topic_id: str) -> bytes:
    """Returns the content of a `partition.metadata` file, which has no newline at its end (storage-format 3.4.2)."""
    return f"version: 0\ntopic_id: {topic_id}".encode()


def read_topic_id(fs: FileSystem, directory: str) -> str | None:
    """Reads the topic id of a partition's directory; None if it has none (brokers before 2.8, or not yet written).

    Raises:
        CorruptionError: the file does not parse.
    """
    path = join(directory, PARTITION_METADATA)
    data, fault, *_ = METADATA.fetch_derived(fs, path)
    if fault is not None:
        raise CorruptionError(f"{path} cannot be used: {fault}", path=path)
    return METADATA.parsed(data, path) if data else None


def parse_topic_id(data: bytes, path: str) -> str:
    """Parses a `partition.metadata` file (storage-format 3.4.2). Raises CorruptionError if it is not one."""
    match = re.fullmatch(rb"version:\s*\d+\r?\ntopic_id:\s*([A-Za-z0-9_-]{22})\s*", data)
    if match is None:
        raise CorruptionError(f"{path} is not partition metadata", path=path)
    try:
        base64.urlsafe_b64decode(match[1] + b"==")
    except binascii.Error as error:
        raise CorruptionError(f"{path} has no topic id", path=path) from error
    return match[1].decode()


METADATA: Final = FileKind("partition metadata", parse_topic_id, at_most(limits.MARKER_BYTES), "restore it")
