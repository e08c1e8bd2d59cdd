"""A derived file that is missing or refused is created again, with one line in the log."""

from __future__ import annotations

from pathlib import Path

import pytest

import pylog


def written(root: Path) -> Path:
    with pylog.open(root, durability=pylog.Durability.OS) as store:
        store.create_topic("t", segment_bytes=2000, index_interval_bytes=100)
        for number in range(40):
            store.log("t").append_batch([b"x" * 50], producer=pylog.ProducerBatch(5, 0, number))
    return root / "t-0"


@pytest.mark.damaged("a derived file lies")
@pytest.mark.parametrize("content", [None, b"\xff" * 37, b"\xff" * 24], ids=["missing", "odd bytes", "odd entries"])
@pytest.mark.parametrize("kind", [".index", ".timeindex"])
def test_an_index_that_is_missing_or_refused_leaves_one_line_with_its_path(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, kind: str, content: bytes | None
) -> None:
    path = min(written(tmp_path / "s").glob(f"*{kind}"))
    path.unlink() if content is None else path.write_bytes(content)
    for number in range(2):
        caplog.clear()
        with caplog.at_level("INFO", "pylog.recovery"), pylog.open(tmp_path / "s") as store:
            log = store.log("t")
            log.append(b"z")
            assert len(list(log.records())) == 41 + number
            assert log.read(3).value == b"x" * 50
            assert log.offset_for_timestamp(1) is not None
        lines = [each.getMessage() for each in caplog.records if each.name == "pylog.recovery" and "Rebuilt" in each.getMessage()]
        assert [str(path) in line and "reason=" in line for line in lines] == ([] if number else [True]), lines


@pytest.mark.damaged("a derived file lies")
@pytest.mark.parametrize("kind", [".snapshot", "leader-epoch-checkpoint"])
def test_another_derived_file_that_is_refused_leaves_one_line_that_it_was_rebuilt(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, kind: str
) -> None:
    path = max(written(tmp_path / "s").glob(f"*{kind}"))
    path.write_bytes(b"\xff" * 37)
    with caplog.at_level("INFO", "pylog.recovery"), pylog.open(tmp_path / "s") as store:
        assert len(list(store.log("t").records())) == 40
    lines = [each.getMessage() for each in caplog.records if "Rebuilt" in each.getMessage()]
    assert len(lines) == 1
    assert path.name in lines[0]


def lines_about(caplog: pytest.LogCaptureFixture, path: Path) -> list[str]:
    """The lines of recovery that name a file, by their sentence."""
    found = [each.getMessage() for each in caplog.records if each.name == "pylog.recovery"]
    return [line.partition(":")[0] for line in found if str(path) in line and "reason=" in line]


@pytest.mark.damaged("a derived file lies")
@pytest.mark.parametrize("content", [b"\xff" * 37, bytes(100), b""], ids=["odd bytes", "zeros", "empty"])
def test_a_seal_that_is_refused_leaves_one_line(tmp_path: Path, caplog: pytest.LogCaptureFixture, content: bytes) -> None:
    path = min(written(tmp_path / "s").glob("*.seal"))
    path.write_bytes(content)
    with caplog.at_level("INFO", "pylog.recovery"), pylog.open(tmp_path / "s") as store:
        for _ in range(2):
            store.log("t").append(b"z")
            assert [record.value for record in store.log("t").records()][:40] == [b"x" * 50] * 40
    assert lines_about(caplog, path) == ["Ignores a file that it cannot use, as if it were missing"]


@pytest.mark.damaged("a derived file lies")
@pytest.mark.parametrize("content", [b"\xff" * 256, b"PYLG" + b"\1" * 124, "a directory", bytes(256), b"", None])
def test_a_header_that_is_refused_is_made_again_with_one_line(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, content: bytes | str | None
) -> None:
    path = written(tmp_path / "s") / "durable-point"
    path.unlink()
    if isinstance(content, bytes):
        path.write_bytes(content)
    elif content is not None:
        path.mkdir()
    refused = bool(content) and content != bytes(256)  # else it is as a dead process leaves it, or missing
    for number in range(2):
        caplog.clear()
        with caplog.at_level("INFO", "pylog.recovery"), pylog.open(tmp_path / "s") as store:
            store.log("t").append(b"z")
            assert len(list(store.log("t").records())) == 41 + number
        assert lines_about(caplog, path) == ["Rebuilt a file from the records"] * (refused and not number)


@pytest.mark.damaged("a derived file lies")
@pytest.mark.parametrize("name", [".kafka_cleanshutdown", "t-0/partition.metadata"])
@pytest.mark.parametrize("content", [b"\xff" * 70_000, "a directory"], ids=["many bytes", "a directory"])
def test_a_marker_or_metadata_that_is_refused_leaves_one_line(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, name: str, content: bytes | str
) -> None:
    written(tmp_path / "s")
    path = tmp_path / "s" / name
    path.unlink(missing_ok=True)
    if isinstance(content, bytes):
        path.write_bytes(content)
    else:
        path.mkdir()
    with caplog.at_level("INFO", "pylog.recovery"), pylog.open(tmp_path / "s") as store:
        store.log("t").append(b"z")
        assert len(list(store.log("t").records())) == 41
    assert lines_about(caplog, path) == ["Ignores a file that it cannot use, as if it were missing"]


@pytest.mark.damaged("a derived file lies")
@pytest.mark.pair("groups", "second process")
def test_a_file_of_members_with_slots_that_are_refused_leaves_one_line_when_a_member_joins(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    config = pylog.OffsetsConfig(topic_num_partitions=1)
    with pylog.open(tmp_path / "s", offsets=config) as store:
        store.create_topic("t")
        store.log("t").append(b"one")
        store.offsets.commit("g", {("t", 0): 0})
        path = tmp_path / "s" / "__consumer_offsets-0" / "group-members"
        path.write_bytes(b"\xff" * 128 + bytes(128) + b"\1" * 100)
        with caplog.at_level("INFO", "pylog.recovery"):
            for _ in range(2):
                with store.consumer("t", group_id="g", enable_auto_commit=False) as consumer:
                    assert [record.value for record in consumer.poll(1000)[pylog.TopicPartition("t", 0)]] == [b"one"]
    assert lines_about(caplog, path) == ["Ignores a file that it cannot use, as if it were missing"]
    assert "slots 0 have" in caplog.text
