"""The code in the Markdown pages, and a way to run it.

A page is read from top to bottom: its blocks of `python`, `console` and `sh` run in one fresh directory, one after the other,
in one namespace. A `text` block right behind one of them is what it prints (`...` stands for anything). In a `console`
block lines that begin with `$ ` are commands; what stands between them is what they print, if anything stands there.

Comments before a block, which no reader sees, say what is different:

    <!-- test: exits with 1 -->           the block's last command fails, as it should
    <!-- test: not run, REASON -->        not run; tests/test_docs.py lists all of these
"""

from __future__ import annotations

import contextlib
import doctest
import io
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

PROJECT = Path(__file__).resolve().parents[3]
CODE = ("python", "console", "sh")
OTHER = ("text", "toml", "csv", "dockerfile")
NEEDS_A_SHELL = re.compile(r"[|<>;&$*`]")

_FENCE = re.compile(r"^```(?P<language>[^\n`]*)\n(?P<source>.*?)^```$", re.DOTALL | re.MULTILINE)
_HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)
_MARK = re.compile(r"<!-- test: (.+?) -->\n\s*$")


@dataclass(frozen=True)
class Block:
    """A fenced block of a page."""

    page: str
    heading: str
    line: int  # of the page, where the source begins
    language: str
    source: str
    mark: str  # what the comment before it says
    expected: str | None

    @property
    def place(self) -> str:
        return f"{self.page}:{self.line}"

    @property
    def not_run(self) -> str | None:
        """Why it is not run."""
        return self.mark.partition("not run, ")[2] or None

    @property
    def exit_code(self) -> int:
        found = re.fullmatch(r"exits with (\d+)", self.mark)
        return int(found[1]) if found else 0


def pages() -> list[str]:
    """All Markdown files that are read by people, as paths from the project's root."""
    found = [*PROJECT.glob("*.md"), *(PROJECT / "docs").rglob("*.md")]
    return sorted(path.relative_to(PROJECT).as_posix() for path in found)


def blocks(page: str) -> list[Block]:
    """Every fenced block of a page; one that is another's output is part of that one."""
    text = (PROJECT / page).read_text()
    found: list[Block] = []
    end_of_code = -1
    for fence in _FENCE.finditer(text):
        language, before = fence["language"], text[: fence.start()]
        if language == "text" and not text[end_of_code : fence.start()].strip() and found and found[-1].language in CODE:
            found[-1] = replace(found[-1], expected=fence["source"])
            continue
        headings = _HEADING.findall(_FENCE.sub("", before))
        mark = _MARK.search(before)
        line = before.count("\n") + 2
        found.append(
            Block(page, headings[-1] if headings else "", line, language, fence["source"], mark[1] if mark else "", None)
        )
        end_of_code = fence.end()
    return found


def code(page: str) -> list[Block]:
    return [block for block in blocks(page) if block.language in CODE]


def run_blocks(page: str) -> list[Block]:
    """The blocks that run: all but those that say why they do not."""
    return [block for block in code(page) if block.not_run is None]


# ---- running -------------------------------------------------------------------------------------------------------------


@dataclass
class Runner:
    """Runs blocks, and keeps what they printed. The working directory is the caller's to choose."""

    replacements: dict[str, str] = field(default_factory=dict)  # of what a page says -> what it is here
    names: dict[str, Any] = field(default_factory=lambda: {"__name__": "__main__"})
    printed: list[str] = field(default_factory=list)

    def run(self, block: Block) -> None:
        """Runs a block and compares what it prints with what the page shows.

        Raises:
            AssertionError: it prints something else, or a command ends otherwise than the page says.
        """
        source = self._here(block.source)
        if block.language == "python":
            output = self._python(block, source)
        elif block.language == "sh":
            lines = [re.sub(r"(^|\s+)#\s.*", "", line) for line in _joined(source)]
            output = self._commands(block, [(line, None) for line in lines if line])
        else:
            output = self._commands(block, list(_dialogue(source)))
        self.printed.append(output)
        if block.expected is not None:
            same(block.place, self._here(block.expected), output)

    def _here(self, text: str) -> str:
        for written, here in self.replacements.items():
            text = text.replace(written, here)
        return text

    def _python(self, block: Block, source: str) -> str:
        program = compile("\n" * (block.line - 1) + source, str(PROJECT / block.page), "exec", dont_inherit=True)
        with contextlib.redirect_stdout(io.StringIO()) as output:
            exec(program, self.names)
        return output.getvalue()

    def _commands(self, block: Block, dialogue: list[tuple[str, str | None]]) -> str:
        printed = []
        for number, (command, expected) in enumerate(dialogue, 1):
            code, output = command_line(command)
            assert code == (block.exit_code if number == len(dialogue) else 0), f"{block.place}: `{command}`: {code}\n{output}"
            if expected is not None:
                same(f"{block.place}: `{command}`", expected, output)
            printed.append(output)
        return "".join(printed)


def same(place: str, expected: str, output: str) -> None:
    """Compares, with `...` for anything, and without blanks at the ends of lines."""
    wanted, got = _trimmed(expected), _trimmed(output)
    equal = doctest.OutputChecker().check_output(wanted, got, doctest.ELLIPSIS)
    assert equal, f"{place}\nthe page shows:\n{wanted}\nprinted was:\n{got}"


def _trimmed(text: str) -> str:
    return "\n".join(line.rstrip() for line in text.strip("\n").splitlines()) + "\n"


def _dialogue(source: str) -> Iterator[tuple[str, str | None]]:
    """Commands of a `console` block, each with what is shown below it."""
    for piece in re.split(r"^\$ ", source, flags=re.MULTILINE)[1:]:
        (command, *output) = _joined(piece)
        yield command, "\n".join(output) if "".join(output).strip() else None


def _joined(source: str) -> list[str]:
    """Lines, those that end in a backslash with the next one."""
    return source.replace("\\\n", "").strip("\n").split("\n")


def command_line(command: str) -> tuple[int, str]:
    """Runs a command; returns how it ended, and what it printed, complaints too.

    `pylog` alone runs in this process: starting one takes a second. What needs a shell gets one.
    """
    words = shlex.split(command)
    if words[0] == "pylog" and not NEEDS_A_SHELL.search(command):
        from pylog.cli.run import run

        with contextlib.redirect_stdout(_Text()) as output, contextlib.redirect_stderr(output):
            code = run(words[1:])
        return code, output.written()
    function = f'pylog() {{ "{sys.executable}" -m pylog "$@"; }}\n'
    ended = subprocess.run(
        ["sh", "-e", "-c", function + command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False, env=_environment()
    )
    return ended.returncode, ended.stdout.decode()


class _Text(io.TextIOWrapper):
    """Stands for a pipe: text, with the bytes below it."""

    def __init__(self) -> None:
        super().__init__(io.BytesIO(), encoding="utf-8", newline="")

    def written(self) -> str:
        self.flush()
        buffer = self.buffer
        assert isinstance(buffer, io.BytesIO)
        return buffer.getvalue().decode()


def _environment() -> dict[str, str]:
    """Programs that a page starts import the pylog that is tested here."""
    path = [str(PROJECT / "src"), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(path), "COLUMNS": "130"}
