"""An encoder of values of `__consumer_offsets`, written from Kafka's schemas in the plainest way, for every version."""

from __future__ import annotations

import struct

from pylog.offsets.schema import Commit, GroupMetadata


def uvarint(number: int) -> bytes:
    return bytes([number]) if number < 128 else bytes([number & 127 | 128]) + uvarint(number >> 7)


def sized(data: bytes | None, flexible: bool, form: str = ">h") -> bytes:
    if flexible:
        return uvarint(0 if data is None else len(data) + 1) + (data or b"")
    return struct.pack(form, -1 if data is None else len(data)) + (data or b"")


def reference_offset(version: int, commit: Commit) -> bytes:
    offset, metadata, epoch, timestamp = commit.committed
    found = struct.pack(">hq", version, offset)
    found += struct.pack(">i", -1 if epoch is None else epoch) if version >= 3 else b""
    found += sized(metadata.encode(), version == 4) + struct.pack(">q", timestamp)
    found += struct.pack(">q", -1 if commit.expire_timestamp is None else commit.expire_timestamp) if version == 1 else b""
    return found + (b"\x01\x00\x10" + bytes(16) if version == 4 else b"")  # with a topic's id, as 4.3 writes


def reference_group(version: int, group: GroupMetadata) -> bytes:
    def text(value: str | None) -> bytes:
        return sized(None if value is None else value.encode(), version == 4)

    found = struct.pack(">h", version) + text(group.protocol_type) + struct.pack(">i", group.generation)
    found += text(group.protocol) + text(group.leader)
    found += struct.pack(">q", -1 if group.state_timestamp is None else group.state_timestamp)
    found += uvarint(len(group.members) + 1) if version == 4 else struct.pack(">i", len(group.members))
    for member in group.members:
        found += b"".join(map(text, member[:4])) + struct.pack(">ii", *member[4:6])
        found += b"".join(sized(data, version == 4, ">i") for data in member[6:]) + (b"\0" if version == 4 else b"")
    return found + (b"\0" if version == 4 else b"")
