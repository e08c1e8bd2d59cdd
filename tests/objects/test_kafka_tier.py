"""A broker's remote tier is read as one log with the broker's directory, and alone: the records that Kafka's consumer gets."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

import pylog
from pylog.errors import (
    CorruptionError,
    IllegalStateError,
    InvalidArgumentError,
    ObjectNotFoundError,
    OffsetOutOfRangeError,
    PylogError,
    StorageFailedError,
)
from pylog.fs import OsFileSystem
from pylog.objects import open_objects
from pylog.objects.aiven import AivenSegment
from pylog.objects.aiven_keys import KeyRing
from pylog.objects.kafka_tier import TieredDirectory
from support.kafka_tiers import PREFIXES, metadata_free_directory, records_of_segments, write_metadata

# partition: start, end, last stable offset, records, committed records below that (golden-tier/README.md of the project's data)
ALONE = {
    ("txn", 0): (0, 360, 330, 325, 207),
    ("txn", 1): (0, 129, 117, 112, 86),
    ("u-txn", 0): (0, 207, 207, 183, 135),
    ("codec-zstd-idem", 0): (76, 744, 744, 668, 668),
    ("t", 0): (12000, 14033, 14001, 2032, 0),
}


def aiven(unpacked: Path, name: str, key: str | None) -> pylog.KafkaTier:
    keys = None if key is None else {"k1": key}
    return pylog.KafkaTier(f"file://{unpacked}/{name}/tier", key_prefix=PREFIXES[name], keys=keys)


def local_tier(unpacked: Path, name: str) -> pylog.KafkaTier:
    return pylog.KafkaTier(f"{unpacked}/{name}/remote/kafka-tiered-storage", layout="local")


def plan_of(root: Path, tier: pylog.KafkaTier) -> list[tuple[int, int]]:
    """Returns base offset and size of each segment of `t` that is remote."""
    fs = TieredDirectory(tier, str(root), OsFileSystem()).files()
    logs = [entry for entry in fs.list(f"{root}/t-0", sizes=".log") if entry.name.endswith(".log") and entry.size]
    return [(int(entry.name[:20]), entry.size) for entry in logs]


def rows(log: pylog.Log, start: int | None = None, isolation_level: str = "read_uncommitted") -> int:
    return sum(batch.num_rows for batch in log.scan(start, isolation_level=isolation_level))


@pytest.mark.sampled(20)
@pytest.mark.parametrize("name", sorted(PREFIXES))
def test_every_flavour_of_aivens_tier_has_the_records_that_kafka_read(unpacked: Path, key: str, name: str) -> None:
    with pylog.open(aiven(unpacked, name, key), mode="r") as store:
        found = {(topic.name, number) for topic in store.topics().values() for number in topic.partition_ids}
        assert (
            found == (set(ALONE) if "zstd" in name or name == "aiven-plain" else set(ALONE) - {("t", 0)}) or name == "aiven-zstd"
        )
        for partition in found - ({("t", 0)} if name == "aiven-zstd" else set()):
            log = store.log(*partition)
            start, end, stable, records, committed = ALONE[partition]
            assert (log.start_offset, log.end_offset, log.stable_offset) == (start, end, stable)
            assert (rows(log), rows(log, isolation_level="read_committed")) == (records, committed)
        assert store.verify().ok


def test_all_flavours_of_a_tier_give_the_same_records(unpacked: Path, key: str) -> None:
    tables = [
        pylog.read_table(
            aiven(unpacked, name, key), "txn", columns=["partition", "offset", "timestamp", "key", "value", "headers"]
        )
        for name in ("aiven-plain", "aiven-encrypted", "aiven-zstd-encrypted")
    ]
    assert tables[0].num_rows == 437
    assert tables[0].equals(tables[1])
    assert tables[0].equals(tables[2])


@pytest.mark.parametrize("name", ["ktier", "aiven-zstd"])
def test_local_and_remote_segments_are_one_log(unpacked: Path, tmp_path: Path, name: str) -> None:
    root = shutil.copytree(unpacked / "ktier" / "data", tmp_path / "data")
    if name == "aiven-zstd":  # its segments have other ids than the broker's records
        for each in root.glob("__remote_log_metadata-*"):
            shutil.rmtree(each)
    tier = local_tier(unpacked, name) if name == "ktier" else aiven(unpacked, name, None)
    with pylog.open(root, mode="r", archive=tier) as store:
        log = store.log("t")
        assert (log.start_offset, log.end_offset) == (0, 16502)
        assert rows(log, 12000) == 2032 + 2048 + 420
        assert rows(log, 12000, "read_committed") == 32 + 2048 + 420
        assert [log.read(offset).offset for offset in (12000, 14031, 14033, 16080, 16081)] == [12000, 14031, 14033, 16080, 16081]


def test_a_time_is_searched_in_the_segments_of_a_tier(unpacked: Path) -> None:
    with pylog.open(aiven(unpacked, "aiven-zstd", None), mode="r") as store:
        log = store.log("t")
        records = [(record.offset, record.timestamp) for record in log.records()]
        for wanted in (0, records[700][1], records[-1][1], records[-1][1] + 1):
            found = log.offset_for_timestamp(wanted)
            assert (found and found.offset) == next((offset for offset, timestamp in records if timestamp >= wanted), None)


def test_segments_that_the_tier_lacks_are_an_error_with_their_offsets_and_their_neighbours_are_read(
    unpacked: Path, tmp_path: Path
) -> None:
    root = metadata_free_directory(unpacked, tmp_path / "data")
    with pylog.open(root, mode="r", archive=aiven(unpacked, "aiven-zstd", None)) as store:
        log = store.log("t")
        with pytest.raises(CorruptionError, match="offsets 0 to 11999 of t-0 are in no segment") as caught:
            rows(log)
        assert (caught.value.offset, caught.value.next_offset) == (0, 12000)
        assert rows(log, caught.value.next_offset) == 4500


def test_a_log_that_the_brokers_records_name_and_the_tier_lost_is_an_error_that_names_the_object(unpacked: Path) -> None:
    with pylog.open(unpacked / "ktier" / "data", mode="r", archive=local_tier(unpacked, "ktier")) as store:
        with pytest.raises(ObjectNotFoundError, match=r"t-0-8SSgzKVaS0qTG9g3Uu47gg/00000000000000000000-\S+\.log"):
            rows(store.log("t"))
        assert rows(store.log("t"), 12000) == 4500


def test_a_consumer_reads_both_tiers(unpacked: Path) -> None:
    partition, found = pylog.TopicPartition("t", 0), list[int]()
    with (
        pylog.open(unpacked / "ktier" / "data", mode="r", archive=local_tier(unpacked, "ktier")) as store,
        store.consumer(isolation_level="read_committed") as consumer,
    ):
        consumer.assign([partition])
        consumer.seek(partition, 14033)
        while len(found) < 2468:
            found += [record.offset for records in consumer.poll(timeout_ms=1000).values() for record in records]
    assert (found[0], found[-1], len(found)) == (14033, 16500, 2468)


def test_the_segments_of_three_leader_epochs_are_chosen_by_the_brokers_records(unpacked: Path, tmp_path: Path) -> None:
    """The logs of these segments are too large for the tests, so only their offsets and sizes are."""
    root = shutil.copytree(unpacked / "ktier2" / "data", tmp_path / "data")
    (root / "t-0" / f"{14101:020d}.log").touch()
    extent = plan_of(root, local_tier(unpacked, "ktier2"))
    assert extent == [
        (0, 997010),
        (1951, 1046480),
        (3999, 1036283),
        (6026, 1046516),
        (8074, 986836),
        (10005, 1046482),
        (12053, 1046480),
    ]


# ---- which segments count ----------------------------------------------------------------------------------------------------


def tiered(unpacked: Path, tmp_path: Path, change: Callable[[list[dict[str, object]]], None]) -> pylog.Store:
    """Opens `ktier` with other records of its segments."""
    root = shutil.copytree(unpacked / "ktier" / "data", tmp_path / "data")
    segments = records_of_segments(root)
    change(segments)
    write_metadata(root, segments)
    return pylog.open(root, mode="r", archive=local_tier(unpacked, "ktier"))


@pytest.mark.parametrize("state", [0, 2, 3])
def test_only_segments_whose_copy_is_finished_and_not_deleted_count(unpacked: Path, tmp_path: Path, state: int) -> None:
    def change(segments: list[dict[str, object]]) -> None:
        segments[5]["state"] = state  # the one at 12000

    with tiered(unpacked, tmp_path, change) as store:
        with pytest.raises(CorruptionError, match="offsets 12000 to 14032 of t-0 are in no segment"):
            rows(store.log("t"), 12000)
        assert rows(store.log("t"), 14033) == 2468


def test_a_segment_of_a_leader_that_the_log_does_not_have_does_not_count(unpacked: Path, tmp_path: Path) -> None:
    def change(segments: list[dict[str, object]]) -> None:
        segments[6]["epochs"] = [(1, 14033)]

    with (
        tiered(unpacked, tmp_path, change) as store,
        pytest.raises(CorruptionError, match="offsets 14033 to 16080 of t-0 are in no segment"),
    ):
        rows(store.log("t"), 12000)


def test_a_segment_that_overlaps_the_next_one_ends_where_that_begins(unpacked: Path, tmp_path: Path) -> None:
    """As after a leader that died during a copy: the records are in both, and are read once."""
    log = next((unpacked / "ktier/remote/kafka-tiered-storage").glob("t-0-*/*12000-*.log"))
    following = next(log.parent.glob("*14033-*.log"))
    longer = log.read_bytes() + following.read_bytes()
    tier = shutil.copytree(unpacked / "ktier" / "remote", tmp_path / "remote")
    place = next(tier.glob("*/t-0-*/*12000-*.log"))
    place.write_bytes(longer)
    root = shutil.copytree(unpacked / "ktier" / "data", tmp_path / "data")
    segments = records_of_segments(root)
    segments[5] |= {"end": 16080, "size": len(longer)}
    write_metadata(root, segments)
    archive = pylog.KafkaTier(str(tier / "kafka-tiered-storage"), layout="local")
    with pylog.open(root, mode="r", archive=archive) as store:
        log_of_t = store.log("t")
        offsets = [offset for batch in log_of_t.scan(12000, columns=["offset"]) for offset in batch.column(0).to_pylist()]
        assert offsets == sorted(set(offsets))
        assert len(offsets) == 4500


def test_records_before_the_log_start_are_not_read_though_a_segment_has_them(unpacked: Path, tmp_path: Path) -> None:
    root = shutil.copytree(unpacked / "ktier" / "data", tmp_path / "data")
    (root / "log-start-offset-checkpoint").write_text("0\n1\nt 0 13000\n")
    with pylog.open(root, mode="r", archive=local_tier(unpacked, "ktier")) as store:
        log = store.log("t")
        assert log.start_offset == 13000
        assert rows(log) == 4500 - 1000
        with pytest.raises(OffsetOutOfRangeError):
            log.read(12999)


def test_damaged_records_of_the_broker_are_replaced_by_a_listing_and_a_line_says_so(
    unpacked: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    root = shutil.copytree(unpacked / "ktier" / "data", tmp_path / "data")
    path = root / "__remote_log_metadata-3" / f"{0:020d}.log"
    data = bytearray(path.read_bytes())
    data[100] ^= 1
    path.write_bytes(data)
    with caplog.at_level("INFO", "pylog"), pylog.open(root, mode="r", archive=local_tier(unpacked, "ktier")) as store:
        assert rows(store.log("t"), 12000) == 4500
    assert any("Listed a broker's tier" in record.getMessage() for record in caplog.records)


def test_without_a_tier_nothing_changes(unpacked: Path) -> None:
    with pylog.open(unpacked / "ktier" / "data", mode="r") as store:
        assert store.log("t").start_offset == 16081
        with pytest.raises(OffsetOutOfRangeError, match="remote tier"):
            list(store.log("t").scan())


# ---- arguments ---------------------------------------------------------------------------------------------------------------


def test_a_tier_is_never_opened_for_writing(unpacked: Path) -> None:
    tier = local_tier(unpacked, "ktier")
    with pytest.raises(InvalidArgumentError, match="cannot be written"):
        pylog.open(unpacked / "ktier" / "data", archive=tier)
    with pytest.raises(InvalidArgumentError, match="cannot be written"):
        pylog.open(tier, mode="rw")


@pytest.mark.parametrize(
    "arguments",
    [
        {"layout": "confluent"},
        {"layout": "local", "keys": {"k1": b"x"}},
        {"keys": {"k1": 7}},
        {"regoin": "x"},
        {"key_prefix": 7},
        {"cache_dir": "/tmp"},
    ],
)
def test_wrong_arguments_are_refused(tmp_path: Path, arguments: dict[str, object]) -> None:
    with pytest.raises(InvalidArgumentError):
        pylog.KafkaTier(str(tmp_path), **arguments)  # type: ignore[arg-type]


def test_a_topic_with_two_ids_must_be_chosen(unpacked: Path, tmp_path: Path) -> None:
    tier = shutil.copytree(unpacked / "aiven-plain" / "tier", tmp_path / "tier")
    shutil.copytree(tier / "txn-cdo71g4HQ3qAAzVAHtUR4A", tier / "txn-aaaaaaaaaaaaaaaaaaaaaa")
    with pylog.open(pylog.KafkaTier(str(tier)), mode="r") as store, pytest.raises(InvalidArgumentError, match="topic_ids"):
        store.topics()
    with pylog.open(pylog.KafkaTier(str(tier), topic_ids={"txn": "cdo71g4HQ3qAAzVAHtUR4A"}), mode="r") as store:
        assert rows(store.log("txn", 1)) == 112


# ---- keys --------------------------------------------------------------------------------------------------------------------


def test_an_encrypted_segment_without_its_key_is_refused_with_the_keys_id_and_no_secret(unpacked: Path, key: str) -> None:
    with (
        pylog.open(aiven(unpacked, "aiven-encrypted", None), mode="r") as store,
        pytest.raises(InvalidArgumentError, match=r"encrypted with the key 'k1', and no keys were given.*`keys` of KafkaTier"),
    ):
        rows(store.log("txn"))
    assert "BEGIN" not in repr(pylog.KafkaTier("file:///tier", keys={"k1": Path(key).read_bytes()}))


def test_another_key_of_the_same_id_is_refused(unpacked: Path, tmp_path: Path) -> None:
    from cryptography.hazmat.primitives.asymmetric import rsa
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

    other = rsa.generate_private_key(65537, 2048).private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    tier = pylog.KafkaTier(f"{unpacked}/aiven-encrypted/tier", key_prefix="cluster-a/", keys={"k1": other})
    with pylog.open(tier, mode="r") as store, pytest.raises(InvalidArgumentError, match="encrypted with another key"):
        rows(store.log("txn"))


@pytest.mark.parametrize("pem", [b"", b"-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n"])
def test_bytes_that_are_no_key_are_refused_without_quoting_them(unpacked: Path, pem: bytes) -> None:
    tier = pylog.KafkaTier(f"{unpacked}/aiven-encrypted/tier", key_prefix="cluster-a/", keys={"k1": pem})
    with pylog.open(tier, mode="r") as store, pytest.raises(InvalidArgumentError, match="not an RSA private key") as caught:
        rows(store.log("txn"))
    assert "AAAA" not in str(caught.value)


def test_a_key_file_that_does_not_exist_is_named(unpacked: Path) -> None:
    tier = pylog.KafkaTier(f"{unpacked}/aiven-encrypted/tier", key_prefix="cluster-a/", keys={"k1": "/nowhere/k1.pem"})
    with pylog.open(tier, mode="r") as store, pytest.raises(StorageFailedError, match=r"/nowhere/k1\.pem"):
        rows(store.log("txn"))


# ---- damage ------------------------------------------------------------------------------------------------------------------


def flipped(path: Path, position: int) -> None:
    data = bytearray(path.read_bytes())
    data[position] ^= 0x40
    path.write_bytes(data)


@pytest.mark.parametrize("name", ["aiven-plain", "aiven-encrypted", "aiven-zstd-encrypted"])
def test_a_flipped_bit_in_a_log_is_an_error_with_its_place_and_other_segments_are_read(
    unpacked: Path, tmp_path: Path, key: str, name: str
) -> None:
    tier = shutil.copytree(unpacked / name / "tier", tmp_path / "tier")
    path = next(tier.rglob("*txn-cdo*/0/*124-*.log"))
    flipped(path, path.stat().st_size // 2)
    with pylog.open(pylog.KafkaTier(str(tier), key_prefix=PREFIXES[name], keys={"k1": key}), mode="r") as store:
        log = store.log("txn")
        got = 0
        with pytest.raises(CorruptionError) as caught:  # noqa: PT012 - the records before the damage come first
            for batch in log.scan():
                got += batch.num_rows
        assert caught.value.position is not None
        assert caught.value.path is not None
        assert "file://" in caught.value.path
        assert got >= 111
        assert rows(log, 251) == 100


@pytest.mark.parametrize("left", [b"0\n0\n", b"damaged", None], ids=["empty", "damaged", "missing"])
def test_leader_epochs_that_the_last_segment_lost_are_those_of_all_segments(
    unpacked: Path, tmp_path: Path, left: bytes | None
) -> None:
    tier = shutil.copytree(unpacked / "ktier" / "remote" / "kafka-tiered-storage", tmp_path / "tier")
    for path in tier.rglob("*.leader_epoch_checkpoint"):
        path.unlink() if left is None else path.write_bytes(left)
    whole = local_tier(unpacked, "ktier")
    with pylog.open(whole, mode="r") as intact, pylog.open(pylog.KafkaTier(str(tier), layout="local"), mode="r") as store:
        assert rows(store.log("t")) == rows(intact.log("t")) == 4080


def with_checkpoints(unpacked: Path, tmp_path: Path, of_last: bytes) -> pylog.KafkaTier:
    """Returns a tier whose last segment has another copy of the leader epochs."""
    tier = shutil.copytree(unpacked / "ktier" / "remote" / "kafka-tiered-storage", tmp_path / "tier")
    max(tier.rglob("t-0-*/*.leader_epoch_checkpoint")).write_bytes(of_last)
    return pylog.KafkaTier(str(tier), layout="local")


@pytest.mark.parametrize(
    ("epochs", "start", "count"),
    [(b"0\n1\n0 14500\n", 14033, 2048), (b"0\n1\n0 13000\n", 12000, 4080), (b"0\n1\n0 999999\n", 12000, 4080)],
    ids=["in the last segment", "in the one before", "after it: the batches tell"],
)
def test_leader_epochs_that_begin_inside_a_segment_do_not_make_the_log_look_empty(
    unpacked: Path, tmp_path: Path, epochs: bytes, start: int, count: int
) -> None:
    with pylog.open(with_checkpoints(unpacked, tmp_path, epochs), mode="r") as store:
        log = store.log("t")
        assert (log.start_offset, rows(log)) == (start, count)


@pytest.mark.parametrize("start", [12000, 12001, 13000, 14500, 16080])
def test_a_log_that_begins_inside_a_segment_of_the_tier_is_read_from_there(unpacked: Path, tmp_path: Path, start: int) -> None:
    """As after kafka-delete-records: the broker's own leader epochs begin at the log start."""
    whole = local_tier(unpacked, "ktier")
    root = shutil.copytree(unpacked / "ktier" / "data", tmp_path / "data")
    with pylog.open(root, mode="r", archive=whole) as store:
        expected = rows(store.log("t"), start)
    (root / "t-0" / "leader-epoch-checkpoint").write_text(f"0\n1\n0 {start}\n")
    (root / "log-start-offset-checkpoint").write_text(f"0\n1\nt 0 {start}\n")
    with pylog.open(root, mode="r", archive=whole) as store:
        assert (store.log("t").start_offset, rows(store.log("t"))) == (start, expected)
        assert store.log("t").read(start).offset >= start


