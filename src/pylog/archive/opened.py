"""Opens the archive of a store, by an argument or by the store's settings."""

from __future__ import annotations

from pylog.archive.settings import ArchiveSettings, read_settings, settings_of
from pylog.errors import IllegalStateError, InvalidArgumentError
from pylog.fs import resolved
from pylog.log_manager import LogManager
from pylog.objects.objects import ObjectStore
from pylog.objects.opening import open_objects
from pylog.urls import directory_of

_REQUESTS = ("get_range", "get", "put_new", "put_if", "head", "delete", "list")


def opened_archive(given: object) -> ObjectStore:
    """Returns the object store of an argument. Sends no request.

    Args:
        given: a URL, a path of a directory, or an object store.

    Raises:
        InvalidArgumentError: it is none of these, or the URL is not valid.
    """
    if isinstance(given, str):
        return open_objects(given)
    if not all(callable(getattr(given, name, None)) for name in _REQUESTS):
        raise InvalidArgumentError(
            f"archive={type(given).__name__} is neither a URL such as s3://bucket/prefix nor an object store"
        )
    return given  # type: ignore[return-value]


def kept_url(manager: LogManager) -> str | None:
    """Returns the URL in the settings of a store; None if it has no archive. Cost: one small read."""
    found = read_settings(manager.fs, manager.path)
    return None if found is None else found.url or None


def own_settings(manager: LogManager, url: str) -> ArchiveSettings:
    """Returns what identifies a store in an archive, and writes it if it is new: one id, also for two first runs at a time.

    Raises:
        InvalidArgumentError: the archive is inside the store's directory, where its directories may pass for partitions.
    """
    root, archive = resolved(manager.path), resolved(directory_of(url))
    if url.startswith("file://") and f"{archive}/".startswith(f"{root}/"):
        message = f"the archive {url} is inside the store {manager.path}, and would be lost with it; give a URL outside of it"
        raise InvalidArgumentError(message, path=manager.path)
    with manager.root.lock():
        return settings_of(manager.fs, manager.path, url)


def keep_url(manager: LogManager, url: str) -> ArchiveSettings:
    """Keeps the URL of an archive in the settings of a store, durably, and returns them. Credentials are never kept.

    Raises:
        IllegalStateError: the store has another archive. InvalidArgumentError: as `own_settings`.
    """
    found = own_settings(manager, url)
    if found.url != url:
        message = f"the archive of {manager.path} is {found.url}, not {url}, and it may have the only copy of records"
        raise IllegalStateError(f"{message}; leave out archive, or give that URL", path=manager.path)
    return found
