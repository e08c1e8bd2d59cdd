"""Standard streams that are closed, full, or of another encoding than UTF-8: every command ends with its own exit code."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import pylog
from pylog.cli.exits import ended
from support.cli import Outcome, Stream, call

PYLOG = f"{sys.executable} -m pylog "
FULL = Path("/dev/full")
needs_a_full_device = pytest.mark.skipif(not FULL.exists(), reason="only Linux has a device that is always full")


def shell(line: str, directory: Path, **environment: str) -> Outcome:
    """Runs a line of shell, `pylog` in it, as a process below a directory."""
    script = line.replace("pylog ", PYLOG, 1)
    surroundings = {**os.environ, **environment}
    done = subprocess.run(["/bin/sh", "-c", script], check=False, cwd=directory, env=surroundings, capture_output=True)
    return Outcome(done.returncode, done.stdout, done.stderr.decode())


# ---- closed ------------------------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("line", ["topics shop", "--help"])
def test_a_closed_stdout_is_treated_as_a_closed_pipe(shop: Path, line: str) -> None:
    assert shell(f"pylog {line} >&-", shop.parent) == (0, b"", "")


@pytest.mark.slow
@pytest.mark.parametrize("line", ["--help", "cat --help", "topics shop", "cat shop orders --json"])
def test_a_closed_pipe_ends_a_command_with_141(shop: Path, line: str) -> None:
    gone = shell(f"mkfifo fifo; (sleep 0.1 < fifo) & exec 3>fifo; wait; pylog {line} >&3", shop.parent)
    assert (gone.code, gone.complaints) == (141, "")


@pytest.mark.slow
def test_a_command_whose_stdout_is_closed_ends_with_0(shop: Path) -> None:
    created = shell("pylog create shop new >&-", shop.parent)
    assert created[:2] == (0, b"")
    assert created[2].startswith("pylog: records are deleted after 7 days")
    with pylog.open(shop, mode="r") as store:
        assert "new" in store.topics()


@pytest.mark.slow
def test_with_a_closed_stdin_a_command_requires_yes(shop: Path) -> None:
    done = shell("pylog delete shop orders <&-", shop.parent)
    assert done.code == 2
    assert "give --yes" in done.complaints


@pytest.mark.slow
@pytest.mark.parametrize("form", ["lines", "csv", "arrow", "parquet"])
def test_nothing_is_produced_from_a_stdin_that_is_closed(shop: Path, form: str) -> None:
    done = shell(f"pylog produce shop orders --format {form} <&-", shop.parent)
    assert (done.code, done.output) == (2, b"")
    assert done.complaints == "pylog: stdin is closed; give a file with --from\n"


@pytest.mark.slow
def test_complaints_are_not_among_the_output_when_stderr_is_closed(shop: Path) -> None:
    assert shell("pylog topics shop/nothing 2>&-", shop.parent)[:2] == (1, b"")
    assert shell("pylog produce 2>&-", shop.parent)[:2] == (2, b"")


@pytest.mark.slow
def test_a_command_works_with_all_streams_closed_and_no_log_takes_their_descriptors(shop: Path) -> None:
    program = shop.parent / "program.py"
    program.write_text(
        "import os; from pylog.cli.streams import stand_in; stand_in();"
        "open('found', 'w').write(str([os.path.samestat(os.fstat(number), os.stat('/dev/null')) for number in range(3)]))"
    )
    shell(f"{sys.executable} {program} <&- >&- 2>&-", shop.parent)
    assert (shop.parent / "found").read_text() == "[True, True, True]"
    assert shell("pylog create shop new <&- >&- 2>&-", shop.parent).code == 0


# ---- full --------------------------------------------------------------------------------------------------------------------


@pytest.mark.slow
@needs_a_full_device
@pytest.mark.parametrize(
    "line", ["topics shop", "cat shop orders --json", "cat shop orders --format arrow", "dump shop/orders-0", "cat --help"]
)
def test_output_that_cannot_be_written_is_one_sentence_and_code_1(shop: Path, line: str) -> None:
    done = shell(f"pylog {line} >/dev/full", shop.parent)
    assert done == (1, b"", "pylog: cannot write the output: No space left on device\n")


@pytest.mark.slow
@needs_a_full_device
def test_complaints_that_cannot_be_written_change_no_exit_code(shop: Path) -> None:
    assert shell("pylog topics 2>/dev/full", shop.parent).code == 2
    assert shell("pylog topics shop/nothing 2>/dev/full", shop.parent).code == 1
    with pylog.open(shop, exclusive=True):
        assert shell("pylog create shop new >/dev/full 2>/dev/full", shop.parent).code == 3
    assert shell("pylog delete shop orders 2>/dev/full", shop.parent).code == 2
    assert shell("pylog delete shop orders --yes 2>/dev/full", shop.parent).code == 0


class FullDisk(Stream):
    """A file on a disk without room, of which something is in the buffer already."""

    def flush(self) -> None:
        raise OSError(28, "No space left on device")

    def close(self) -> None:
        """Nothing of it can be written."""


def test_a_command_that_fails_keeps_its_exit_code_when_its_output_cannot_be_written(monkeypatch: pytest.MonkeyPatch) -> None:
    def locked() -> int:
        sys.stdout.write("begun")
        raise pylog.StoreLockedError("somebody has it")

    errors = Stream()
    monkeypatch.setattr(sys, "stdout", FullDisk())
    monkeypatch.setattr(sys, "stderr", errors)
    assert ended(locked) == 3
    assert errors.written() == b"pylog: somebody has it\n"


def test_an_error_of_a_file_is_not_taken_for_one_of_the_output() -> None:
    with pytest.raises(FileNotFoundError):
        ended(lambda: len(Path("/nothing/there").read_bytes()))


# ---- of another encoding -----------------------------------------------------------------------------------------------------

ENCODINGS = (
    {"PYTHONIOENCODING": "ascii"},
    {"PYTHONIOENCODING": "latin-1"},
    {"LC_ALL": "POSIX", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0"},
)


@pytest.mark.slow
@pytest.mark.parametrize("environment", ENCODINGS, ids=str)
@pytest.mark.parametrize("line", ["stats shop", "cat shop orders"])
def test_characters_that_an_encoding_does_not_have_are_escaped(shop: Path, line: str, environment: dict[str, str]) -> None:
    done = shell(f"pylog {line}", shop.parent, **environment)
    assert (done.code, "Traceback" in done.complaints) == (0, False)


@pytest.mark.slow
def test_a_key_that_an_encoding_does_not_have_is_shown_as_it_is_asked_for(shop: Path) -> None:
    (line,) = shell("pylog cat shop orders -p 1", shop.parent, PYTHONIOENCODING="ascii").lines
    key = line.split("\t")[3]
    assert key == "\\u00e9"
    assert call("cat", shop, "orders", "--key", key, "--json").json["key"] == "é"


@pytest.mark.slow
@pytest.mark.parametrize("form", ["jsonl", "csv", "arrow", "parquet"])
def test_records_for_programs_are_the_same_bytes_in_every_encoding(shop: Path, form: str) -> None:
    line = f"cat shop orders -p 1 --format {form}"
    expected = call(*line.replace("shop", str(shop)).split())
    assert shell(f"pylog {line}", shop.parent, PYTHONIOENCODING="latin-1") == expected


@pytest.fixture
def oddly_named(shop: Path) -> Path:
    """The shop in a directory whose name is no UTF-8; some file systems have no such names."""
    odd = shop.parent / os.fsdecode(b"sh\xffop")
    try:
        return shop.rename(odd)
    except OSError:
        pytest.skip("names on this file system are UTF-8")


@pytest.mark.parametrize(
    "words",
    [
        ["verify", "SHOP", "--json"],
        ["doctor", "SHOP", "--json"],
        ["graduate", "SHOP", "--dry-run", "--json"],
        ["graduate", "SHOP", "--dry-run"],
        ["dump", "SHOP/orders-0"],
        ["repair", "skip", "SHOP", "--json"],
        ["compare", "SHOP", "SHOP", "--json"],
    ],
    ids=" ".join,
)
def test_a_directory_whose_name_is_no_utf8_is_reported_with_its_bytes_escaped(oddly_named: Path, words: list[str]) -> None:
    done = call(*(word.replace("SHOP", str(oddly_named)) for word in words))
    assert done.code == 0
    assert r"sh\xffop" in done.text.replace("\\\\", "\\") + done.complaints or words[0] in ("repair", "compare")


def test_a_dump_like_kafkas_has_a_files_name_as_it_is(oddly_named: Path) -> None:
    done = call("dump", "--like-kafka", oddly_named / "orders-0" / f"{0:020d}.log")
    assert (done.code, done.complaints) == (0, "")
    assert done.output.startswith(b"Dumping " + os.fsencode(oddly_named))


def test_records_come_from_a_file_whose_name_is_no_utf8(oddly_named: Path) -> None:
    source = oddly_named.parent / os.fsdecode(b"f\xff.csv")
    source.write_text("key,value\nk,v\n")
    assert call("produce", oddly_named, "prices", "--from", source, "--json").json["records"] == 1
    done = call("produce", oddly_named, "prices", "--from", f"{source}x")
    assert (done.code, done.output) == (1, b"")
    assert r"f\xff.csvx" in done.complaints