def without_epochs(found: Path, epochs: dict[str, int]) -> None:
    manifest = json.loads(found.read_bytes())
    manifest["remoteLogSegmentMetadata"]["segmentLeaderEpochs"] = epochs
    found.write_text(json.dumps(manifest))


@pytest.mark.parametrize("which", [slice(None), slice(1), slice(-1, None)], ids=["all", "first", "last"])
def test_a_manifest_without_leader_epochs_has_those_of_its_checkpoint(unpacked: Path, tmp_path: Path, which: slice) -> None:
    tier = shutil.copytree(unpacked / "aiven-plain" / "tier", tmp_path / "tier")
    for path in sorted(tier.rglob("txn-cdo*/0/*.rsm-manifest"))[which]:
        without_epochs(path, {})
    with pylog.open(pylog.KafkaTier(str(tier)), mode="r") as store:
        log = store.log("txn")
        assert (log.start_offset, log.end_offset, rows(log)) == (0, 360, 325)


def test_leader_epochs_that_contradict_the_newest_segment_are_an_error_and_no_empty_log(unpacked: Path, tmp_path: Path) -> None:
    tier = shutil.copytree(unpacked / "aiven-plain" / "tier", tmp_path / "tier")
    without_epochs(next(tier.rglob("txn-cdo*/0/*251-*.rsm-manifest")), {"7": 251})
    with pylog.open(pylog.KafkaTier(str(tier)), mode="r") as store:
        with pytest.raises(CorruptionError, match=r"00000000000000000251-\S+\.log has other leader epochs than its copy"):
            store.log("txn")
        assert rows(store.log("txn", 1)) == 112


