"""The standard library's logging, from many processes, into one topic.

    python examples/logging_workers.py      # three workers log into a store in a temporary directory

Every process has a handler with a store of its own. Lines are appended in batches by the producer's thread; processes take
turns by themselves. No process has to run for the others, and none that dies takes lines with it that it had appended.
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
    """Sends each line to a topic, keyed by its logger's name. Make one in each process, after it was started.

    Args:
        path: of the store.
        topic: where lines go; there must be one.
    """

    def __init__(self, path: Path, topic: str) -> None:
        super().__init__()
        self.topic = topic
        self.store = pylog.open(path, durability=pylog.Durability.INTERVAL(1000))  # a power loss may take the last second
        self.producer = self.store.producer(linger_ms=20, max_block_ms=100)  # a full buffer holds nobody up for longer
        self.addFilter(lambda line: not line.name.startswith("pylog"))  # what the store says of itself goes elsewhere

    def emit(self, record: logging.LogRecord) -> None:
        """Never raises, as logging wants it: what cannot be sent is reported on stderr."""
        try:
            self.producer.send(
                self.topic,
                self.format(record).encode(),
                key=record.name.encode(),
                headers=[("level", record.levelname.encode()), ("process", b"%d" % (record.process or 0))],
                timestamp_ms=int(record.created * 1000),
                on_delivery=self.lost,
            )
        except pylog.PylogError:
            self.handleError(record)

    def lost(self, error: Exception | None, _: pylog.RecordMetadata | None) -> None:
        """In the producer's thread, for each line: it is in the log, or this is why not."""
        if error is not None:
            print(f"a line of the log is lost: {error}", file=sys.stderr)

    def close(self) -> None:
        """Appends what is waiting. Called by `logging.shutdown` when the program ends."""
        self.store.close()  # closes its producer, which sends what it has
        super().close()


def work(path: Path, number: int) -> None:
    """What a worker does: set logging up, and log."""
    logging.basicConfig(level=logging.INFO, handlers=[TopicHandler(path, "log")], format="%(message)s")
    logger = logging.getLogger(f"worker.{number}")
    for line in range(LINES):
        logger.info("line %d", line)
    logging.shutdown()  # multiprocessing ends its children without what `atexit` would do


def main() -> None:
    """Has three processes log, and reads what they logged."""
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "store"
        with pylog.open(path) as store:
            store.create_topic("log", partitions=2, retention_bytes=1 << 30, compression_type="zstd")
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
