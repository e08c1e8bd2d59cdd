"""`./dev record-connector`: asks Spark's Kafka connector all of `connector_table`; keeps its answers in `tests/golden/connector`.

A broker serves the topics of `connector_data`. Takes a few minutes; to be run when the table or the data changes.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pylog
from support.kafka.adopt import AdoptedTopic, adopt
from support.kafka.connector import Connector
from support.kafka.harness import Broker, KafkaJars
from support.spark.connector_data import write_topics

TESTS = Path(__file__).resolve().parents[2]
CACHE = TESTS.parent / ".cache"
GOLDEN = TESTS / "golden" / "connector"
HIGHEST_EPOCH, NEXT_PRODUCER_ID = 100, 1_000_000  # beyond all that is in the data


def main() -> None:
    with tempfile.TemporaryDirectory() as scratch, serving(Path(scratch) / "data") as broker:
        found = asked(broker.bootstrap, scratch)
    GOLDEN.mkdir(exist_ok=True)
    (GOLDEN / "answers.json").write_text(by_line(found["answers"]))
    (GOLDEN / "rows.json").write_text(by_line({name: found["rows"][name] for name in sorted(found["rows"])}))


@contextmanager
def serving(directory: Path) -> Iterator[Broker]:
    """A broker on the data; nothing of it may change."""
    write_topics(directory)
    with pylog.open(directory, mode="r") as store:
        topics = [
            AdoptedTopic(name, each.partition_count, str(each.id), leader_epoch=HIGHEST_EPOCH)
            for name, each in store.topics().items()
        ]
    adopt(directory, topics, NEXT_PRODUCER_ID)
    with Broker(directory, KafkaJars.fetch(CACHE / "kafka"), config={"log.cleaner.enable": "false"}) as broker:
        yield broker


def asked(bootstrap: str, scratch: str) -> Any:
    """What the connector answers, in a process of its own environment."""
    connector = Connector.fetch(CACHE / "connector")
    environment = {
        name: value for name, value in os.environ.items() if name not in ("PYSPARK_PYTHON", "PYTHONPATH", "SPARK_HOME")
    }
    command = [str(connector.python), str(Path(__file__).with_name("connector_answers.py")), bootstrap, connector.jars, scratch]
    done = subprocess.run(command, env=environment, check=False, stdout=subprocess.PIPE)
    if done.returncode or b"TimeoutException" in done.stdout:
        raise SystemExit("the connector gave up, or waited in vain on a machine that is too busy; nothing is kept")
    return json.loads(done.stdout.splitlines()[-1])


def by_line(entries: dict[str, Any]) -> str:
    """JSON with a line to an entry, so that a difference can be read."""
    lines = [f"{json.dumps(name)}: {json.dumps(entry, sort_keys=True)}" for name, entry in entries.items()]
    return "{\n" + ",\n".join(lines) + "\n}\n"


if __name__ == "__main__":
    sys.exit(main())
