"""Others who keep records in files of their own: databases, queues, files of columns. How each is set, and why: README.md here.

All keep the same records: 8 bytes of key, 100 of value, and the number of the record. They take Python objects, a thousand a
transaction where there are transactions.
"""

from __future__ import annotations

import sqlite3
import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

import diskcache  # type: ignore[import-untyped]
import lmdb
import persistqueue
import rocksdict

from benchmarks.data import FIRST_TIMESTAMP

TRANSACTION = 1000

Pair = tuple[bytes, bytes]


class Database(Protocol):
    """What all of them can do.

    Attributes:
        name: with its settings in a few words.
        outlives: what a written record does.
        part: it is given one record of so many: some would take minutes for all.
    """

    name: str
    outlives: str
    part: int

    def __init__(self, path: Path) -> None: ...

    def write(self, pairs: Sequence[Pair]) -> None:
        """Keeps the records, numbered from 0."""

    def scan(self) -> int:
        """Gives every record to Python, in order; returns how many there were."""

    def close(self) -> None: ...


class Lookup(Database, Protocol):
    """One that finds a record by its number."""

    def get(self, number: int) -> object: ...


class Sqlite:
    """A table with the number as its key."""

    name = "SQLite, WAL, 1,000 a transaction"
    outlives = "process"
    part = 1

    def __init__(self, path: Path) -> None:
        self.connection = sqlite3.connect(path, isolation_level=None)
        for statement in (
            "PRAGMA journal_mode=WAL",
            "PRAGMA synchronous=NORMAL",
            "CREATE TABLE events (offset INTEGER PRIMARY KEY, timestamp INTEGER, key BLOB, value BLOB)",
        ):
            self.connection.execute(statement)

    def write(self, pairs: Sequence[Pair]) -> None:
        insert = "INSERT INTO events (timestamp, key, value) VALUES (?, ?, ?)"
        for first in range(0, len(pairs), TRANSACTION):
            some = enumerate(pairs[first : first + TRANSACTION], FIRST_TIMESTAMP + first)
            self.connection.execute("BEGIN")
            self.connection.executemany(insert, ((timestamp, *pair) for timestamp, pair in some))
            self.connection.execute("COMMIT")

    def scan(self) -> int:
        return sum(1 for _ in self.connection.execute("SELECT offset, timestamp, key, value FROM events"))

    def get(self, number: int) -> object:
        query = "SELECT offset, timestamp, key, value FROM events WHERE offset = ?"
        return self.connection.execute(query, (number + 1,)).fetchone()

    def close(self) -> None:
        self.connection.close()


class Lmdb:
    """A record's key is its number; its key and value lie together."""

    name = "LMDB, 1,000 a transaction"
    outlives = "process"
    part = 1

    def __init__(self, path: Path) -> None:
        self._environment = lmdb.open(str(path), map_size=16 << 30, sync=False, writemap=True)

    def write(self, pairs: Sequence[Pair]) -> None:
        for first in range(0, len(pairs), TRANSACTION):
            with self._environment.begin(write=True) as transaction:
                for number, (key, value) in enumerate(pairs[first : first + TRANSACTION], first):
                    transaction.put(_bytes_of(number), key + value, append=True)

    def scan(self) -> int:
        with self._environment.begin() as transaction:
            return sum(1 for _ in transaction.cursor())

    def get(self, number: int) -> object:
        with self._environment.begin() as transaction:
            return transaction.get(_bytes_of(number))

    def close(self) -> None:
        self._environment.close()


class RocksDb:
    """The same in RocksDB, a write batch in the place of a transaction."""

    name = "RocksDB (rocksdict), WAL, 1,000 a batch"
    outlives = "process"
    part = 1

    def __init__(self, path: Path) -> None:
        options = rocksdict.Options(raw_mode=True)
        options.create_if_missing(True)
        options.set_compression_type(rocksdict.DBCompressionType.none())
        self._database = rocksdict.Rdict(str(path), options)

    def write(self, pairs: Sequence[Pair]) -> None:
        for first in range(0, len(pairs), TRANSACTION):
            batch = rocksdict.WriteBatch(raw_mode=True)
            for number, (key, value) in enumerate(pairs[first : first + TRANSACTION], first):
                batch.put(_bytes_of(number), key + value)
            self._database.write(batch)

    def scan(self) -> int:
        return sum(1 for _ in self._database.items())

    def get(self, number: int) -> object:
        return self._database.get(_bytes_of(number))

    def close(self) -> None:
        self._database.close()


class DiskCache:
    """A cache that never drops anything, with the number as its key."""

    name = "diskcache, 1,000 a transaction"
    outlives = "process"
    part = 20

    def __init__(self, path: Path) -> None:
        self._cache = diskcache.Cache(str(path), eviction_policy="none", cull_limit=0, size_limit=1 << 40)

    def write(self, pairs: Sequence[Pair]) -> None:
        for first in range(0, len(pairs), TRANSACTION):
            with self._cache.transact():
                for number, (key, value) in enumerate(pairs[first : first + TRANSACTION], first):
                    self._cache.set(number, key + value)

    def scan(self) -> int:
        return sum(1 for number in self._cache if self._cache[number])

    def get(self, number: int) -> object:
        return self._cache.get(number)

    def close(self) -> None:
        self._cache.close()


class PersistQueue:
    """A queue in SQLite. It commits and syncs each record, also when it is told not to; it finds nothing by a number."""

    name = "persist-queue (SQLiteQueue), a sync a record"
    outlives = "power loss"
    part = 200

    def __init__(self, path: Path) -> None:
        self._queue = persistqueue.SQLiteQueue(str(path), serializer=_AsItIs)

    def write(self, pairs: Sequence[Pair]) -> None:
        for key, value in pairs:
            self._queue.put(key + value)

    def scan(self) -> int:
        return len(self._queue.queue())  # taking them out one by one, as a queue is meant to be read, is seven times slower

    def close(self) -> None:
        self._queue.close()


class _AsItIs:
    """A serializer for values that are bytes already: what is measured is the queue, not pickle."""

    @staticmethod
    def dumps(value: bytes) -> bytes:
        return value

    loads = dumps


def _bytes_of(number: int) -> bytes:
    return struct.pack(">q", number)


ALL: tuple[type[Database], ...] = (Sqlite, Lmdb, RocksDb, DiskCache, PersistQueue)
BY_NUMBER: tuple[type[Lookup], ...] = (Sqlite, Lmdb, RocksDb, DiskCache)
