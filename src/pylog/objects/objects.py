"""The protocol of an object store: seven requests, which S3, Google Cloud Storage, Azure and a directory can answer alike.

Keys are relative to the store's URL, which has the prefix of the archive. An object is written whole, in one request, and an
object that exists is only replaced on purpose (`put_if`).
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import Final, NamedTuple, Protocol, TypeVar

from pylog.errors import InvalidArgumentError, ObjectExistsError, ObjectStoreError, ObjectStoreUnavailableError

Data = bytes | bytearray | memoryview  # what a request takes
_TRIED: Final = "pylog/created-once-"
Failure = TypeVar("Failure", bound=ObjectStoreError)


class ObjectInfo(NamedTuple):
    """An object, without its data.

    Attributes:
        key: relative to the store's URL.
        size: in bytes.
        etag: changes with each change of the object; None if the store has none.
        modified_ms: time of the last change, by the store's clock, in milliseconds since 1970.
    """

    key: str
    size: int
    etag: str | None
    modified_ms: int


class ObjectStore(Protocol):
    """Objects under one URL. Each request raises `ObjectStoreError`, or one of its subclasses, if it fails.

    A request that raises `ObjectStoreUnavailableError` may have been carried out.
    """

    @property
    def url(self) -> str:
        """The URL with the prefix, without a slash at its end and without credentials."""
        ...

    def get_range(self, key: str, start: int, end: int) -> bytes | memoryview:
        """Returns the bytes of an object from `start` to before `end`: all of them, never fewer.

        Raises:
            ObjectNotFoundError: there is no such object. ObjectStoreError: the object ends before `end`.
        """
        ...

    def get(self, key: str) -> tuple[bytes | memoryview, str | None]:
        """Returns a whole object and its etag. Raises ObjectNotFoundError if there is none."""
        ...

    def put_new(self, key: str, data: Data) -> None:
        """Creates an object, durably. Raises ObjectExistsError if an object of that key exists."""
        ...

    def put_if(self, key: str, data: Data, etag: str | None) -> None:
        """Replaces an object, or creates it.

        Args:
            key: the object.
            data: its new content.
            etag: the etag of the content that is replaced. None replaces whatever is there.

        Raises:
            ObjectConflictError: the object has another etag, or there is none.
        """
        ...

    def head(self, key: str) -> ObjectInfo | None:
        """Returns an object without its data; None if there is none."""
        ...

    def delete(self, keys: Iterable[str]) -> None:
        """Deletes objects. A key without an object is no error."""
        ...

    def list(self, prefix: str) -> Iterator[ObjectInfo]:
        """Yields the objects whose key begins with a prefix that ends with '/', or all objects for ''. In any order."""
        ...


def failed(kind: type[Failure], url: str, key: str, doing: str, why: str) -> Failure:
    """Returns the error of a request.

    >>> str(failed(ObjectStoreError, "s3://logs/shop", "pylog/head.json", "read", "the bucket does not exist"))
    'cannot read s3://logs/shop/pylog/head.json: the bucket does not exist'
    """
    return kind(f"cannot {doing} {url}/{key}: {why}" if key else f"cannot {doing} {url}: {why}", url=url, key=key)


def check_key(key: str) -> str:
    """Returns a key. A key from an archive becomes a path of a directory store, and none leads outside of it.

    Raises:
        InvalidArgumentError: a part of the key is empty, '.' or '..', or has a backslash or a zero byte.
    """
    if any(part in {"", ".", ".."} or "\\" in part or "\0" in part for part in key.split("/")):
        raise InvalidArgumentError(f"{key!r} is not a key of an object: each part between slashes must be a name")
    return key


def create_own(objects: ObjectStore, key: str, data: Data) -> None:
    """Creates an object whose key nobody else uses. If the answer is lost, the object counts, or the request is sent again.

    Raises:
        ObjectStoreError: a request failed.
    """
    with suppress(ObjectExistsError, ObjectStoreUnavailableError):
        objects.put_new(key, data)
        return
    if objects.head(key) is None:
        objects.put_new(key, data)


def check_creates_once(objects: ObjectStore) -> None:
    """Checks that a store never replaces an object that a request creates: two writers of an archive depend on that.

    Raises:
        ObjectStoreError: it replaces the object, or a request failed.

    Cost: three requests.
    """
    key = _TRIED + secrets.token_hex(8)  # of this call alone: another process that checks would delete it in between
    objects.put_new(key, b"tried")
    try:
        with suppress(ObjectExistsError):
            objects.put_new(key, b"tried")
            why = "it exists, and the store replaces it: it ignores If-None-Match, which archives need; use another store"
            raise failed(ObjectStoreError, objects.url, key, "create", why)
    finally:
        objects.delete([key])
