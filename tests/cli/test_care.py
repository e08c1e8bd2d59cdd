"""`pylog copy`, `compact`, `retain`, `doctor` and shell completion."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import pylog
from pylog.cli import doctor as doctor_command
from pylog.cli.exits import ended
from pylog.fs import system_info
from pylog.fs.system_info import Mount
from support.cli import call


def records(path: Path, topic: str) -> list[tuple[object, ...]]:
    with pylog.open(path, mode="r") as store:
        logs = [store.log(topic, number) for number in store.topic(topic).partition_ids]
        return [(each.partition, each.timestamp, each.key, each.value, each.headers) for log in logs for each in log.records()]


# ---- copy ----------------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_topic_is_copied_with_its_options_keys_times_and_headers(shop: Path, tmp_path: Path) -> None:
    done = call("copy", shop, "orders", tmp_path / "backup", "--compression", "zstd", "--json").json
    assert done["records"] == 5
    assert done["partitions"][0] == {"partition": 0, "records": 4, "first_offset": 0, "last_offset": 3}
    assert records(tmp_path / "backup", "orders") == records(shop, "orders")
    with pylog.open(tmp_path / "backup", mode="r") as store:
        assert store.topic("orders").config.changed() == {"retention_ms": -1}


def test_a_topic_is_copied_within_its_directory_under_another_name(shop: Path) -> None:
    assert call("copy", shop, "orders", shop, "--as", "copy").code == 0
    assert records(shop, "copy") == records(shop, "orders")


def test_timestamps_stay_also_where_the_topic_has_log_append_time(tmp_path: Path) -> None:
    with pylog.open(tmp_path / "a") as store:
        store.create_topic("t", message_timestamp_type="LogAppendTime")
        store.log("t").append(b"x")
    assert call("copy", tmp_path / "a", "t", tmp_path / "b").code == 0
    assert records(tmp_path / "a", "t") == records(tmp_path / "b", "t")


def test_aborted_records_are_not_copied_unless_asked_for(tmp_path: Path) -> None:
    from support.golden.data import case

    source = case("4.3.0", "txn").log_directory
    with pylog.open(source, mode="r") as store:
        logs = [store.log("txn", number) for number in store.topic("txn").partition_ids]
        counts = {
            level: sum(batch.num_rows for log in logs for batch in log.scan(isolation_level=level))
            for level in ("read_committed", "read_uncommitted")
        }
    assert call("copy", source, "txn", tmp_path / "s", "--json").json["records"] == counts["read_committed"]
    copied = call("copy", source, "txn", tmp_path / "s", "--as", "all", "--isolation", "read_uncommitted", "--json").json
    assert copied["records"] == counts["read_uncommitted"] > counts["read_committed"]


@pytest.mark.slow
def test_a_copy_is_not_mixed_with_existing_records(shop: Path, tmp_path: Path) -> None:
    assert call("copy", shop, "orders", tmp_path / "b").code == 0
    refused = call("copy", shop, "orders", tmp_path / "b")
    assert (refused.code, refused.output) == (2, b"")
    assert "add to them with --append" in refused.complaints
    assert call("copy", shop, "orders", tmp_path / "b", "--append").code == 0
    assert len(records(tmp_path / "b", "orders")) == 10
    itself = call("copy", shop, "orders", shop, "--append")
    assert (itself.code, "copied to itself" in itself.complaints) == (2, True)
    few = call("copy", shop, "orders", shop, "--as", "prices", "--append")
    assert (few.code, "has no partition 1" in few.complaints) == (2, True)
    assert call("copy", shop, "nothing", tmp_path / "c").code == 1


@pytest.mark.damaged("a byte is flipped")
def test_a_copy_ends_at_damage_and_says_what_it_has(shop: Path, tmp_path: Path) -> None:
    path = shop / "orders-0" / f"{0:020}.log"
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    done = call("copy", shop, "orders", tmp_path / "b")
    assert done.code == 1
    assert "appended before: 2 records, at offsets 0 to 1 of partition 0" in done.complaints


# ---- compact -------------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_topic_is_compacted_when_that_is_confirmed(shop: Path) -> None:
    refused = call("compact", shop, "prices")
    assert (refused.code, refused.output) == (2, b"")
    assert "every record except the last one of each key" in refused.complaints
    assert len(records(shop, "prices")) == 3
    (row,) = call("compact", shop, "prices", "--partition", 0, "--yes", "--json").json["partitions"]
    assert (row["partition"], row["records"], row["kept"], row["clean_now"]) == (0, 2, 1, 2)
    assert [each[3] for each in records(shop, "prices")] == [b"1.30", b"1.40"]
    assert call("compact", shop, "prices", "--yes").code == 0


@pytest.mark.parametrize(
    ("words", "code", "told"),
    [
        (["orders"], 2, "has cleanup.policy=delete"),
        (["nothing"], 1, "has no topic"),
        (["prices", "--partition", "1"], 1, "partition 1 of"),
    ],
)
def test_a_log_that_cannot_be_compacted_is_refused(shop: Path, words: list[str], code: int, told: str) -> None:
    done = call("compact", shop, *words, "--yes")
    assert (done.code, done.output) == (code, b"")
    assert told in done.complaints


# ---- retain --------------------------------------------------------------------------------------------------------------


def test_retention_is_shown_and_done_when_that_is_confirmed(shop: Path) -> None:
    rows = call("retain", shop, "--dry-run", "--json").json["partitions"]
    assert [(row["topic"], row["segments"], row["new_start_offset"], row["reasons"]) for row in rows] == [("old", 3, 3, "time")]
    assert call("retain", shop).code == 2
    assert len(records(shop, "old")) == 3
    done = call("retain", shop, "old", "--yes")
    assert done.lines[-1] == "Deleted 3 segments."
    assert records(shop, "old") == []
    assert call("retain", shop, "--yes").text == "Retention keeps all segments.\n"


def test_retention_waits_for_a_group_and_a_brokers_topics_are_kept(shop: Path, tmp_path: Path) -> None:
    from support.golden.data import case

    call("config", shop, "old", "--set", "retention.group=billing")
    assert call("retain", shop, "--dry-run", "--json").json == {"executed": False, "partitions": []}
    with pylog.open(shop) as store:
        store.offsets.commit("billing", {("old", 0): 2})
    assert call("retain", shop, "--yes", "--json").json["partitions"][0]["deleted"] == 2
    kept = call("retain", case("4.3.0", "txn").log_directory, "--dry-run")
    assert (kept.code, kept.text) == (0, "Retention keeps all segments.\n")
    assert call("retain", shop, "nothing").code == 1


# ---- doctor --------------------------------------------------------------------------------------------------------------


def verdicts(answers: list[dict[str, str]]) -> dict[str, str]:
    return {answer["what"]: answer["verdict"] for answer in answers}


def test_a_sound_installation_and_directory_are_told_so(shop: Path) -> None:
    done = call("doctor", shop, "--json")
    found = {answer["what"]: answer for answer in done.json["answers"]}
    assert (done.code, done.json["healthy"]) == (0, True)
    assert found["pylog"]["found"] == pylog.__version__
    assert found["directory"]["found"] == f"{shop}: pylog's, 4 topics, 6 partitions"
    assert found["lock"]["found"] == "free: no process has the directory open for writing"
    assert {"numba", "pyarrow", "kernels", "file system", "room"} <= set(found)
    assert "directory" not in verdicts(call("doctor", "--json").json["answers"])


def test_the_holder_of_a_lock_is_named(shop: Path) -> None:
    with pylog.open(shop):
        told = {each["what"]: each["found"] for each in call("doctor", shop, "--json").json["answers"]}["lock"]
        assert told.startswith("pylog has the directory open for writing: ")
    program = "import fcntl, sys; f = open(sys.argv[1], 'a'); fcntl.lockf(f, fcntl.LOCK_EX); print('locked', flush=True); input()"
    with subprocess.Popen(
        [sys.executable, "-c", program, shop / ".lock"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as broker:
        assert broker.stdout is not None
        broker.stdout.readline()
        (answer,) = (each for each in call("doctor", shop, "--json").json["answers"] if each["what"] == "lock")
        assert answer["verdict"] == "note"
        assert answer["found"].startswith("a broker is running on the directory: ")
        assert f"process {broker.pid}" in answer["found"]
        assert call("create", shop, "new").code == 3
        assert call("topics", shop).code == 0
        broker.communicate("\n")


def test_problems_are_code_1_with_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    done = call("doctor", tmp_path / "nothing")
    assert done.code == 1
    assert "there is no directory" in done.text
    monkeypatch.setattr(doctor_command, "_version", lambda name: None if name == "numba" else "1")
    monkeypatch.setattr(doctor_command, "_kernel_cache", lambda: None)
    found = verdicts(call("doctor", "--json").json["answers"])
    assert (found["numba"], found["kernels"], found["pyspark"]) == ("problem", "problem", "ok")


def test_a_lock_that_may_not_be_written_is_a_problem_where_the_directory_may(shop: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def permissions() -> list[tuple[str, str]]:
        answers = call("doctor", shop, "--json").json["answers"]
        return [(answer["found"], answer["verdict"]) for answer in answers if answer["what"] == "permission"]

    assert permissions() == []
    withheld = {str(shop / "pylog.lock")}
    monkeypatch.setattr(system_info, "may_write", lambda path: path not in withheld)
    assert permissions() == [(f"{shop}/pylog.lock may not be written by this user", "problem")]
    withheld.add(str(shop))
    assert permissions() == [("read only", "note")]


@pytest.mark.parametrize(
    ("kind", "verdict"), [("ext4", "ok"), ("nfs4", "problem"), ("tmpfs", "note"), ("fuse.sshfs", "note"), (None, "note")]
)
def test_a_file_system_is_judged_by_its_kind(kind: str | None, verdict: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(system_info, "mount_of", lambda path: None if kind is None else Mount("/", kind, read_only=False))
    monkeypatch.setattr(system_info, "room_at", lambda path: (1, 2))
    answers = list(doctor_command._file_system("/data"))
    assert answers[0].verdict == verdict
    assert (answers[1].found, answers[1].verdict) == ("1 B free of 2 B", "problem")


@pytest.mark.parametrize(("free", "verdict"), [(20_480, "problem"), (2 << 20, "note"), (2 << 30, "ok")])
def test_a_full_disk_is_a_problem_and_a_disk_with_little_room_is_noted(
    free: int, verdict: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(system_info, "room_at", lambda path: (free, 1 << 40))
    assert list(doctor_command._file_system("/data"))[1].verdict == verdict


def test_a_command_that_is_locked_out_gives_no_advice_for_programs(capsys: pytest.CaptureFixture[str]) -> None:
    def locked_out() -> int:
        raise pylog.StoreLockedError("a broker has /s open for writing; stop it, or open the store with mode='r'", path="/s")

    assert ended(locked_out) == 3
    said = "pylog: a broker has /s open for writing; stop it. Commands that only read can run meanwhile\n"
    assert capsys.readouterr().err == said


def test_an_empty_cache_of_kernels_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor_command, "_kernel_cache", lambda: str(tmp_path))
    assert verdicts(call("doctor", "--json").json["answers"])["kernels"] == "note"


def test_the_mount_of_a_path_is_the_deepest_one(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    table = "1 0 8:1 / / rw - ext4 /dev/a rw\n2 1 8:2 / /da\\040ta ro,noatime shared:1 - xfs /dev/b rw\n"
    monkeypatch.setattr(system_info, "_mounts", lambda: table)
    assert system_info.mount_of("/da ta/x") == Mount("/da ta", "xfs", read_only=True)
    assert system_info.mount_of("/da ta-not") == Mount("/", "ext4", read_only=False)


def test_processes_that_have_a_file_open_are_found(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.touch()
    program = [sys.executable, "-c", "import sys; f = open(sys.argv[1]); print('open', flush=True); input()", path]
    with subprocess.Popen(program, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None
        holder.stdout.readline()
        assert [each.pid for each in system_info.holders_of(str(path))] == [holder.pid]
        holder.communicate("\n")
    assert system_info.holders_of(str(path)) == []
    assert system_info.room_at(str(path)) is not None
    assert system_info.room_at(str(path / "not")) is None
    assert system_info.may_write(str(tmp_path)) == os.access(tmp_path, os.W_OK)


# ---- completion ----------------------------------------------------------------------------------------------------------


def test_completion_is_installed_where_the_shell_searches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    done = call("--install-completion", "--shell", "bash")
    script = tmp_path / ".local/share/bash-completion/completions/pylog"
    assert str(script) in done.text
    assert str(script) in (tmp_path / ".bashrc").read_text()
    shell = f"source {script}; COMP_WORDS=(pylog groups des); COMP_CWORD=2; _pylog; echo ${{COMPREPLY[@]}}"
    assert subprocess.run(["bash", "-c", shell], capture_output=True, text=True, check=True).stdout.split() == ["describe"]


@pytest.mark.slow
def test_completion_for_an_unknown_shell_asks_which(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from cyclopts.completion import detect

    def fail() -> None:
        raise detect.ShellDetectionError

    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr(detect, "detect_shell", fail)
    done = call("--install-completion")
    assert (done.code, "cannot detect the shell" in done.complaints) == (2, True)
    (tmp_path / ".config").touch()
    assert call("--install-completion", "--shell", "fish").code == 1
