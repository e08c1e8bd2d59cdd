"""The documents of an archive: bytes and back, damage, and the walk to the newest version."""

from __future__ import annotations

import base64
import json
import logging
from contextlib import suppress
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import pylog
from pylog.objects.layout import (
    DOCUMENT,
    INDEXES,
    LOG,
    RSM_MANIFEST,
    ArchivedPartition,
    new_segment_id,
    parse_segment_key,
    segment_key,
    version_key,
)
from pylog.objects.manifest import (
    ArchivedTopic,
    BundlePiece,
    Manifest,
    RemoteSegment,
    StoreManifest,
    decode_manifest,
    decode_store,
    encode,
)
from pylog.objects.partition_manifests import manifests_of
from pylog.objects.rsm_manifest import encode_rsm_manifest
from pylog.objects.segment_catalogue import catalogue_of, catalogues_of, decode_catalogue, encode_catalogue
from support.objects import AFTER, BEFORE, MemoryObjects

TOPIC_ID = "8SSgzKVaS0qTG9g3Uu47gg"
PARTITION = ArchivedPartition("orders", TOPIC_ID, 3)


def segment(base: int, end: int, **given: Any) -> RemoteSegment:
    pieces = {"offset": BundlePiece(0, 8), "timestamp": BundlePiece(8, 12)}
    known: dict[str, Any] = {"size": 100, "log_crc32c": 1, "indexes_crc32c": 2, "indexes_size": 20, "indexes": pieces}
    return RemoteSegment(base_offset=base, end_offset=end, segment_id=new_segment_id(), **known | given)


def manifest(version: int = 1, *segments: RemoteSegment, **given: Any) -> Manifest:
    known: dict[str, Any] = {"store_id": "store", "writer": "writer", "written_ms": 5, "topic": "orders", "topic_id": TOPIC_ID}
    return Manifest(version=version, partition=3, segments=segments, **known | given)


def same(one: Manifest, other: Manifest) -> bool:
    return msgspec.structs.replace(one, crc32c="") == msgspec.structs.replace(other, crc32c="")


@settings(max_examples=30, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 50), st.integers(0, 2**31 - 1), st.booleans(), st.integers(-1, 2**62)), max_size=8))
def test_a_manifest_is_read_as_it_was_written(rows: list[tuple[int, int, bool, int]]) -> None:
    segments, end = [], 0
    for count, size, aborted, timestamp in rows:
        segments.append(segment(end, end + count, size=size, has_aborted=aborted, max_timestamp=timestamp, epochs=((0, end),)))
        end += count
    written = manifest(9, *segments, start_offset=2)
    read = decode_manifest(encode(written), "x")
    assert same(read, written)
    assert read.end_offset == max(2, end)


