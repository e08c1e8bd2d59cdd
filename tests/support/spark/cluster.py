"""A Spark cluster on this machine: a driver and two executors, each a process of its own, as `local-cluster` makes them.

The driver is not the test's process: that one has a local session of its own, and Spark allows one to a process. So a test hands
it jobs: functions of its module that take the session and what JSON can carry, and return what JSON can carry.

    def count(spark, path):
        return spark.read.format("pylog").options(path=path, subscribe="orders").load().count()

    def test_…(cluster, shop):
        assert cluster.run(count, path=str(shop)) == 2200

The driver can be killed, and another one started in its place.
"""

from __future__ import annotations

import contextlib
import importlib.util
import inspect
import json
import os
import subprocess
import sys
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from support.spark.sessions import quiet_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TESTS = Path(__file__).resolve().parents[2]
SOURCES = TESTS.parent / "src"
_ANSWER = "answer: "  # what else is printed is Spark's


class JobError(Exception):
    """A job failed; the message is its traceback."""


class Cluster:
    """A driver with two executors of one core and a gibibyte each. A context manager.

    Args:
        directory: for what Spark leaves behind; it needs an empty one.
        environment: more variables, of the driver and its executors.
        options: of Spark.
    """

    def __init__(
        self, directory: Path, environment: Mapping[str, str] | None = None, options: Mapping[str, str] | None = None
    ) -> None:
        self.log = directory / "driver.log"
        home = _spark_home(directory / "spark")
        environment = os.environ | {
            "SPARK_HOME": str(home),
            "PYSPARK_PYTHON": sys.executable,
            "SPARK_LOCAL_IP": "127.0.0.1",
            "PYTHONPATH": os.pathsep.join([str(SOURCES), str(TESTS), *filter(None, [os.environ.get("PYTHONPATH")])]),
            "PYTHONWARNINGS": "ignore",  # pandas is newer than pyspark likes; nothing here uses it
            **(environment or {}),
        }
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, __file__, str(directory), json.dumps(dict(options or {}))],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                env=environment,
                cwd=directory,
                text=True,
            )

    def run(self, job: Callable[..., Any], /, **arguments: Any) -> Any:
        """What `job(spark, **arguments)` returns on the driver.

        Args:
            job: a function of a module; the driver loads that module from its file.
            arguments: what JSON can carry.

        Raises:
            JobError: it failed, or the driver has died.
        """
        self.begin(job, **arguments)
        return self.answer()

    def begin(self, job: Callable[..., Any], /, **arguments: Any) -> None:
        """The same without waiting; `answer` has the result. Meanwhile the test may kill the driver or one of its executors."""
        assert self.process.stdin is not None
        try:
            print(json.dumps([inspect.getfile(job), job.__name__, arguments]), file=self.process.stdin, flush=True)
        except BrokenPipeError as error:
            raise self._death() from error

    def answer(self) -> Any:
        """What the job that was begun returns; as `run`."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if line.startswith(_ANSWER):
                result, error = json.loads(line.removeprefix(_ANSWER))
                if error is not None:
                    raise JobError(error)
                return result
        raise self._death()

    def _death(self) -> JobError:
        return JobError(f"the driver has died: {self.log.read_text(errors='replace')[-2000:]}")

    def kill(self) -> None:
        """Kills the driver as a power cut would; its executors go by themselves when they miss it."""
        self.process.kill()
        self.process.wait()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.stdin is not None:
            with contextlib.suppress(BrokenPipeError):  # it has died
                self.process.stdin.close()  # the driver stops its session and ends
        try:
            self.process.wait(60)
        finally:
            self.process.kill()
            if self.process.stdout is not None:
                self.process.stdout.close()


def _spark_home(home: Path) -> Path:
    """A directory like that of the package `pyspark`: executors write into it, and the environment shall stay as installed."""
    home.mkdir()
    found = importlib.util.find_spec("pyspark")
    assert found is not None
    assert found.origin is not None
    for entry in Path(found.origin).parent.iterdir():
        (home / entry.name).symlink_to(entry)
    return home


# ---- the driver's side ---------------------------------------------------------------------------------------------------


def _serve(directory: Path, options: Mapping[str, str]) -> None:
    """Runs jobs, one a line, until the input ends."""
    spark = _session(directory, options)
    for line in sys.stdin:
        file, name, arguments = json.loads(line)
        result, error = None, None
        try:
            result = getattr(_module(file), name)(spark, **arguments)
        except Exception:  # noqa: BLE001  # whatever it is, the test is told
            error = traceback.format_exc()
        print(f"\n{_ANSWER}{json.dumps([result, error])}", flush=True)  # noqa: T201
    spark.stop()


def _module(file: str) -> Any:
    """The module in a file. It is called `__main__`, so that what its functions send to executors goes by value."""
    spec = importlib.util.spec_from_file_location("__main__", file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _session(directory: Path, given: Mapping[str, str]) -> SparkSession:
    quick = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
    options = {
        "spark.driver.memory": "512m",
        "spark.executor.memory": "512m",
        "spark.driver.extraJavaOptions": f"{quick} -Dderby.system.home={directory}",
        "spark.executor.extraJavaOptions": quick,
        "spark.sql.shuffle.partitions": "2",
        **given,
    }
    return quiet_session("local-cluster[2,1,1024]", "pylog-cluster-tests", directory, options)


if __name__ == "__main__":
    _serve(Path(sys.argv[1]), json.loads(sys.argv[2]))
