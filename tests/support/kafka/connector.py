"""Spark's Kafka connector, fetched once: an environment with its PySpark, which is older than ours, and its jars. 450 MB."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

PYSPARK = "4.0.0"  # the newest whose connector can be had
HERE = Path(__file__).resolve().parent


@dataclass(frozen=True)
class Connector:
    """Where the connector is; `fetch` makes it.

    Attributes:
        python: the interpreter of its environment.
        jars: its jars, as the setting `spark.jars` takes them.
    """

    python: Path
    jars: str

    @classmethod
    def fetch(cls, directory: Path) -> Connector:
        """Fetches with pip and Maven what is not in the directory yet."""
        python = directory / "venv/bin/python"
        if not (directory / "fetched").exists():
            print(f"fetching PySpark {PYSPARK} and its Kafka connector (once, 450 MB)", flush=True)
            directory.mkdir(parents=True, exist_ok=True)
            _run(sys.executable, "-m", "venv", str(directory / "venv"))
            _run(str(python), "-m", "pip", "install", "--quiet", f"pyspark=={PYSPARK}")
            goal = ("-DexcludeTransitive=true", f"-DoutputDirectory={directory / 'jars'}", "dependency:copy-dependencies")
            _run("mvn", "-q", "-B", "-f", str(HERE / "connector.xml"), *goal)
            (directory / "fetched").touch()
        return cls(python, ",".join(map(str, sorted((directory / "jars").glob("*.jar")))))


def _run(*command: str) -> None:
    done = subprocess.run(command, check=False, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)} failed; it needs Maven, and a network, once:\n{done.stdout}")
