"""Object stores of clouds, through the package obstore: S3 and its kin, Google Cloud Storage, Azure Blob Storage.

The only module that imports obstore. Errors of obstore may contain a signed URL, so none of their texts leaves this module
before its queries are removed, and no error has them as its cause.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import timedelta
from typing import Any, Final, NoReturn

import obstore
from obstore import exceptions
from obstore.store import AzureStore, GCSStore, S3Store

from pylog.errors import (
    InvalidArgumentError,
    ObjectConflictError,
    ObjectExistsError,
    ObjectNotFoundError,
    ObjectStoreError,
    ObjectStoreUnavailableError,
)
from pylog.objects.block_cache import BlockCache
from pylog.objects.objects import Data, ObjectInfo, check_key, failed
from pylog.text import counted

_SECRETS: Final = re.compile(
    r"(\?[^\s\"'`)]*)|((?:sig|signature|credential|token|key|secret|authorization)[=:]\s*[^\s,&]+)", re.IGNORECASE
)
_CAUSE: Final = re.compile(r"Debug source:.*", re.DOTALL)
_LONGEST_REASON: Final = 300
_RETRIES: Final = {"max_retries": 5, "retry_timeout": timedelta(seconds=60)}
_SSE: Final = {  # how S3 encrypts new objects: pylog's name, and obstore's
    "sse": "server_side_encryption",
    "sse_kms_key_id": "sse_kms_key_id",
    "sse_bucket_key": "sse_bucket_key_enabled",
}
_DELETED_AT_ONCE: Final = 1000  # S3's bound
# The class of an error of obstore, as it is raised: (the class of pylog's, what to do about it).
_DENIED: Final = "the store refused the credentials, or they do not allow this request; check them and the bucket's policy"
_KINDS: Final[tuple[tuple[type[Exception], type[ObjectStoreError], str], ...]] = (
    (FileNotFoundError, ObjectNotFoundError, "there is no such object or bucket"),
    (exceptions.NotFoundError, ObjectNotFoundError, "there is no such object or bucket"),
    (exceptions.AlreadyExistsError, ObjectExistsError, "it exists already"),
    (exceptions.PreconditionError, ObjectConflictError, "it was changed since it was read; read it again"),
    (exceptions.PermissionDeniedError, ObjectStoreError, _DENIED),
    (exceptions.UnauthenticatedError, ObjectStoreError, _DENIED),
    (exceptions.NotSupportedError, ObjectStoreError, "the store does not support such a request"),
)

Credentials = Callable[[], Mapping[str, Any]]


class ObstoreObjects:
    """The objects of a bucket under a prefix. See `ObjectStore` for the methods.

    Args:
        url: without credentials, for messages.
        store: obstore's store, with the prefix.
    """

    blocks: BlockCache | None = None

    def __init__(self, url: str, store: S3Store | GCSStore | AzureStore) -> None:
        self.url = url
        self._store = store

    def __repr__(self) -> str:
        return f"<ObstoreObjects {self.url}>"

    def __reduce__(self) -> NoReturn:
        raise TypeError("an object store holds credentials, so it cannot be pickled; open it again from its URL")

    def get_range(self, key: str, start: int, end: int) -> memoryview:
        """Returns the bytes of an object from `start` to before `end`."""
        if end <= start:
            return memoryview(b"")
        with self._reported("read", key):
            data = memoryview(obstore.get_range(self._store, check_key(key), start=start, end=end))
        if len(data) != end - start:
            why = f"bytes {start} to {end - 1} were requested, and the store returned {len(data)}"
            raise failed(ObjectStoreError, self.url, key, "read", why)
        return data

    def get(self, key: str) -> tuple[memoryview, str | None]:
        """Returns a whole object and its etag."""
        with self._reported("read", key):
            answer = obstore.get(self._store, check_key(key))
            size, data = answer.meta["size"], memoryview(answer.bytes())
        if len(data) != size:
            why = f"it has {counted(size, 'byte')}, and the store returned {len(data)}"
            raise failed(ObjectStoreUnavailableError, self.url, key, "read", why)
        return data, answer.meta["e_tag"]

    def put_new(self, key: str, data: Data) -> None:
        """Creates an object."""
        with self._reported("create", key):
            obstore.put(self._store, check_key(key), data, mode="create", use_multipart=False)

    def put_if(self, key: str, data: Data, etag: str | None) -> None:
        """Replaces an object, or creates it."""
        with self._reported("replace", key):
            if etag is None:
                obstore.put(self._store, check_key(key), data, mode="overwrite", use_multipart=False)
            else:
                obstore.put(self._store, check_key(key), data, mode={"e_tag": etag}, use_multipart=False)

    def head(self, key: str) -> ObjectInfo | None:
        """Returns an object without its data; None if there is none."""
        with contextlib.suppress(ObjectNotFoundError), self._reported("inspect", key):
            return _info(obstore.head(self._store, check_key(key)))
        return None

    def delete(self, keys: Iterable[str]) -> None:
        """Deletes objects, many in one request where the store can."""
        every = [check_key(key) for key in keys]
        for at in range(0, len(every), _DELETED_AT_ONCE):
            some = every[at : at + _DELETED_AT_ONCE]
            with contextlib.suppress(ObjectNotFoundError), self._reported("delete", some[0]):
                obstore.delete(self._store, some)

    def list(self, prefix: str) -> Iterator[ObjectInfo]:
        """Yields the objects whose key begins with a prefix."""
        with self._reported("list", prefix):
            for some in obstore.list(self._store, prefix.rstrip("/") or None, chunk_size=_DELETED_AT_ONCE):
                yield from map(_info, some)

    @contextlib.contextmanager
    def _reported(self, doing: str, key: str) -> Iterator[None]:
        """Turns obstore's errors into pylog's. None is the cause of another: its text may have a secret."""
        wrong: ObjectStoreError | None = None
        try:
            yield
        except (exceptions.BaseError, OSError, RuntimeError) as error:  # RuntimeError: after a fork
            wrong = self._failure(error, doing, key)
        if wrong is not None:
            raise wrong

    def _failure(self, error: Exception, doing: str, key: str) -> ObjectStoreError:
        if isinstance(error, ObjectStoreError):
            return error
        for kind, ours, why in _KINDS:
            if isinstance(error, kind):
                return failed(ours, self.url, key, doing, why)
        return failed(ObjectStoreUnavailableError, self.url, key, doing, f"{reason_without_secrets(error)}; try again")


def reason_without_secrets(error: Exception) -> str:
    """Returns an error's text without queries of URLs and other parts that may be secret.

    >>> reason_without_secrets(ValueError("PUT http://h/b?X-Amz-Signature=1 failed, token=2"))
    'PUT http://h/b?... failed, ...'
    """
    text = _CAUSE.sub("", str(error)).strip()
    return _SECRETS.sub(lambda found: "?..." if found[1] else "...", " ".join(text.split()))[:_LONGEST_REASON]


def _info(found: Mapping[str, Any]) -> ObjectInfo:
    modified_ms = int(found["last_modified"].timestamp() * 1000)
    return ObjectInfo(found["path"], found["size"], found["e_tag"], modified_ms)


def open_s3(url: str, bucket: str, prefix: str, options: Mapping[str, Any]) -> ObstoreObjects:
    """Returns a bucket of S3, or of a store with its protocol."""
    config: dict[str, Any] = {}
    if options["region"]:
        config["region"] = options["region"]
    if options["endpoint"]:
        config |= {"endpoint": options["endpoint"], "virtual_hosted_style_request": False}
    if options["anonymous"]:
        config["skip_signature"] = True
    config |= {name: options[given] for given, name in _SSE.items() if options[given] is not None}
    return _opened(url, S3Store, bucket, config, _common(prefix, options))


def open_gcs(url: str, bucket: str, prefix: str, options: Mapping[str, Any]) -> ObstoreObjects:
    """Returns a bucket of Google Cloud Storage."""
    config = {"skip_signature": True} if options["anonymous"] else {}
    if options["endpoint"]:
        config["base_url"] = options["endpoint"]
    return _opened(url, GCSStore, bucket, config, _common(prefix, options))


def open_azure(url: str, container: str, prefix: str, options: Mapping[str, Any]) -> ObstoreObjects:
    """Returns a container of Azure Blob Storage. Without the option `account` the account's name comes from the environment."""
    config: dict[str, Any] = {"skip_signature": True} if options["anonymous"] else {}
    if options["endpoint"]:
        config["endpoint"] = options["endpoint"]
    if options["account"]:
        config["account_name"] = options["account"]
    return _opened(url, AzureStore, container, config, _common(prefix, options))


def _opened(
    url: str, kind: type[S3Store | GCSStore | AzureStore], bucket: str, config: Mapping[str, Any], common: Mapping[str, Any]
) -> ObstoreObjects:
    try:
        return ObstoreObjects(url, kind(bucket, config=config, **common))  # type: ignore[arg-type]
    except (exceptions.BaseError, ValueError, TypeError) as error:
        reason = reason_without_secrets(error)
    raise InvalidArgumentError(f"cannot open {url}: {reason}; check its options and the provider's environment variables")


def _common(prefix: str, options: Mapping[str, Any]) -> dict[str, Any]:
    given: dict[str, Any] = {
        "prefix": prefix or None,
        "retry_config": _RETRIES,
        "client_options": {"allow_http": options["allow_http"], "timeout": timedelta(seconds=options["timeout_seconds"])},
    }
    if options["credentials"] is not None:
        given["credential_provider"] = _refreshed(options["credentials"])
    return given


def _refreshed(credentials: Credentials) -> Credentials:
    """Returns a provider for obstore, which requires the time at which they expire."""
    return lambda: {"token": None, "expires_at": None, **credentials()}
