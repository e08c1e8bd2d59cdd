"""What all commands have in common: help with examples, JSON, exit codes, pipes that are closed, one sentence for an error."""

from __future__ import annotations

import json
import logging
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from cyclopts import App

import pylog
from pylog.cli.app import app
from pylog.cli.exits import EXIT_CODES, ended
from pylog.cli.run import run
from support.cli import Stream, call

PROGRAM = [sys.executable, "-m", "pylog"]

# What each command is called with when all is well; SHOP is a copy of the shop, ELSEWHERE a path where nothing is.
GOOD = {
    "topics": "SHOP",
    "describe": "SHOP orders",
    "create": "SHOP new --partitions 2",
    "config": "SHOP orders --set segment.ms=1000",
    "delete": "SHOP orders --yes",
    "cat": "SHOP orders",
    "produce": "SHOP orders",
    "copy": "SHOP orders ELSEWHERE",
    "compact": "SHOP prices --yes",
    "retain": "SHOP --yes",
    "doctor": "SHOP",
    "metrics": "SHOP",
    "ops write": "rules DIRECTORY",
    "warm": "",
    "groups list": "SHOP",
    "groups describe": "SHOP",
    "groups health": "SHOP billing --fail-above 60",
    "groups reset": "SHOP billing --to-earliest --execute",
    "groups delete": "SHOP billing --yes",
    "groups delete-offsets": "SHOP billing --topic orders:1 --yes",
    "groups export": "SHOP",
    "groups import": "SHOP FILE --execute",
    "--install-completion": "--shell fish",
    "dump": "LOG --records",
    "verify": "SHOP",
    "repair": "skip SHOP",
    "stats": "SHOP",
    "compare": "SHOP SHOP",
    "graduate": "SHOP --yes",
}


def commands(under: App = app, before: str = "") -> Iterator[str]:
    """Every command there is, `groups list` and the like for those below others."""
    for name in under:
        if name in ("--help", "-h", "--version"):
            continue
        inner = under[name]
        below = [each for each in inner if each not in ("--help", "-h", "--version")]
        if below:
            yield from commands(inner, f"{before}{name} ")
        else:
            yield f"{before}{name}"


def read_all(shop: Path) -> None:
    """Lets the group `billing` read all of `orders`, so that its health is good."""
    with pylog.open(shop) as store:
        store.offsets.commit("billing", {("orders", 0): 4, ("orders", 1): 1})


OURS = [name for name in commands() if name in GOOD]


@pytest.fixture
def words(shop: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], list[str]]:
    """The command line of a command that works."""
    monkeypatch.setenv("HOME", str(tmp_path))
    file = tmp_path / "offsets.csv"
    file.write_text("billing,orders,0,1\n")
    read_all(shop)
    names = {
        "SHOP": str(shop),
        "ELSEWHERE": str(tmp_path / "elsewhere"),
        "FILE": str(file),
        "LOG": str(shop / "orders-0"),
        "DIRECTORY": str(tmp_path),
    }
    return lambda name: [names.get(word, word) for word in f"{name} {GOOD[name]}".split()]


# ---- all of them -------------------------------------------------------------------------------------------------------------


def test_the_table_above_has_every_command_of_ours() -> None:
    assert set(OURS) == set(GOOD)


@pytest.mark.parametrize("name", list(commands()))
def test_every_command_has_help_with_examples_and_json(name: str) -> None:
    done = call(*name.split(), "--help")
    assert (done.code, done.complaints) == (0, "")
    assert f"Usage: pylog {name}" in done.text
    assert "--json" in done.text
    examples = done.text.partition("\nExamples:\n")[2].strip().splitlines()
    assert examples
    assert all(f"pylog {name}" in example for example in examples)


@pytest.mark.parametrize("name", OURS)
def test_every_example_in_a_help_is_a_command_line_that_can_be_read(name: str) -> None:
    examples = call(*name.split(), "--help").text.partition("\nExamples:\n")[2].strip().splitlines()
    for example in examples:
        ours = re.search(rf"pylog ({name}\b[^|<>]*)", example)
        assert ours is not None
        app.parse_args(shlex.split(ours[1]), exit_on_error=False, print_error=False)


@pytest.mark.parametrize("name", list(commands()))
def test_every_command_can_print_the_log_lines(name: str) -> None:
    assert "--verbose" in call(*name.split(), "--help").text


@pytest.mark.parametrize("option", ["-v", "--verbose"])
def test_log_lines_go_to_stderr_with_the_option_only_and_not_beyond_the_command(shop: Path, option: str) -> None:
    level = logging.getLogger("pylog").level
    done = call("config", str(shop), "orders", "--set", "segment.ms=1000", option, "--json")
    assert "INFO pylog.topics Changed an option of a topic: topic=orders option=segment_ms" in done.complaints
    assert done.json
    assert logging.getLogger("pylog").level == level
    assert "INFO" not in call("config", str(shop), "orders", "--set", "segment.ms=2000").complaints
    assert "INFO pylog.store" in call("groups", "describe", str(shop), "billing", "--members", option).complaints


@pytest.mark.slow
@pytest.mark.parametrize("name", OURS)
def test_every_command_answers_in_json(name: str, words: Callable[[str], list[str]]) -> None:
    done = call(*words(name), "--json", stdin=b"a\nb\n")
    assert done.code == 0
    documents = done.json_lines if name in ("cat", "dump") else [done.json]
    assert documents
    assert all(isinstance(each, dict) for each in documents)


