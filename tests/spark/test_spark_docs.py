"""What docs/SPARK.md shows runs, as written."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PROJECT = Path(__file__).resolve().parent.parent.parent
TEXT = (PROJECT / "docs" / "SPARK.md").read_text()


def block(heading: str) -> str:
    """The Python under a heading."""
    (found,) = re.findall(r"```python\n(.*?)```", TEXT.split(f"\n## {heading}\n")[1].split("\n## ")[0], re.DOTALL)
    return found


BEGINNING = re.findall(r"```python\n(.*?)```", TEXT.split("\n## ")[0], re.DOTALL)[0]


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with the store that the page begins with."""
    directory = tmp_path_factory.mktemp("docs")
    subprocess.run([sys.executable, "-c", BEGINNING], cwd=directory, env=environment(), check=True)
    return directory


def environment() -> dict[str, str]:
    return os.environ | {"PYTHONPATH": os.pathsep.join([str(PROJECT / "src"), os.environ.get("PYTHONPATH", "")])}


class Page:
    """Runs blocks of the page in a session of their own."""

    def __init__(self, spark: SparkSession) -> None:
        from pyspark.sql import functions

        self.spark = spark
        self.names: dict[str, Any] = {"spark": spark, "F": functions}

    def run(self, heading: str, directory: Path) -> dict[str, Any]:
        """The names that a block has made. Its paths are made absolute: Spark's JVM stays where it was started."""
        source = re.sub(r"(?<=[\"'])(?=(shop|checkpoints|copied)\b)", f"{directory}/", block(heading))
        exec(source, self.names)
        return self.names


@pytest.fixture
def page(spark: SparkSession) -> Page:
    return Page(spark.newSession())


def test_json_values(page: Page, shop: Path):
    totals = page.run("JSON values", shop)["totals"].collect()
    expected = {customer: 2 * sum(100 * row for row in range(100) if row % 3 == customer) for customer in range(3)}
    assert {row.customer: row.cents for row in totals} == expected


def test_sql_tables(page: Page, shop: Path, capsys: pytest.CaptureFixture[str]):
    page.run("SQL tables", shop)
    cells = [[cell.strip() for cell in line.split("|")] for line in capsys.readouterr().out.splitlines()]
    assert [row[1:4] for row in cells if row[1:2] in (["0"], ["1"])] == [
        ["0", "33", "2024-01-01 03:14:00"],
        ["1", "33", "2024-01-01 03:15:00"],
    ]


def test_push_down(page: Page, shop: Path, capsys: pytest.CaptureFixture[str]):
    page.run("Push-down", shop)
    assert capsys.readouterr().out == "40 rows from 1 task\n"


def test_windows_with_a_watermark(page: Page, shop: Path):
    page.run("Windows with a watermark", shop)
    found = page.spark.sql("SELECT count FROM windows").collect()
    assert [row[0] for row in found] == [30] * 6


def test_a_stream_joined_with_a_topic_as_a_table(page: Page, shop: Path):
    page.run("A stream joined with a topic as a table", shop)
    found = page.spark.sql("SELECT name, count(*) FROM named GROUP BY name ORDER BY name").collect()
    assert found == [("Ada", 68), ("Grace", 66), ("Katherine", 66)]


def test_foreach_batch(page: Page, shop: Path):
    page.run("foreachBatch", shop)
    batches = sorted((shop / "copied").iterdir())
    copied = [
        json.loads(json.loads(line)["json"]) for file in shop.glob("copied/*/*.json") for line in file.read_text().splitlines()
    ]
    assert len(batches) == 4
    assert sorted(order["id"] for order in copied) == list(range(200))


def test_spark_connect(shop: Path):
    """In a process of its own: a session of Spark Connect and another one do not go together."""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", block("Spark Connect") + "\nremote.stop()\n"],
        cwd=shop,
        env=environment() | {"PYSPARK_PYTHON": sys.executable, "PYTHONWARNINGS": "ignore", "SPARK_LOCAL_IP": "127.0.0.1"},
        check=False,
        capture_output=True,
        text=True,
    )
    assert "10 orders" in done.stdout, done.stderr[-3000:]
