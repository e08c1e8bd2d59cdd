"""One small Spark session for all tests that need one; they are in one file, so that one worker of pytest-xdist runs them."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from support.kafka_tiers import key, unpacked  # noqa: F401 - fixtures
from support.spark.cluster import Cluster
from support.spark.sessions import quiet_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SOURCES = Path(__file__).resolve().parent.parent.parent / "src"


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """A local session of two cores. Its absence is a failure: reading from Spark is what pylog promises."""
    require_java()
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("PYSPARK_PYTHON", sys.executable)
        environment.setenv("PYTHONPATH", os.pathsep.join(filter(None, [str(SOURCES), os.environ.get("PYTHONPATH")])))
        environment.setenv("PYTHONWARNINGS", "ignore")  # pandas is newer than pyspark likes; nothing here uses it
        session = _session(tmp_path_factory.mktemp("spark"))
        yield session
        session.stop()


@pytest.fixture(scope="module")
def cluster(java: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A driver and two executors in processes of their own, for the tests of one file."""
    with Cluster(tmp_path_factory.mktemp("cluster")) as made:
        yield made


@pytest.fixture(scope="session")
def java() -> None:
    """For tests that start Spark by themselves."""
    require_java()


def require_java() -> None:
    program = Path(os.environ["JAVA_HOME"], "bin", "java") if os.environ.get("JAVA_HOME") else Path("java")
    try:
        subprocess.run([program, "-version"], check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError) as error:
        pytest.fail(f"Spark needs Java 17 or newer, and `{program} -version` says: {error}\nRun `./dev setup`.", pytrace=False)


def _session(directory: Path) -> SparkSession:
    options = {
        "spark.driver.memory": "768m",
        "spark.driver.extraJavaOptions": f"-XX:TieredStopAtLevel=1 -Dderby.system.home={directory}",
        "spark.sql.shuffle.partitions": "1",
        "spark.sql.execution.arrow.pyspark.enabled": "true",
    }
    return quiet_session("local[2]", "pylog-tests", directory, options)
