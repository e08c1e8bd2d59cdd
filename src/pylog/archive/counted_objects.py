"""Counts the requests to an object store, because each one costs money."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterable, Iterator

from pylog.objects.block_cache import cache_of
from pylog.objects.objects import Data, ObjectInfo, ObjectStore


class CountedObjects:
    """An object store whose requests are counted. See `ObjectStore` for the methods.

    Args:
        objects: the store.

    Attributes:
        url: the store's URL.
        blocks: its cache on the disk, if it has one.
        requests: how many were sent, by kind.
        sent, received: bytes of data.
    """

    def __init__(self, objects: ObjectStore) -> None:
        self._objects = objects
        self._guard = threading.Lock()
        self.url = objects.url
        self.blocks = cache_of(objects)
        self.requests: Counter[str] = Counter()
        self.sent = self.received = 0

    def __repr__(self) -> str:
        return f"<CountedObjects {self.url}>"

    def _count(self, kind: str, *, sent: int = 0, received: int = 0) -> None:
        with self._guard:
            self.requests[kind] += 1
            self.sent += sent
            self.received += received

    def get_range(self, key: str, start: int, end: int) -> bytes | memoryview:
        """See `ObjectStore`."""
        self._count("get", received=end - start)
        return self._objects.get_range(key, start, end)

    def get(self, key: str) -> tuple[bytes | memoryview, str | None]:
        """See `ObjectStore`."""
        self._count("get")
        data, etag = self._objects.get(key)
        with self._guard:
            self.received += len(data)
        return data, etag

    def put_new(self, key: str, data: Data) -> None:
        """See `ObjectStore`."""
        self._count("put", sent=len(data))
        self._objects.put_new(key, data)

    def put_if(self, key: str, data: Data, etag: str | None) -> None:
        """See `ObjectStore`."""
        self._count("put", sent=len(data))
        self._objects.put_if(key, data, etag)

    def head(self, key: str) -> ObjectInfo | None:
        """See `ObjectStore`."""
        self._count("head")
        return self._objects.head(key)

    def delete(self, keys: Iterable[str]) -> None:
        """See `ObjectStore`."""
        given = list(keys)
        self._count("delete")
        self._objects.delete(given)

    def list(self, prefix: str) -> Iterator[ObjectInfo]:
        """See `ObjectStore`."""
        self._count("list")
        return self._objects.list(prefix)