@pytest.mark.slow
@pytest.mark.parametrize("name", OURS)
def test_every_command_works_at_a_terminal(name: str, words: Callable[[str], list[str]]) -> None:
    done = call(*words(name), stdin=b"a\nb\n", terminal=True)
    assert done.code == 0
    assert done.output
    assert "Traceback" not in done.complaints


class ClosedPipe(Stream):
    """A pipe without a reader: the output fits in no buffer."""

    def write(self, text: str) -> int:
        raise BrokenPipeError(32, "Broken pipe")

    def flush(self) -> None:
        raise BrokenPipeError(32, "Broken pipe")

    def close(self) -> None:
        """The reader has ended."""


@pytest.mark.sampled(4)
@pytest.mark.parametrize("name", OURS)
def test_a_pipe_that_is_closed_ends_every_command_quietly(
    name: str, words: Callable[[str], list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    errors = Stream()
    monkeypatch.setattr(sys, "stdin", Stream(b"a\nb\n"))
    monkeypatch.setattr(sys, "stdout", ClosedPipe())
    monkeypatch.setattr(sys, "stderr", errors)
    assert run(words(name)) == 141
    assert "pipe" not in errors.written().decode().lower()


READING = (
    ["topics"],
    ["describe", "orders"],
    ["config", "orders"],
    ["cat", "orders"],
    ["doctor"],
    ["metrics"],
    ["retain", "--dry-run"],
    ["groups list"],
    ["groups describe"],
    ["groups health", "billing"],
    ["groups export"],
    ["groups reset", "billing", "--to-earliest"],
)


@pytest.mark.parametrize("words", READING, ids=" ".join)
def test_calls_that_only_read_leave_every_file_as_it_was(shop: Path, words: list[str]) -> None:
    def files() -> dict[Path, tuple[int, int]]:
        return {path: (path.stat().st_mtime_ns, path.stat().st_size) for path in shop.rglob("*")}

    read_all(shop)
    before = files()
    assert call(*words[0].split(), shop, *words[1:]).code == 0
    assert files() == before


# ---- wrong usage, and errors -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "arguments",
    [
        ["nothing"],
        ["topics"],
        ["topics", "a", "b"],
        ["topics", "--wrong"],
        ["cat", "a", "b", "--format", "xml"],
        ["groups", "no"],
    ],
)
def test_a_wrong_command_line_is_one_sentence_and_code_2(arguments: list[str]) -> None:
    done = call(*arguments)
    assert (done.code, done.output) == (2, b"")
    assert re.fullmatch(
        r"pylog: .+(; see `pylog COMMAND --help`|ll: pylog( groups)? --help|: pylog topics STORE)\n", done.complaints
    )


def test_a_store_that_is_open_exclusively_elsewhere_is_code_3(shop: Path) -> None:
    with pylog.open(shop, exclusive=True):
        done = call("create", shop, "new")
        assert done.code == 3
        assert done.complaints.count("\n") == 1
        assert call("topics", shop).code == 0  # reading needs no lock


def test_a_bug_is_not_dressed_up() -> None:
    with pytest.raises(ZeroDivisionError):
        ended(lambda: 1 // 0)


def test_the_program_alone_shows_its_help_and_its_exit_codes() -> None:
    done = call()
    assert done.code == 0
    assert done.text == call("--help").text
    assert all(f"{code:3}  {meaning}" in done.text for code, meaning in EXIT_CODES.items())


def test_the_version_is_printed() -> None:
    assert call("--version").text == f"{pylog.__version__}\n"


# ---- as a process ------------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_help_is_quick_and_loads_nothing_heavy() -> None:
    program = (
        "import sys; from pylog.cli.run import run; run(['--help']);"
        "print(*sorted({'numba', 'numpy', 'pyarrow', 'llvmlite'} & set(sys.modules)), file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stderr == "\n"
    assert "Usage: pylog COMMAND" in done.stdout


@pytest.mark.slow
def test_a_reader_that_leaves_early_ends_cat_quietly(shop: Path) -> None:
    with pylog.open(shop, durability=pylog.Durability.OS) as store:
        store.log("orders").append_many([b"x" * 100] * 20_000)
    for form in ("text", "parquet"):
        process = subprocess.Popen(
            [*PROGRAM, "cat", shop, "orders", "--format", form], stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.read(10)
        process.stdout.close()
        assert process.stderr.read() == b""
        process.stderr.close()
        assert process.wait() == 141


@pytest.mark.slow
def test_ctrl_c_ends_a_command_that_follows_and_what_it_has_read_is_out(shop: Path) -> None:
    with subprocess.Popen(
        [*PROGRAM, "cat", shop, "orders", "-f", "--json"], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        found = {json.loads(process.stdout.readline())["partition"] for _ in range(5)}
        with pylog.open(shop) as store:
            store.log("orders", 1).append(b"news")
        assert json.loads(process.stdout.readline())["value"] == "news"
        process.send_signal(signal.SIGINT)
        assert process.stderr.read() == b""
        assert process.wait() == 130
    assert found == {0, 1}


def test_without_the_extra_the_program_says_what_to_install(tmp_path: Path) -> None:
    program = "import sys; sys.modules['cyclopts'] = None; from pylog.cli import main; main()"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr == (
        "pylog: the command line requires cyclopts and rich; install them: pip install 'cyclopts>=4.1' 'rich>=14'\n"
    )
