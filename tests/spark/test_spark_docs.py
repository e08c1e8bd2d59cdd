"""What docs/SPARK.md shows runs, as written."""

from __future__ import annotations

import datetime as dt
import importlib.util
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree as ET
from zoneinfo import ZoneInfo

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
    spark.sql("DROP TABLE IF EXISTS orders")  # the catalog is that of all sessions
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


def test_writing(page: Page, shop: Path, capsys: pytest.CaptureFixture[str]):
    page.run("Writing", shop)
    assert capsys.readouterr().out == "changes 2\ncopies 200\n"


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


# ---- the worked example --------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def flights(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Flights of three days, as the demo writes them: one an hour from five in the morning on, each later than the one before."""
    import pylog

    path = tmp_path_factory.mktemp("example") / "flights-demo"
    with pylog.open(path) as store:
        store.create_topic("flights", partition_count=2)
        for day in range(3, 6):
            begin = dt.datetime(2013, 7, day, 5, tzinfo=ZoneInfo("America/New_York"))
            for row in range(18):
                delay = None if row == 3 else row
                value = json.dumps({"carrier": "UA", "origin": "EWR", "dest": "IAH", "dep_delay": delay}).encode()
                time = int((begin + dt.timedelta(hours=row)).timestamp() * 1000)
                store.log("flights", row % 2).append_many([(b"UA 1", value, None, time)])
    return path


def test_the_example_over_the_flights_draws_its_chart(
    spark: SparkSession, flights: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    example = importlib.util.spec_from_file_location("flights_spark", PROJECT / "examples" / "flights_spark.py")
    assert example is not None
    assert example.loader is not None
    module = importlib.util.module_from_spec(example)
    example.loader.exec_module(module)
    hours = module.explore(spark.newSession(), flights, tmp_path / "flights.svg")
    assert hours == [(5 + row, 3, float(row)) for row in range(18) if row != 3]
    assert "2013-07-04: 18 flights, from 2 tasks" in capsys.readouterr().out
    picture = ET.parse(tmp_path / "flights.svg").getroot()
    assert len(picture.findall("{http://www.w3.org/2000/svg}rect")) == len(hours)
