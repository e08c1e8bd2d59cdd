"""Leader epochs of a broker's tier that are well formed and wrong: the batches contradict them, and no records are left out."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

import pylog
from pylog.errors import CorruptionError
from pylog.objects.tier_records import fold
from support.kafka_tiers import metadata_free_directory, records_of_segments, value_of


def local_tier_with(unpacked: Path, tmp_path: Path, segment: int, epochs: str) -> pylog.KafkaTier:
    """Returns the tier of `t` with other leader epochs in the checkpoint of one of its segments, counted from the end."""
    tier = shutil.copytree(unpacked / "ktier" / "remote" / "kafka-tiered-storage", tmp_path / "tier")
    sorted(tier.rglob("t-0-*/*.leader_epoch_checkpoint"))[segment].write_text(epochs)
    return pylog.KafkaTier(str(tier), layout="local")


def offsets_of(log: pylog.Log) -> list[int]:
    return [offset for batch in log.scan(columns=["offset"]) for offset in batch.column(0).to_pylist()]


WRONG = {
    "a later epoch from the start on": "0\n1\n3 0\n",
    "a later epoch from inside the segment before on": "0\n2\n0 0\n1 13000\n",
    "a later epoch for the segment": "0\n2\n0 0\n1 14033\n",
    "a later epoch for its last batches": "0\n2\n0 0\n1 15000\n",
    "offsets that do not rise": "0\n2\n0 14500\n1 14100\n",
}


@pytest.mark.parametrize("which", [-1, -2], ids=["last segment", "segment before"])
@pytest.mark.parametrize("epochs", WRONG.values(), ids=WRONG)
def test_a_checkpoint_that_the_batches_contradict_hides_no_records(
    unpacked: Path, tmp_path: Path, which: int, epochs: str, caplog: pytest.LogCaptureFixture
) -> None:
    whole = pylog.KafkaTier(f"{unpacked}/ktier/remote/kafka-tiered-storage", layout="local")
    with pylog.open(whole, mode="r") as store:
        expected = offsets_of(store.log("t"))
    with pylog.open(local_tier_with(unpacked, tmp_path, which, epochs), mode="r") as store:
        assert offsets_of(store.log("t")) == expected
        assert store.verify().ok
    said = any("contradict the batches" in record.getMessage() for record in caplog.records)
    assert said or "14500" in epochs or which == -2  # the first does not parse, and the second may be right about its segment


def aiven_with(unpacked: Path, tmp_path: Path, base: int, **facts: object) -> pylog.KafkaTier:
    """Returns the tier of `txn` with other facts in the manifest of one segment."""
    tier = shutil.copytree(unpacked / "aiven-plain" / "tier", tmp_path / "tier")
    path = next(tier.rglob(f"txn-cdo*/0/*{base:03d}-*.rsm-manifest"))
    manifest = json.loads(path.read_bytes())
    manifest["remoteLogSegmentMetadata"].update(facts)
    path.write_text(json.dumps(manifest))
    return pylog.KafkaTier(str(tier))


@pytest.mark.parametrize(
    ("base", "facts", "words"),
    [
        (124, {"segmentLeaderEpochs": {"0": 200, "1": 130}}, "whose offsets 200 and 130 do not rise"),
        (124, {"segmentLeaderEpochs": {"0": 9000}}, "the leader epoch 0 from offset 9000 on"),
        (251, {"segmentLeaderEpochs": {"-3": 251}}, "the leader epoch -3 from offset 251 on"),
        (251, {"endOffset": 10}, "a segment from offset 251 to before offset 11"),
        (251, {"endOffset": 2**63 - 1}, "a segment from offset 251 to before"),
        (251, {"endOffset": 300}, "ends at offset 360, but its description at 301"),
        (124, {"startOffset": 100}, "begins at offset 100, and its name another one"),
        (0, {"startOffset": 5}, "begins at offset 5, and its name another one"),
    ],
    ids=[
        "not rising",
        "after the segment",
        "negative",
        "ending before it begins",
        "ending after all offsets",
        "ending before its last batch",
        "beginning before its name",
        "beginning after its name",
    ],
)
def test_a_manifest_whose_offsets_or_epochs_cannot_be_is_an_error_and_no_shorter_log(
    unpacked: Path, tmp_path: Path, base: int, facts: dict[str, object], words: str
) -> None:
    with pylog.open(aiven_with(unpacked, tmp_path, base, **facts), mode="r") as store:
        with pytest.raises(CorruptionError, match=words) as caught:
            offsets_of(store.log("txn"))
        assert f"{base:020d}-" in str(caught.value)
        assert len(offsets_of(store.log("txn", 1))) == 112


def test_the_first_segment_of_a_tier_with_an_earlier_epoch_than_its_batches_is_read(unpacked: Path, tmp_path: Path) -> None:
    """By its manifest it is not part of the log, and nothing else says that the log begins before the second segment."""
    tier = shutil.copytree(unpacked / "aiven-plain" / "tier", tmp_path / "tier")
    for path in tier.rglob("txn-cdo*/0/*.log"):  # the epoch of a batch is outside of its checksum
        data, at = bytearray(path.read_bytes()), 0
        while at < len(data):
            data[at + 12 : at + 16] = (4).to_bytes(4, "big")
            at += 12 + int.from_bytes(data[at + 8 : at + 12], "big")
        path.write_bytes(data)
        manifest = path.with_suffix(".rsm-manifest")
        found = json.loads(manifest.read_bytes())
        base = found["remoteLogSegmentMetadata"]["startOffset"]
        found["remoteLogSegmentMetadata"]["segmentLeaderEpochs"] = {"0" if base == 0 else "4": base}
        manifest.write_text(json.dumps(found))
        bundle = path.with_suffix(".indexes")
        bundle.write_bytes(bundle.read_bytes().replace(b"0\n1\n0 0\n", b"0\n1\n4 0\n"))  # the checkpoint
    with pylog.open(pylog.KafkaTier(str(tier)), mode="r") as store:
        log = store.log("txn")
        assert (log.start_offset, len(offsets_of(log))) == (0, 325)


@pytest.mark.parametrize(
    "epochs", [[(0, 200), (1, 130)], [(-3, 12000)], [(0, 99999)]], ids=["not rising", "negative", "after the segment"]
)
def test_a_brokers_record_with_impossible_epochs_does_not_count(
    unpacked: Path, tmp_path: Path, epochs: list[tuple[int, int]]
) -> None:
    root = shutil.copytree(unpacked / "ktier" / "data", tmp_path / "data")
    segment = records_of_segments(root)[5]
    assert fold([value_of(segment)])
    with pytest.raises(CorruptionError, match="leader epoch"):
        fold([value_of(segment | {"epochs": epochs})])


@pytest.mark.parametrize(
    ("epochs", "words"),
    [
        ("0\n1\n3 0\n", "does not give offset 16081 the leader epoch 0"),
        ("0\n2\n0 0\n1 14033\n", "does not give offset 16081 the leader epoch 0"),
        ("0\n1\n0 99999\n", "begins at offset 99999, after the end of the log at 16502"),
    ],
    ids=["other epoch", "other start", "after the end"],
)
def test_verify_names_a_brokers_checkpoint_that_contradicts_the_local_batches(
    unpacked: Path, tmp_path: Path, epochs: str, words: str
) -> None:
    root = metadata_free_directory(unpacked, tmp_path / "data")
    (root / "t-0" / "leader-epoch-checkpoint").write_text(epochs)
    tier = pylog.KafkaTier(f"{unpacked}/ktier/remote/kafka-tiered-storage", layout="local")
    with pylog.open(root, mode="r", archive=tier) as store:
        assert [each.message for each in store.verify().findings if words in each.message]


def test_verify_names_a_checkpoint_that_begins_after_the_end_of_a_log(tmp_path: Path) -> None:
    with pylog.open(tmp_path) as store:
        store.create_topic("t")
        store.log("t").append_many([b"x"] * 3)
    (tmp_path / "t-0" / "leader-epoch-checkpoint").write_text("0\n1\n0 4\n")
    with pylog.open(tmp_path, mode="r") as store:
        (finding,) = store.verify().findings
    assert (finding.kind, finding.offset) == ("derived", 4)