@pytest.mark.parametrize("name", ["aiven-plain", "aiven-encrypted"])
@pytest.mark.parametrize("how", ["flipped", "cut", "deleted"])
def test_a_damaged_bundle_of_indexes_is_made_again_from_the_log(
    unpacked: Path, tmp_path: Path, key: str, name: str, how: str
) -> None:
    tier = shutil.copytree(unpacked / name / "tier", tmp_path / "tier")
    for path in tier.rglob("*txn-cdo*/*/*.indexes"):
        if how == "flipped":
            path.write_bytes(bytes(byte ^ 0x5A for byte in path.read_bytes()))
        elif how == "cut":
            path.write_bytes(path.read_bytes()[:3])
        else:
            path.unlink()
    with pylog.open(pylog.KafkaTier(str(tier), key_prefix=PREFIXES[name], keys={"k1": key}), mode="r") as store:
        log = store.log("txn")
        assert (rows(log), log.read(130).offset) == (325, 130)
        assert rows(log, isolation_level="read_committed") == 207


MANIFESTS: dict[str, Callable[[dict[str, object]], object]] = {
    "no JSON": lambda _: "{",
    "another version": lambda found: found | {"version": "2"},
    "a number for a text": lambda found: found | {"version": 1},
    "a text for a number": lambda found: found | {"chunkIndex": found["chunkIndex"] | {"originalChunkSize": "many"}},  # type: ignore[operator]
    "chunks of no bytes": lambda found: found | {"chunkIndex": found["chunkIndex"] | {"originalChunkSize": 0}},  # type: ignore[operator]
    "a negative size": lambda found: found | {"chunkIndex": found["chunkIndex"] | {"originalFileSize": -1}},  # type: ignore[operator]
    "a size of 2 GiB in chunks of a byte": lambda found: (
        found | {"chunkIndex": found["chunkIndex"] | {"originalFileSize": 2**31 - 1, "originalChunkSize": 1}}
    ),  # type: ignore[operator]
    "stored chunks of other sizes": lambda found: (
        found | {"chunkIndex": found["chunkIndex"] | {"transformedChunkSize": 2**31 - 1}}
    ),  # type: ignore[operator]
    "an unknown index": lambda found: found | {"chunkIndex": {"type": "pyramid"}},
    "a nested list": lambda _: "[" * 100_000,
    "a missing part": lambda found: {name: value for name, value in found.items() if name != "segmentIndexes"},
    "an epoch that is no number": lambda found: (
        found | {"remoteLogSegmentMetadata": found["remoteLogSegmentMetadata"] | {"segmentLeaderEpochs": {"x": 0}}}
    ),  # type: ignore[operator]
}


