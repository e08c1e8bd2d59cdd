"""The code of docs/how-to/kafka-programs.md runs as written, in processes that have not imported the real kafka-python."""

from __future__ import annotations

import importlib.metadata
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from support import warm
from support.docs.pages import CODE, PROJECT, Block, blocks

PAGE = "docs/how-to/kafka-programs.md"
GIVEN = {  # what the page says is there before its code
    "program.py": """
        from kafka import KafkaProducer
        with KafkaProducer() as producer:
            assert producer.send("orders", b"paid").get(60).offset == 0
    """,
    "shop_service.py": """
        from kafka import KafkaConsumer, KafkaProducer
        def run_once():
            options = {"group_id": "shipping", "auto_offset_reset": "earliest", "consumer_timeout_ms": 0}
            with KafkaConsumer("orders", **options) as consumer, KafkaProducer() as producer:
                for message in consumer:
                    producer.send("shipments", b"shipped " + message.key)
    """,
}


def command_of(block: Block, directory: Path) -> list[str]:
    if "def test_" in block.source:
        (directory / "test_shop.py").write_text(block.source)
        known = {each.value for each in importlib.metadata.entry_points(group="pytest11")}
        plugin = [] if "pylog.testing.plugin" in known else ["-p", "pylog.testing.plugin"]
        return ["-m", "pytest", "-q", "-p", "no:cacheprovider", *plugin, "test_shop.py"]
    if block.language == "python":
        return ["-c", block.source]
    lines = [line.removeprefix("$ ") for line in block.source.splitlines() if line.startswith("$ ")]
    return ["bash", "-ec", "\n".join(lines)]


@pytest.mark.slow
@pytest.mark.parametrize("block", [pytest.param(each, id=f"line {each.line}") for each in blocks(PAGE) if each.language in CODE])
def test_a_block_runs_and_prints_what_the_page_says(block: Block, tmp_path: Path) -> None:
    for name, text in GIVEN.items():
        (tmp_path / name).write_text(textwrap.dedent(text))
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join([str(PROJECT / "src"), os.environ.get("PYTHONPATH", "")]),
        "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]),
    }
    if "--path" in block.source:  # the page's export leaves nothing else in the variable
        environment["PYTHONPATH"] = str(PROJECT / "src")
        block = Block(**{**vars(block), "source": block.source.replace("--path)", "--path):$PYTHONPATH")})
    command = command_of(block, tmp_path)
    if command[0] == "bash":
        done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    else:
        done = warm.run(command, cwd=tmp_path, env=environment)
    assert done.returncode == 0, done.stdout + done.stderr
    assert block.expected is None or done.stdout == block.expected


def test_the_page_shows_each_way_in() -> None:
    assert sum(each.language in CODE for each in blocks(PAGE)) >= 4