def test_any_flipped_bit_of_a_manifest_is_seen() -> None:
    data = encode(manifest(1, segment(0, 10)))
    for at in range(0, len(data) * 8, 7):
        damaged = bytearray(data)
        damaged[at // 8] ^= 1 << at % 8
        with suppress(pylog.CorruptionError, pylog.UnsupportedFormatError):
            assert encode(decode_manifest(bytes(damaged), "s3://x/y")) == data  # a bit of the frame that means nothing


@pytest.mark.parametrize(
    "wrong",
    [
        manifest(1, segment(0, 10), segment(5, 20)),
        manifest(1, segment(10, 5)),
        manifest(1, topic="../x"),
        manifest(1, topic_id="../../../../../../etc/p"),
        manifest(1, segment(0, 1, size=2**40)),
        manifest(1, segment(0, 1, indexes={"offset": BundlePiece(15, 8)})),
        manifest(1, msgspec.structs.replace(segment(0, 1), segment_id="../x")),
    ],
)
def test_a_manifest_that_no_pylog_wrote_is_damage(wrong: Manifest) -> None:
    with pytest.raises(pylog.CorruptionError, match="s3://x"):
        decode_manifest(encode(wrong), "s3://x")


def test_a_later_format_is_refused_and_not_called_damage() -> None:
    with pytest.raises(pylog.UnsupportedFormatError, match="upgrade"):
        decode_manifest(encode(manifest(1, format=2)), "s3://x")


def test_a_bomb_is_refused() -> None:
    import cramjam

    bomb = bytes(cramjam.zstd.compress(b" " * (64 << 20)))
    with pytest.raises(pylog.CorruptionError):
        decode_manifest(bomb, "s3://x")


def test_the_manifest_of_a_store_is_read_as_it_was_written() -> None:
    topics = {"orders": ArchivedTopic(TOPIC_ID, (0, 1), {"retention_ms": 5})}
    written = StoreManifest(store_id="s", writer="w", version=1, written_ms=2, topics=topics)
    assert decode_store(encode(written), "x").topics == topics


# ---- names ---------------------------------------------------------------------------------------------------------------


def test_names_of_segments_are_read_back() -> None:
    key = segment_key(PARTITION, 42, TOPIC_ID, INDEXES)
    assert key == f"orders-{TOPIC_ID}/3/00000000000000000042-{TOPIC_ID}.indexes"
    assert parse_segment_key(key) == (PARTITION, 42, TOPIC_ID, INDEXES)
    assert segment_key(PARTITION, 42, TOPIC_ID, LOG).endswith(".log")
    assert segment_key(PARTITION, 42, TOPIC_ID, RSM_MANIFEST).endswith(".rsm-manifest")
    assert parse_segment_key("pylog/store/head.json") is None


def test_the_plugins_manifest_has_its_fields() -> None:
    found = json.loads(
        encode_rsm_manifest(PARTITION, segment(0, 10, size=5 << 20, epochs=((0, 0), (2, 7)), max_timestamp=77), 99)
    )
    assert found["version"] == "1"
    assert found["compression"] is False
    assert "encryption" not in found
    chunk = 4 << 20
    assert found["chunkIndex"] == {
        "type": "fixed",
        "originalChunkSize": chunk,
        "originalFileSize": 5 << 20,
        "transformedChunkSize": chunk,
        "finalTransformedChunkSize": 1 << 20,
    }
    assert found["segmentIndexes"]["offset"] == {"position": 0, "size": 8}
    assert found["segmentIndexes"]["transaction"] is None
    assert "seal" not in found["segmentIndexes"]
    metadata = found["remoteLogSegmentMetadata"]
    assert metadata["remoteLogSegmentId"]["topicIdPartition"] == {
        "topicId": TOPIC_ID,
        "topicPartition": {"topic": "orders", "partition": 3},
    }
    assert (metadata["startOffset"], metadata["endOffset"], metadata["maxTimestampMs"]) == (0, 9, 77)
    assert metadata["segmentLeaderEpochs"] == {"0": 0, "2": 7}


# ---- versions ------------------------------------------------------------------------------------------------------------


def archive(count: int, *, hint: int | None = None) -> MemoryObjects:
    objects = MemoryObjects()
    versions = manifests_of(objects, PARTITION)
    for version in range(1, count + 1):
        assert versions.commit(version, encode(manifest(version, segment(0, version))))
    if hint is not None:
        versions.hint(hint)
    objects.requests.clear()
    return objects


@pytest.mark.parametrize("hint", [None, 0, 1, 3, 5])
def test_the_newest_manifest_is_found_from_any_hint(hint: int | None) -> None:
    newest = manifests_of(archive(5, hint=hint), PARTITION).newest()
    assert newest.taken == 5
    assert newest.document is not None
    assert newest.document.end_offset == 5


@pytest.mark.parametrize("hint", [b"", b"{", b'{"version": -1}', b'{"version": 99}', b'{"version": "1"}', b"\xff\xfe"])
def test_a_damaged_hint_costs_requests_only(hint: bytes) -> None:
    objects = archive(3)
    objects.objects[PARTITION.manifests + "head.json"] = hint
    assert manifests_of(objects, PARTITION).newest().taken == 3


def test_an_old_hint_costs_gets_and_no_list() -> None:
    objects = archive(4, hint=2)
    manifests_of(objects, PARTITION).newest()
    assert [request for request, _ in objects.requests] == ["get"] * 5


def test_a_right_hint_costs_three_gets() -> None:
    objects = archive(4, hint=4)
    manifests_of(objects, PARTITION).newest()
    assert [request for request, _ in objects.requests] == ["get"] * 3


def test_of_an_archive_whose_first_manifests_are_deleted_the_newest_is_found_without_a_hint() -> None:
    objects = archive(5)
    for version in (1, 2, 3):
        del objects.objects[version_key(PARTITION.manifests, version, DOCUMENT)]
    assert manifests_of(objects, PARTITION).newest().taken == 5


def test_before_a_damaged_manifest_the_one_before_counts_with_a_log_line(caplog: pytest.LogCaptureFixture) -> None:
    objects = archive(3, hint=2)
    key = version_key(PARTITION.manifests, 3, DOCUMENT)
    objects.objects[key] = objects.objects[key][:-4]
    with caplog.at_level(logging.ERROR, logger="pylog"):
        newest = manifests_of(objects, PARTITION).newest()
    assert newest.document is not None
    assert (newest.document.version, newest.taken) == (2, 3)
    assert [record.pylog["event"] for record in caplog.records] == ["manifest damaged"]  # type: ignore[attr-defined]


def test_of_two_writers_of_a_version_one_wins() -> None:
    objects = archive(1)
    versions = manifests_of(objects, PARTITION)
    assert versions.commit(2, encode(manifest(2, writer="a")))
    assert not versions.commit(2, encode(manifest(2, writer="b")))


def test_a_commit_whose_answer_was_lost_counts() -> None:
    objects = archive(1)
    objects.fault = lambda request, key: AFTER if request == "put_new" else None
    assert manifests_of(objects, PARTITION).commit(2, encode(manifest(2)))


def test_a_commit_that_failed_is_an_error_and_no_lost_race() -> None:
    objects = archive(1)
    objects.fault = lambda request, key: BEFORE if request == "put_new" else None
    with pytest.raises(pylog.ObjectStoreUnavailableError):
        manifests_of(objects, PARTITION).commit(2, encode(manifest(2)))


def test_a_failed_hint_is_no_error() -> None:
    objects = archive(2, hint=1)
    objects.fault = lambda request, key: BEFORE if request == "put_if" else None
    versions = manifests_of(objects, PARTITION)
    versions.hint(2)
    assert versions.newest().taken == 2


# ---- the catalogue -------------------------------------------------------------------------------------------------------


def test_a_catalogue_has_the_segments_of_all_partitions_in_order() -> None:
    one, two = segment(0, 10, max_timestamp=4), segment(10, 30, has_aborted=True)
    manifests = [manifest(7, two, start_offset=12), msgspec.structs.replace(manifest(2, one), partition=1)]
    read = decode_catalogue(encode_catalogue(catalogue_of(manifests)), "x")
    assert [(each.partition, each.version, each.start_offset) for each in read.partitions] == [(1, 2, 0), (3, 7, 12)]
    rows = read.table.to_pylist()
    assert [(row["partition"], row["base_offset"], row["end_offset"]) for row in rows] == [(1, 0, 10), (3, 10, 30)]
    ids = [base64.urlsafe_b64encode(row["segment_id"]).decode().rstrip("=") for row in rows]
    assert ids == [one.segment_id, two.segment_id]


def test_a_damaged_catalogue_is_damage() -> None:
    data = encode_catalogue(catalogue_of([manifest(1, segment(0, 10))]))
    for damaged in (data[:-20], b"", b"PAR1" * 10, data[:40] + bytes([data[40] ^ 1]) + data[41:]):
        with pytest.raises(pylog.CorruptionError, match="manifests count"):
            decode_catalogue(damaged, "x")


def test_a_catalogue_is_found_as_a_manifest_is() -> None:
    objects = MemoryObjects()
    versions = catalogues_of(objects, "orders", TOPIC_ID)
    assert versions.newest().document is None
    assert versions.commit(1, encode_catalogue(catalogue_of([manifest(1, segment(0, 10))])))
    found = versions.newest().document
    assert found is not None
    assert found.table.num_rows == 1
