"""The code of docs/how-to/kafka-programs.md runs as written, in processes that have not imported the real kafka-python."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from support.docs.pages import PROJECT, Block, blocks

PAGE = "docs/how-to/kafka-programs.md"


@pytest.mark.parametrize("block", [pytest.param(each, id=f"line {each.line}") for each in blocks(PAGE) if each.expected])
def test_a_block_prints_what_the_page_says(block: Block, tmp_path: Path) -> None:
    paths = os.pathsep.join([str(PROJECT / "src"), os.environ.get("PYTHONPATH", "")])
    environment = os.environ | {"PYTHONPATH": paths}
    if block.language == "python":
        command: list[str] = [sys.executable, "-c", block.source]
    else:
        lines = [line.removeprefix("$ ") for line in block.source.splitlines() if line.startswith("$ ")]
        command = ["bash", "-ec", "\n".join(lines)]
        environment["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), environment["PATH"]])
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout == block.expected


def test_the_page_has_code_that_is_run() -> None:
    assert any(each.expected for each in blocks(PAGE))
