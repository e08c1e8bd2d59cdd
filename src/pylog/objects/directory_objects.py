"""An object store in a directory: a `file://` URL or a path. It needs no other package."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterable, Iterator
from typing import Final

from pylog.errors import ObjectConflictError, ObjectExistsError, ObjectNotFoundError, ObjectStoreError, StorageFailedError
from pylog.fs import join, object_files
from pylog.objects.block_cache import BlockCache
from pylog.objects.objects import Data, ObjectInfo, check_key, failed
from pylog.urls import directory_url

_LONGEST: Final = 240  # characters of a name: a topic and its id have up to 272, and a file system takes 255 bytes
_FOLD: Final = "~/"
_FOLDS: Final = re.compile(f"(?<=[^/]{{{_LONGEST}}}){_FOLD}")


class DirectoryObjects:
    """The files of a directory as objects. See `ObjectStore` for the methods.

    A file gets its name once it is complete and synced, so a crash leaves an object or none. Two processes that create the same
    object at the same time have one winner.

    Args:
        path: the directory. It is created with the first object.
    """

    blocks: BlockCache | None = None

    def __init__(self, path: str) -> None:
        self._path = path
        self.url = directory_url(path)

    def __repr__(self) -> str:
        return f"<DirectoryObjects {self.url}>"

    def _path_of(self, key: str) -> str:
        return join(self._path, _folded(check_key(key)))

    def get_range(self, key: str, start: int, end: int) -> bytes:
        """Returns the bytes of an object from `start` to before `end`."""
        with self._reported("read", key):
            data = object_files.read_range(self._path_of(key), start, end)
        if data is None:
            raise self._missing(key)
        if len(data) != end - start:
            why = f"bytes {start} to {end - 1} were requested, and it ends at byte {start + len(data)}"
            raise failed(ObjectStoreError, self.url, key, "read", why)
        return data

    def get(self, key: str) -> tuple[bytes, str | None]:
        """Returns a whole object and its etag."""
        with self._reported("read", key):
            found = object_files.read_whole(self._path_of(key))
        if found is None:
            raise self._missing(key)
        data, facts = found
        return data, facts.tag

    def put_new(self, key: str, data: Data) -> None:
        """Creates an object, durably."""
        with self._reported("create", key):
            created = object_files.create_whole(self._path, self._path_of(key), data)
        if not created:
            raise failed(ObjectExistsError, self.url, key, "create", "it exists already")

    def put_if(self, key: str, data: Data, etag: str | None) -> None:
        """Replaces an object, or creates it."""
        with self._reported("replace", key):
            replaced = object_files.replace_whole(self._path, self._path_of(key), data, etag)
        if not replaced:
            raise failed(ObjectConflictError, self.url, key, "replace", "it was changed since it was read; read it again")

    def head(self, key: str) -> ObjectInfo | None:
        """Returns an object without its data; None if there is none."""
        with self._reported("inspect", key):
            found = object_files.facts(self._path_of(key))
        return None if found is None else ObjectInfo(key, *found)

    def delete(self, keys: Iterable[str]) -> None:
        """Deletes objects."""
        for key in keys:
            with self._reported("delete", key):
                object_files.remove_file(self._path_of(key))

    def list(self, prefix: str) -> Iterator[ObjectInfo]:
        """Yields the objects whose key begins with a prefix."""
        with self._reported("list", prefix):
            for path, found in object_files.walk(join(self._path, _folded(prefix))):
                yield ObjectInfo(prefix + _FOLDS.sub("", path), *found)

    def _missing(self, key: str) -> ObjectNotFoundError:
        return failed(ObjectNotFoundError, self.url, key, "read", "there is no such object")

    @contextlib.contextmanager
    def _reported(self, doing: str, key: str) -> Iterator[None]:
        """Turns an error of the file system into one of an object store."""
        try:
            yield
        except ObjectStoreError:
            raise
        except StorageFailedError as error:
            reason = str(error).rpartition(": ")[2]
            wrong = failed(ObjectStoreError, self.url, key, doing, reason)
            wrong.errno = error.errno
            raise wrong from error


def _folded(key: str) -> str:
    """Returns a key as a path: a name that is too long for a file system becomes a directory, and the rest of it a name in that.

    >>> [len(part) for part in _folded("x" * 272 + "/0").split("/")]
    [241, 32, 1]
    """
    return "/".join(_FOLD.join(part[at : at + _LONGEST] for at in range(0, len(part), _LONGEST)) for part in key.split("/"))
