"""Writes each record to a database exactly once, even if a process dies at any point.

    python examples/exactly_once.py      # creates a store and an SQLite database in a temporary directory, and consumes twice

One transaction of the database writes the rows and the next offset: both or neither. Reading begins at the database's offsets.
The group only shares the partitions among the processes that run this program. A process that was suspended, and lost its
partitions without notice, cannot write any more, because the offset in the database has changed.
"""

from __future__ import annotations

import sqlite3
import tempfile
from pathlib import Path

import pylog

SCHEMA = """
    CREATE TABLE IF NOT EXISTS payments (partition INTEGER, "offset" INTEGER, account TEXT, amount INTEGER);
    CREATE TABLE IF NOT EXISTS positions (partition INTEGER PRIMARY KEY, next_offset INTEGER);
"""


class OvertakenError(Exception):
    """Another process writes the rows of this partition now."""


class Ledger(pylog.ConsumerRebalanceListener):
    """Payments in a database, with the next offset of each partition."""

    def __init__(self, consumer: pylog.Consumer, database: sqlite3.Connection) -> None:
        self.consumer = consumer
        self.database = database
        self.next_offsets: dict[pylog.TopicPartition, int] = {}
        database.executescript(SCHEMA)

    def on_partitions_assigned(self, assigned: set[pylog.TopicPartition]) -> None:
        """Starts at the offset in the database."""
        for partition in assigned:
            with self.database:
                self.database.execute("INSERT OR IGNORE INTO positions VALUES (?, 0)", (partition.partition,))
            question = "SELECT next_offset FROM positions WHERE partition = ?"
            (self.next_offsets[partition],) = self.database.execute(question, (partition.partition,)).fetchone()
            self.consumer.seek(partition, self.next_offsets[partition])

    def write(self, partition: pylog.TopicPartition, records: list[pylog.Record]) -> None:
        """Writes rows and offset in one transaction."""
        end = records[-1].offset + 1
        rows = [(record.partition, record.offset, record.key, int(record.value or b"0")) for record in records]
        with self.database:  # one transaction: committed at its end, rolled back on an exception
            self.database.executemany("INSERT INTO payments VALUES (?, ?, ?, ?)", rows)
            moved = self.database.execute(
                "UPDATE positions SET next_offset = ? WHERE partition = ? AND next_offset = ?",
                (end, partition.partition, self.next_offsets[partition]),
            )
            if moved.rowcount != 1:
                raise OvertakenError(partition)
        self.next_offsets[partition] = end


def consume(store: pylog.Store, database: sqlite3.Connection, timeout_ms: int, max_records: int | None = None) -> None:
    """Writes what comes, until nothing has come for so long."""
    with store.consumer(group_id="ledger", enable_auto_commit=False, auto_offset_reset="earliest") as consumer:
        ledger = Ledger(consumer, database)
        consumer.subscribe(["payments"], listener=ledger)
        while found := consumer.poll(timeout_ms, max_records):
            for partition, records in found.items():
                ledger.write(partition, records)


def main() -> None:
    """Consumes a topic, and again after further records were appended."""
    with tempfile.TemporaryDirectory() as directory, pylog.open(Path(directory) / "shop") as store:
        store.create_topic("payments", partition_count=2)
        database = sqlite3.connect(Path(directory) / "ledger.db")
        for _ in range(2):
            for partition in range(2):
                store.log("payments", partition).append_many([(b"alice", b"30"), (b"bob", b"12")])
            consume(store, database, timeout_ms=100)
            print(database.execute("SELECT account, count(*), sum(amount) FROM payments GROUP BY account").fetchall())
        database.close()


if __name__ == "__main__":
    main()
