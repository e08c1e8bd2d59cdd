"""P11: a Spark batch read from pylog's files, against Spark's own Kafka connector and a broker that serves the same files.

The connector needs another version of Spark, so it runs in an environment of its own, in a process that takes turns with pylog.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self

import pylog
from benchmarks.broker import tuned_jars
from benchmarks.data import fill, new_log, touch
from benchmarks.measure import Settings, millions, race, times
from benchmarks.spark import ALL, count_bytes, frame_of, session

if TYPE_CHECKING:
    from support.kafka.connector import Connector

PROJECT: Final = Path(__file__).resolve().parent.parent.parent
CACHE: Final = PROJECT / ".cache" / "connector"
sys.path.append(str(PROJECT / "tests"))  # the harness that runs a broker


def run(settings: Settings) -> None:
    """Reports what the connector adds to the rows of P11."""
    from support.kafka.connector import PYSPARK, Connector

    count = settings.scaled(20_000_000, 2_000_000)
    directory = Path(settings.directory) / "log"
    with new_log(directory) as log:
        fill(log, count)
    fetched = Connector.fetch(CACHE)
    spark = session(settings)
    try:
        with _broker(directory) as bootstrap, _Asked(bootstrap, fetched) as connector:
            touch(directory)
            frames = {names: frame_of(spark, directory, count, names) for names in (("value",), ALL)}
            contestants: dict[str, Callable[[], float]] = {
                len(names): lambda frame=frame: millions(count, lambda: count_bytes(frame, count))  # type: ignore[misc]
                for names, frame in frames.items()
            }
            speed = race(contestants | {"connector": lambda: count / connector.seconds() / 1e6}, settings.repeated(3, 1))
    finally:
        spark.stop()
    for names, factor in ((("value",), 5), (ALL, 3)):
        mine = speed[len(names)]
        settings.report_ratio(
            "P11",
            f"Spark local[2], sum(length(value)), {count / 1e6:g} M rows, "
            + ("value only" if len(names) == 1 else "all seven columns"),
            "M rows/s",
            mine,
            f"Spark {PYSPARK}'s Kafka connector, from a Kafka broker on this machine",
            speed["connector"],
            target=times(factor),
        )


@contextmanager
def _broker(directory: Path) -> Iterator[str]:
    """A broker on a copy of pylog's directory; its address."""
    from support.kafka.adopt import AdoptedTopic, adopt
    from support.kafka.harness import Broker

    served = directory.with_name("served")
    shutil.copytree(directory, served)
    with pylog.open(served, mode="r") as store:
        topics = [AdoptedTopic(name, topic.partition_count, str(topic.id)) for name, topic in store.topics().items()]
    adopt(served, topics)
    with Broker(served, tuned_jars()) as broker:
        yield broker.bootstrap


class _Asked:
    """A process with the connector's Spark that runs the query when it is asked to."""

    def __init__(self, bootstrap: str, fetched: Connector) -> None:
        command = [str(fetched.python), str(Path(__file__).parent / "query.py"), bootstrap, fetched.jars]
        environment = {name: value for name, value in os.environ.items() if name not in ("PYSPARK_PYTHON", "PYTHONPATH")}
        pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
        self._process = subprocess.Popen(command, env=environment, text=True, **pipes)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.terminate()
        self._process.wait()

    def seconds(self) -> float:
        """How long the query takes now."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        return float(self._process.stdout.readline())
