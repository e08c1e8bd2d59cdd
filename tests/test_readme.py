"""What the README shows runs."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from cli_harness import call

README = Path(__file__).resolve().parent.parent / "README.md"


def block(heading: str, number: int = 0) -> str:
    """One of the pieces of Python under a heading."""
    part = README.read_text().split(f"\n## {heading}\n")[1].split("\n## ")[0]
    return re.findall(r"```python\n(.*?)```", part, re.DOTALL)[number]


SHOP = block("Ten lines")


def command_lines(heading: str) -> list[str]:
    """The lines of the first piece of shell under a heading, without their comments."""
    part = README.read_text().split(f"\n## {heading}\n")[1].split("\n## ")[0]
    return [line.split("  #")[0].strip() for line in re.findall(r"```sh\n(.*?)```", part, re.DOTALL)[0].splitlines()]


def test_the_quickstart_runs_as_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    exec(SHOP, {})
    printed = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in printed] == ["0", "1", "2", "3"]
    assert printed[0].endswith("b'42' b'paid'")
    assert (tmp_path / "shop" / "orders-3").is_dir()


def test_the_look_at_a_brokers_directory_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from golden_data import case

    exec(
        block("Ten lines", 1).replace("/var/lib/kafka/data", str(case("4.3.0", "txn").log_directory)),
        {"pylog": __import__("pylog")},
    )
    assert "txn [781, 162]" in capsys.readouterr().out


def test_the_part_about_data_frames_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    exec(SHOP + block("Into pandas, polars, DuckDB"), {})
    last = capsys.readouterr().out.splitlines()[-1]
    assert last.startswith("3 [0] ")
    assert "(b'42', 2)" in last


def test_the_part_about_committed_offsets_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    part = block("Committed offsets")
    exec(SHOP + part + part.split("store.create_topic")[0], {})
    printed = capsys.readouterr().out
    assert printed.count("TopicPartition(topic='orders', partition=0): OffsetAndMetadata(offset=") == 2


def test_the_part_about_consuming_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    exec(SHOP + block("Consuming"), {})
    printed = capsys.readouterr().out.splitlines()[4:]
    assert len([line for line in printed if line[:2] in ("0 ", "1 ")]) == 5
    assert {line[:-2] for line in printed if line.startswith("Topic")} == {
        f"TopicPartition(topic='orders', partition={number})" for number in range(2)
    }
    assert sorted(eval(printed[-1])) == [0, 0, 1, 1, 2]


def test_the_part_about_many_readers_and_writers_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    exec(SHOP + block("Many readers, many writers"), {})
    with __import__("pylog").open("shop", mode="r") as store:
        assert [record.value for record in store.log("orders", 0).records()] == [b"delivered", b"paid"]


def test_the_part_about_producing_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    exec(SHOP + block("Producing"), {})
    assert "RecordMetadata(topic='orders', partition=" in capsys.readouterr().out
    with __import__("pylog").open("shop", mode="r") as store:
        assert sum(store.log("orders", number).end_offset for number in range(4)) > 1100


def test_the_part_about_compaction_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    exec("import pylog\n" + block("Compaction"), {})
    assert capsys.readouterr().out == "1 [b'1.30', b'1.40']\n"


def test_the_command_lines_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    outputs = {}
    for line in command_lines("Command line"):
        before, _, words = line.rpartition("pylog ")
        echoed = shlex.split(before.rstrip(" |"))[1] + "\n" if before else ""
        done = call(*shlex.split(words), stdin=echoed.encode())
        assert done.code == 0, (line, done.complaints)
        outputs[words.split(" ")[0]] = done.text
    assert outputs["cat"].endswith("\t42\tpaid\n")
    assert outputs["copy"].startswith("Appended 1 record to orders.")