@pytest.mark.parametrize("lie", MANIFESTS)
def test_a_lying_manifest_is_one_error_that_names_its_url(unpacked: Path, tmp_path: Path, lie: str) -> None:
    tier = shutil.copytree(unpacked / "aiven-plain" / "tier", tmp_path / "tier")
    path = next(tier.rglob("txn-cdo*/0/*124-*.rsm-manifest"))
    changed = MANIFESTS[lie](json.loads(path.read_bytes()))
    path.write_text(changed if isinstance(changed, str) else json.dumps(changed))
    with pylog.open(pylog.KafkaTier(str(tier)), mode="r") as store:
        with pytest.raises(PylogError, match=r"00000000000000000124-\S+\.rsm-manifest"):
            rows(store.log("txn"))
        assert rows(store.log("txn", 1)) == 112


def test_an_object_larger_than_a_manifest_can_be_is_not_read(unpacked: Path, tmp_path: Path) -> None:
    tier = shutil.copytree(unpacked / "aiven-plain" / "tier", tmp_path / "tier")
    path = next(tier.rglob("txn-cdo*/1/*.rsm-manifest"))
    with path.open("wb") as file:
        file.truncate(1 << 40)
    with pylog.open(pylog.KafkaTier(str(tier)), mode="r") as store, pytest.raises(CorruptionError, match="more than the"):
        rows(store.log("txn", 1))


