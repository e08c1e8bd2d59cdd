"""Object stores for tests: one in memory that fails as told, and a real S3 server."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any
from unittest import mock

import pylog.archive.opened
import pylog.archive.sweeping
import pylog.objects.kafka_tier
import pylog.restoring
from pylog.errors import (
    ObjectConflictError,
    ObjectExistsError,
    ObjectNotFoundError,
    ObjectStoreError,
    ObjectStoreUnavailableError,
)
from pylog.objects import ObjectInfo, ObjectStore
from pylog.objects.layout import LOG
from pylog.objects.objects import Data, check_key

BEFORE, AFTER, SHORT, WHOLE = "fails before", "fails after doing it", "short body", "200 for a range"
OPENERS = (  # that have `open_objects`
    pylog.archive.opened,
    pylog.archive.sweeping,
    pylog.objects.kafka_tier,
    pylog.objects.opening,
    pylog.restoring,
)
Fault = Callable[[str, str], str | None]  # request, key -> what goes wrong with it


@dataclass
class MemoryObjects:
    """Objects in memory. `fault` is asked before each request; `requests` has all that were made."""

    url: str = "memory://archive"
    objects: dict[str, bytes] = field(default_factory=dict)
    fault: Fault = lambda request, key: None
    requests: list[tuple[str, str]] = field(default_factory=list)
    times: dict[str, int] = field(default_factory=dict)
    now_ms: Callable[[], int] = itertools.count(1_700_000_000_000).__next__

    def _begin(self, request: str, key: str) -> str | None:
        self.requests.append((request, key))
        fault = self.fault(request, key)
        if fault == BEFORE:
            raise ObjectStoreUnavailableError(f"cannot {request} {self.url}/{key}: fault", url=self.url, key=key)
        return fault

    def _end(self, fault: str | None, request: str, key: str) -> None:
        if fault == AFTER:
            raise ObjectStoreUnavailableError(f"cannot {request} {self.url}/{key}: answer lost", url=self.url, key=key)

    def get_range(self, key: str, start: int, end: int) -> bytes:
        fault = self._begin("get_range", key)
        data = self._data(key)
        found = data if fault == WHOLE else data[start : end - 1] if fault == SHORT else data[start:end]
        if len(found) != end - start:
            raise ObjectStoreError(f"cannot read {self.url}/{key}: {len(found)} bytes came", url=self.url, key=key)
        self._end(fault, "get_range", key)
        return found

    def get(self, key: str) -> tuple[bytes, str | None]:
        fault = self._begin("get", key)
        data = self._data(key)
        if fault == SHORT:
            raise ObjectStoreUnavailableError(f"cannot read {self.url}/{key}: short", url=self.url, key=key)
        self._end(fault, "get", key)
        return data, self._etag(key)

    def put_new(self, key: str, data: Data) -> None:
        fault = self._begin("put_new", key)
        if key in self.objects:
            raise ObjectExistsError(f"cannot create {self.url}/{key}: it exists", url=self.url, key=key)
        self._put(key, data)
        self._end(fault, "put_new", key)

    def put_if(self, key: str, data: Data, etag: str | None) -> None:
        fault = self._begin("put_if", key)
        if etag is not None and (key not in self.objects or self._etag(key) != etag):
            raise ObjectConflictError(f"cannot replace {self.url}/{key}: changed", url=self.url, key=key)
        self._put(key, data)
        self._end(fault, "put_if", key)

    def head(self, key: str) -> ObjectInfo | None:
        fault = self._begin("head", key)
        self._end(fault, "head", key)
        return self._info(key) if key in self.objects else None

    def delete(self, keys: Iterable[str]) -> None:
        for key in keys:
            fault = self._begin("delete", key)
            self.objects.pop(key, None)
            self._end(fault, "delete", key)

    def list(self, prefix: str) -> Iterator[ObjectInfo]:
        fault = self._begin("list", prefix)
        self._end(fault, "list", prefix)
        yield from [self._info(key) for key in sorted(self.objects) if key.startswith(prefix)]

    def _data(self, key: str) -> bytes:
        if key not in self.objects:
            raise ObjectNotFoundError(f"cannot read {self.url}/{key}: none", url=self.url, key=key)
        return self.objects[key]

    def _put(self, key: str, data: Data) -> None:
        self.objects[check_key(key)] = bytes(data)
        self.times[key] = self.now_ms()

    def _etag(self, key: str) -> str:
        return str(self.times.get(key, 0))

    def _info(self, key: str) -> ObjectInfo:
        return ObjectInfo(key, len(self.objects[key]), self._etag(key), self.times.get(key, 0))


class DelayedObjects:
    """Another object store, whose requests are counted and wait before they are sent: the latency of a real one.

    Args:
        objects: the store.
        seconds: how long each request waits.

    Attributes:
        count: how many were sent.
    """

    def __init__(self, objects: ObjectStore, seconds: float) -> None:
        self._objects = objects
        self._seconds = seconds
        self._guard = threading.Lock()
        self.url = objects.url
        self.count = 0

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._objects, name)

        def request(*arguments: Any) -> Any:
            with self._guard:
                self.count += 1
            time.sleep(self._seconds)
            return method(*arguments)

        return request


@dataclass
class EmptyLogs(MemoryObjects):
    """Objects of which the logs are thrown away, for what an archive costs without a store."""

    sizes: dict[str, int] = field(default_factory=dict)

    def put_new(self, key: str, data: Data) -> None:
        if key.endswith(LOG):
            self.sizes[key], data = len(data), b""
        super().put_new(key, data)

    def head(self, key: str) -> ObjectInfo | None:
        found = super().head(key)
        return found._replace(size=self.sizes[key]) if found is not None and key in self.sizes else found


class FaultyObjects:
    """The objects of a real store. `fault` is asked before each request, as by `MemoryObjects`: it fails before or after."""

    def __init__(self, objects: ObjectStore, fault: Fault) -> None:
        self._objects = objects
        self.url = objects.url
        self.fault = fault
        self.failed = 0

    def __getattr__(self, request: str) -> Callable[..., Any]:
        call = getattr(self._objects, request)

        def perhaps(key: Any, *rest: Any) -> Any:
            fault = self.fault(request, str(key))
            answer = None if fault == BEFORE else call(key, *rest)
            if fault is None:
                return answer
            self.failed += 1
            raise ObjectStoreUnavailableError(f"cannot {request} {self.url}/{key}: {fault}", url=self.url, key=str(key))

        return perhaps


@contextmanager
def every_url(objects: MemoryObjects) -> Iterator[MemoryObjects]:
    """Has every URL lead to these objects."""
    with ExitStack() as stack:
        for module in OPENERS:
            stack.enter_context(mock.patch.object(module, "open_objects", return_value=objects))
        yield objects
