"""From a URL to an object store."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import NoneType
from typing import Any, Final, Protocol, cast
from urllib.parse import SplitResult, unquote, urlsplit

from pylog import limits, loopback
from pylog.arguments import check_kind, check_option_names, checked_int
from pylog.errors import IllegalStateError, InvalidArgumentError
from pylog.extras import install_command
from pylog.fs import OsFileSystem, absolute, path_of, rooted
from pylog.objects.block_cache import BlockCache
from pylog.objects.directory_objects import DirectoryObjects
from pylog.objects.objects import ObjectStore
from pylog.urls import is_url

SCHEMES: Final = {"s3": "open_s3", "gs": "open_gcs", "az": "open_azure"}
_DEFAULTS: Final[Mapping[str, Any]] = {
    "account": None,
    "region": None,
    "endpoint": None,
    "anonymous": False,
    "allow_http": False,
    "credentials": None,
    "timeout_seconds": 300.0,
    "sse": None,
    "sse_kms_key_id": None,
    "sse_bucket_key": None,
}
_KMS: Final = ("aws:kms", "aws:kms:dsse")
_SSE: Final = ("AES256", *_KMS)
CACHE: Final = ("cache_dir", "cache_bytes")
OPTIONS: Final = (*_DEFAULTS, *CACHE)


class _Opened(ObjectStore, Protocol):
    """An object store with a cache on the disk."""

    blocks: BlockCache | None


def open_objects(url: str, **options: Any) -> ObjectStore:
    """Returns the object store of a URL. Sends no request.

    Args:
        url: `s3://bucket/prefix`, `gs://bucket/prefix`, `az://container/prefix`, `file:///directory`, or a path of a directory.
        options: for a bucket, except for the cache. `region` (S3); `account` (Azure); `endpoint`, the URL of a server that is
            not the provider's; `anonymous`, to send no credentials; `credentials`, a function that returns them; `allow_http`,
            to send requests without TLS to another machine; `timeout_seconds` of one request. For S3, how it encrypts new
            objects: `sse`, "AES256", "aws:kms" or "aws:kms:dsse"; `sse_kms_key_id`; `sse_bucket_key`. `cache_dir`: a directory
            that keeps blocks of what is read, for all processes that are given it, up to `cache_bytes` (10 GiB). Without
            `credentials` they come from the environment, as for the provider's own tools.

    Raises:
        InvalidTypeError: the URL is no text, or an option has the wrong type.
        InvalidArgumentError: it is empty, has another scheme, no bucket, or credentials in it; or an option does not exist.
        IllegalStateError: the extra `objects` is not installed.
    """
    check_kind("url", url, str, "text, such as s3://bucket/prefix")
    check_option_names("object store", options, OPTIONS, {})
    _check_sse(url, {**_DEFAULTS, **options})
    cache = _cache(**{name: options.pop(name) for name in CACHE if name in options})
    found = _opened(url, options)
    found.blocks = cache
    return found


def _cache(cache_dir: object = None, cache_bytes: object = limits.DEFAULT_CACHE_BYTES) -> BlockCache | None:
    most = checked_int("cache_bytes", cache_bytes, limits.MIN_CACHE_BYTES, limits.INT64_MAX)
    if cache_dir is None:
        return None
    return BlockCache(OsFileSystem(), rooted(path_of("cache_dir", cache_dir)), most)


def _opened(url: str, options: Mapping[str, Any]) -> _Opened:
    if not is_url(url):
        if "://" in url:
            raise InvalidArgumentError(f"the URL {_shown(url)} must begin with s3://, gs://, az:// or file://")
        return DirectoryObjects(absolute(url))
    parts = _split(url)
    if parts.query or parts.fragment or "@" in parts.netloc:
        raise InvalidArgumentError(
            f"the URL {_shown(url)} must have no user, password, query or fragment; give credentials apart"
        )
    if parts.scheme == "file":
        return _directory(url, parts.netloc, unquote(parts.path, errors="surrogateescape"))
    if not parts.netloc:
        raise InvalidArgumentError(f"the URL {url} has no bucket: write {parts.scheme}://bucket/prefix")
    prefix = parts.path.strip("/")
    clean = f"{parts.scheme}://{parts.netloc}" + (f"/{prefix}" if prefix else "")
    return _opener(parts.scheme)(clean, parts.netloc, prefix, _checked(options))


def _split(url: str) -> SplitResult:
    try:
        return urlsplit(url)
    except ValueError as error:  # its text, such as "Invalid IPv6 URL", has no URL and so no secret
        raise InvalidArgumentError(f"the URL {_shown(url)} is not valid: {error}") from None


def _shown(url: str) -> str:
    """Returns a URL for a message: without a password or a query, which may be secret."""
    scheme, _, rest = url.partition("://")
    rest = rest.partition("?")[0].partition("#")[0]
    before, at, after = rest.rpartition("@")
    return f"{scheme}://{'...@' if at and before else ''}{after}"


def _directory(url: str, host: str, path: str) -> DirectoryObjects:
    if host not in {"", "localhost"} or not path.startswith("/"):
        raise InvalidArgumentError(f"the URL {url} must have the form file:///directory, with three slashes")
    return DirectoryObjects(absolute(path))


def _checked(options: Mapping[str, Any]) -> dict[str, Any]:
    given = {**_DEFAULTS, **options}
    for name in ("account", "region", "endpoint"):
        check_kind(name, given[name], (str, NoneType), "text")
    for name in ("anonymous", "allow_http"):
        check_kind(name, given[name], bool, "True or False")
    _check_seconds("timeout_seconds", given["timeout_seconds"])
    endpoint = given["endpoint"]
    if endpoint is not None:
        parts = _split(endpoint)
        if parts.scheme not in {"http", "https"} or not parts.hostname or "@" in parts.netloc or parts.query:
            raise InvalidArgumentError(f"endpoint={_shown(endpoint)!r} must be a URL such as https://storage.example.com")
        if parts.scheme == "http":
            if not given["allow_http"] and not loopback.is_loopback(parts.hostname):
                message = f"endpoint={endpoint!r} sends data and signatures without TLS; use https, or set allow_http"
                raise InvalidArgumentError(message)
            given["allow_http"] = True
    if given["credentials"] is not None and not callable(given["credentials"]):
        raise InvalidArgumentError("credentials must be a function that returns them, so that they can expire")
    return given


def _check_sse(url: str, given: Mapping[str, Any]) -> None:
    """Checks how a bucket encrypts new objects. Refuses what would be ignored: the user relies on it."""
    for name in ("sse", "sse_kms_key_id"):
        check_kind(name, given[name], (str, NoneType), "text")
    check_kind("sse_bucket_key", given["sse_bucket_key"], (bool, NoneType), "True, False or None")
    sse, wanted = given["sse"], [name for name in ("sse", "sse_kms_key_id", "sse_bucket_key") if given[name] is not None]
    if wanted and not url.startswith("s3://"):
        raise InvalidArgumentError(
            f"{wanted[0]} applies to s3:// only; leave it out, and use the settings of the bucket or the disk"
        )
    if sse is not None and sse not in _SSE:
        raise InvalidArgumentError(f"sse={sse!r} is not one of {', '.join(_SSE)}")
    if wanted and sse not in _KMS and wanted != ["sse"]:
        raise InvalidArgumentError(
            f"{wanted[-1]} requires sse='aws:kms' or sse='aws:kms:dsse'; give it, or leave {wanted[-1]} out"
        )


def _check_seconds(name: str, value: object) -> None:
    check_kind(name, value, (int, float), "a number of seconds")
    if not 0 < cast("float", value) <= limits.MAX_REQUEST_SECONDS:
        raise InvalidArgumentError(f"{name}={value!r} is not a number of seconds above 0 and up to {limits.MAX_REQUEST_SECONDS}")


def _opener(scheme: str) -> Callable[[str, str, str, Mapping[str, Any]], _Opened]:
    try:
        import pylog.objects.obstore_objects as obstore_objects
    except ModuleNotFoundError as error:
        message = f"{scheme}:// requires the package {error.name}; install it: {install_command('objects')}"
        raise IllegalStateError(message) from error
    opener: Callable[[str, str, str, Mapping[str, Any]], _Opened] = getattr(obstore_objects, SCHEMES[scheme])
    return opener