def test_a_manifest_that_was_missing_is_read_once_it_is_restored(unpacked: Path, tmp_path: Path) -> None:
    tier = shutil.copytree(unpacked / "aiven-plain" / "tier", tmp_path / "tier")
    found = next(tier.rglob("txn-cdo*/0/*.rsm-manifest"))
    stem = str(found.relative_to(tier)).removesuffix(".rsm-manifest")
    found.rename(tmp_path / "lost")
    with pytest.raises(CorruptionError, match="restore the object"):
        AivenSegment(open_objects(str(tier)), stem, KeyRing()).manifest  # noqa: B018 - a property that reads
    (tmp_path / "lost").rename(found)
    assert AivenSegment(open_objects(str(tier)), stem, KeyRing()).manifest.facts is not None


def test_a_log_without_a_manifest_belongs_to_an_unfinished_copy(unpacked: Path, tmp_path: Path) -> None:
    tier = shutil.copytree(unpacked / "aiven-plain" / "tier", tmp_path / "tier")
    next(tier.rglob("txn-cdo*/0/*251-*.rsm-manifest")).unlink()
    with pylog.open(pylog.KafkaTier(str(tier)), mode="r") as store:
        assert store.log("txn").end_offset == 251


def test_the_plugin_needs_the_extra_package_only_for_encrypted_segments(unpacked: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "cryptography.hazmat.primitives.ciphers.aead", None)
    with pylog.open(aiven(unpacked, "aiven-plain", None), mode="r") as store:
        assert rows(store.log("txn", 1)) == 112
    with (
        pylog.open(aiven(unpacked, "aiven-encrypted", None), mode="r") as store,
        pytest.raises((InvalidArgumentError, IllegalStateError), match=r"pip install .*'cryptography>="),
    ):
        rows(store.log("txn", 1))


