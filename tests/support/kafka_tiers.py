"""A broker's remote tier for tests: its key, and the broker's records of its segments."""

from __future__ import annotations

import base64
import json
import shutil
import tarfile
import tempfile
from pathlib import Path
from typing import Any, Final

import pytest

import pylog
from pylog.objects.tier_records import fold
from pylog.record.primitives import Writer

GOLDEN: Final = Path(__file__).resolve().parents[1] / "golden-tier"
PREFIXES: Final = {"aiven-plain": "", "aiven-encrypted": "cluster-a/", "aiven-zstd-encrypted": "cluster-b.", "aiven-zstd": ""}
METADATA: Final = "__remote_log_metadata-3"  # of the topic `t` in `ktier`


def unpacked_tiers(directory: Path) -> Path:
    """Unpacks the tiers into a directory, and returns it."""
    with tarfile.open(GOLDEN / "tiers.tar.xz") as archive:
        archive.extractall(directory, filter="data")
    return directory


@pytest.fixture(scope="module")
def unpacked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tiers, for the tests of a module."""
    return unpacked_tiers(tmp_path_factory.mktemp("tiers"))


@pytest.fixture(scope="module")
def key(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The path of the key of the encrypted tiers."""
    return key_file(tmp_path_factory.mktemp("key"))


def metadata_free_directory(tiers: Path, directory: Path) -> Path:
    """Copies the broker's directory of `ktier`, without the broker's records of its remote segments."""
    shutil.copytree(tiers / "ktier" / "data", directory, ignore=shutil.ignore_patterns("__remote_log_metadata-*"))
    return directory


def key_file(directory: Path) -> str:
    """Writes the key of the encrypted tiers, and returns its path."""
    from cryptography.hazmat.primitives.asymmetric import rsa
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

    given = json.loads((GOLDEN / "aiven-test-key.json").read_text())
    p, q, e = int(given["p"], 16), int(given["q"], 16), given["e"]
    d = rsa.rsa_recover_private_exponent(e, p, q)
    fractions = rsa.rsa_crt_dmp1(d, p), rsa.rsa_crt_dmq1(d, q), rsa.rsa_crt_iqmp(p, q)
    key = rsa.RSAPrivateNumbers(p, q, d, *fractions, rsa.RSAPublicNumbers(e, p * q)).private_key()
    path = directory / "key.pem"
    path.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    return str(path)


def records_of_segments(root: Path) -> list[dict[str, Any]]:
    """Returns what a broker's records say of the segments in a directory, in the order of their offsets."""
    with pylog.open(root, "r") as store:
        values = [record.value for record in store.log("__remote_log_metadata", 3).records()]
    (segments,) = fold(value for value in values if value is not None).values()
    found = [each._asdict() | {"end": each.end_offset - 1} for each in segments]
    return sorted(found, key=lambda each: each["base_offset"])


def value_of(segment: dict[str, Any]) -> bytes:
    """Returns a broker's record of a segment, in one message with its state."""
    write = Writer()
    write.int8(1).int8(0).int8(0)
    partition = segment["partition"]
    write.text(partition.topic).uuid(_id(partition.topic_id)).int32(partition.partition).tags(())
    write.uuid(_id(segment["segment_id"])).tags(())
    write.int64(segment["base_offset"]).int64(segment["end"]).int32(1).int64(0).int64(0)

    def epoch(pair: tuple[int, int]) -> None:
        write.int32(pair[0]).int64(pair[1]).tags(())

    write.array(list(segment["epochs"]), epoch)
    write.int32(segment["size"]).sized(segment["custom"]).int8(segment["state"]).tags(())
    return bytes(write.data)


def _id(text: str) -> bytes:
    return base64.urlsafe_b64decode(text + "==")


def write_metadata(root: Path, segments: list[dict[str, Any]]) -> None:
    """Replaces a broker's records of its segments."""
    with tempfile.TemporaryDirectory() as other:
        with pylog.open(other) as store:
            store.create_topic("m")
            store.log("m").append_many([value_of(segment) for segment in segments])
        shutil.rmtree(root / METADATA)
        (root / METADATA).mkdir()
        shutil.copy(Path(other) / "m-0" / f"{0:020d}.log", root / METADATA)
