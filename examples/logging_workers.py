"""Sends the standard library's logging from many processes into one topic.

    python examples/logging_workers.py      # three workers log into a store in a temporary directory

Each process has a handler with its own store. The producer's thread appends the lines in batches, and the processes take turns
automatically. No process has to run for the others. If a process dies, its appended lines stay.
"""

from __future__ import annotations

import logging
import multiprocessing
import sys
import tempfile
from collections import Counter
from pathlib import Path

import pylog

LINES = 100
WORKERS = 3


class TopicHandler(logging.Handler):
    """Sends each line to a topic, keyed by its logger's name. Create one in each process, after its start.

    Args:
        path: The store's directory.
        topic: The topic of the lines; it must exist.
    """

    def __init__(self, path: Path, topic: str) -> None:
        super().__init__()
        self.topic = topic
        self.store = pylog.open(path, durability=pylog.Durability.INTERVAL(1000))  # a power loss may take the last second
        self.producer = self.store.producer(linger_ms=20, max_block_ms=100)  # the longest delay if the buffer is full
        self.addFilter(lambda line: not line.name.startswith("pylog"))  # the store's own log lines go to other handlers

    def emit(self, record: logging.LogRecord) -> None:
        """Sends a line. Never raises, as logging requires: reports an unsent line on stderr."""
        try:
            self.producer.send(
                self.topic,
                self.format(record).encode(),
                key=record.name.encode(),
                headers=[("level", record.levelname.encode()), ("process", b"%d" % (record.process or 0))],
                timestamp=int(record.created * 1000),
                on_delivery=self.lost,
            )
        except pylog.PylogError:
            self.handleError(record)

    def lost(self, error: Exception | None, _: pylog.RecordMetadata | None) -> None:
        """Reports a line that could not be appended. The producer's thread calls this for each line."""
        if error is not None:
            print(f"a line of the log is lost: {error}", file=sys.stderr)

    def close(self) -> None:
        """Appends the waiting lines. `logging.shutdown` calls this when the program ends."""
        self.store.close()  # closes its producer, which appends the waiting lines
        super().close()


def work(path: Path, number: int) -> None:
    """Sets logging up and logs, in a worker process."""
    logging.basicConfig(level=logging.INFO, handlers=[TopicHandler(path, "log")], format="%(message)s")
    logger = logging.getLogger(f"worker.{number}")
    for line in range(LINES):
        logger.info("line %d", line)
    logging.shutdown()  # multiprocessing ends its children without running `atexit` handlers


def main() -> None:
    """Starts three processes that log, and reads their lines."""
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "store"
        with pylog.open(path) as store:
            store.create_topic("log", partition_count=2, retention_bytes=1 << 30, compression_type="zstd")
        start = multiprocessing.get_context("spawn").Process
        workers = [start(target=work, args=(path, number)) for number in range(WORKERS)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        lines = pylog.read_table(path, "log", columns=["key", "value"]).to_pylist()
        found = Counter((line["key"], line["value"]) for line in lines)
        expected = [(b"worker.%d" % number, b"line %d" % line) for number in range(WORKERS) for line in range(LINES)]
        if found != Counter(expected):
            sys.exit(f"expected {len(expected)} lines, once each; found {len(lines)}")
        print(f"{len(lines)} lines of {WORKERS} workers, none lost, none torn")


if __name__ == "__main__":
    main()