# ---- a broker that runs --------------------------------------------------------------------------------------------------------


def without_log_starts(unpacked: Path, directory: Path) -> Path:
    """Copies the broker's directory of `ktier` as it was before the broker had written its log start offsets."""
    shutil.copytree(unpacked / "ktier" / "data", directory)
    (directory / "log-start-offset-checkpoint").unlink()
    return directory


def test_a_broker_that_has_not_yet_written_its_log_starts_has_its_remote_records(unpacked: Path, tmp_path: Path) -> None:
    tier, root = local_tier(unpacked, "ktier"), without_log_starts(unpacked, tmp_path / "data")
    assert plan_of(root, tier) == plan_of(unpacked / "ktier" / "data", tier)
    assert len(plan_of(root, tier)) > 5
    with pylog.open(root, mode="r", archive=tier) as store:
        assert store.log("t").start_offset == 0


def test_leader_epochs_alone_make_no_remote_records(unpacked: Path, tmp_path: Path) -> None:
    root = without_log_starts(unpacked, tmp_path / "data")
    for metadata in root.glob("__remote_log_metadata-*"):
        shutil.rmtree(metadata)
    (tmp_path / "tier").mkdir()
    with pylog.open(root, mode="r", archive=pylog.KafkaTier(str(tmp_path / "tier"), layout="local")) as store:
        assert store.log("t").start_offset == 16081


def test_a_file_in_a_directory_that_is_not_there_does_not_exist(unpacked: Path) -> None:
    """A store that is opened looks for the documents of an archive, which a broker's directory does not have."""
    root = unpacked / "ktier" / "data"
    fs = TieredDirectory(local_tier(unpacked, "ktier"), str(root), OsFileSystem()).files()
    assert not fs.exists(f"{root}/pylog/store")
    assert fs.read(f"{root}/pylog/store", 10) is None
    assert fs.identity(f"{root}/pylog/store") is None
