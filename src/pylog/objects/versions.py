"""Numbered documents of an archive: the newest one, and the next.

`head.json` names a version as a hint. A reader continues from there with one GET for each later version, until there is none. An
old hint costs GETs and nothing else. A list is read only if the hint is missing.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Final, Generic, NamedTuple, TypeVar

import msgspec

from pylog import trace
from pylog.directory.documents import Offset
from pylog.errors import CorruptionError, ObjectExistsError, ObjectNotFoundError, ObjectStoreError, ObjectStoreUnavailableError
from pylog.objects.layout import DOCUMENT, HEAD, STORE, parse_version, version_key
from pylog.objects.manifest import StoreManifest, decode_store
from pylog.objects.objects import Data, ObjectStore, failed

T = TypeVar("T")
_MOST_DAMAGED: Final = 100  # versions in a row that are damaged: then the archive is not worth another request


class _Head(msgspec.Struct, frozen=True):
    version: Offset


_HEADS: Final = msgspec.json.Decoder(_Head)


class Newest(NamedTuple, Generic[T]):
    """The newest document, and the last number that is taken.

    Attributes:
        document: the newest sound one; None if there is none.
        taken: the number of the newest version, also of a damaged one; 0 if there is none. The next has the number after it.
    """

    document: T | None
    taken: int


class Versions(Generic[T]):
    """The numbered documents under a prefix.

    Args:
        objects: the archive.
        prefix: with a slash at its end.
        suffix: the suffix of their names.
        decode: makes a document from its bytes and its URL. Raises CorruptionError for damaged bytes.
    """

    def __init__(self, objects: ObjectStore, prefix: str, suffix: str, decode: Callable[[bytes | memoryview, str], T]) -> None:
        self._objects = objects
        self._prefix = prefix
        self._suffix = suffix
        self._decode = decode

    def newest(self) -> Newest[T]:
        """Returns the newest document. Damaged versions are skipped, and logged.

        Raises:
            UnsupportedFormatError: a later pylog wrote it. ObjectStoreError: a request failed, or the store lists a version and
                does not find it.
            CorruptionError: a hundred versions before the newest are damaged.

        Cost: three GETs if the hint is right, and one more for each later version.
        """
        found = self._newest()
        return found if found.document is None else found._replace(document=self.whole(found.document))

    def whole(self, document: T) -> T:
        """Returns a document with what its object names and does not have."""
        return document

    def _newest(self) -> Newest[T]:
        taken, newest = self._last_taken()
        damaged = 0
        for version in range(taken, 0, -1):
            try:
                data = newest if version == taken and newest is not None else self._read(version)
                return Newest(self._decode(data, self.url(version)), taken)
            except ObjectNotFoundError:
                if version == taken:  # a sweep never deletes the newest one
                    why = "it is listed, and the store does not find it; try again"
                    raise failed(ObjectStoreUnavailableError, self._objects.url, self._key(version), "read", why) from None
                break  # an earlier version, deleted since
            except CorruptionError as error:
                trace.line(trace.MANIFEST_DAMAGED, path=self.url(version), why=str(error), then="the version before it counts")
                damaged += 1
                if damaged == _MOST_DAMAGED:
                    raise
        return Newest(None, taken)

    def _last_taken(self) -> tuple[int, bytes | memoryview | None]:
        """Returns the largest number that a version has, and that version's bytes, if they were read on the way."""
        version, data = self._hinted() or (self._listed(), None)
        with contextlib.suppress(ObjectNotFoundError):
            while True:
                data = self._read(version + 1)
                version += 1
        return version, data

    def _hinted(self) -> tuple[int, bytes | memoryview | None] | None:
        """Returns the version of the hint, and its bytes; None if there is no usable hint."""
        try:
            version = _HEADS.decode(bytes(self._objects.get(self._prefix + HEAD)[0])).version
            return version, self._read(version)
        except (ObjectNotFoundError, msgspec.MsgspecError, ValueError):
            return None

    def _listed(self) -> int:
        return max(self._times(), default=0)

    def _times(self) -> dict[int, int]:
        """Lists the versions. Returns their times, by the store's clock, by number."""
        found = (
            (parse_version(self._prefix, each.key, self._suffix), each.modified_ms) for each in self._objects.list(self._prefix)
        )
        return {version: modified_ms for version, modified_ms in found if version is not None}

    def at(self, version: int) -> T:
        """Returns one version. Cost: one GET.

        Raises:
            ObjectNotFoundError: it was deleted. CorruptionError: it is damaged.
        """
        return self.whole(self._decode(self._read(version), self.url(version)))

    def every(self) -> Iterator[T]:
        """Yields the sound documents as their objects have them, the newest first: see `whole`. Lists nothing.

        Cost: one GET for each version.
        """
        for version in range(self._last_taken()[0], 0, -1):
            try:
                yield self._decode(self._read(version), self.url(version))
            except CorruptionError:
                continue
            except ObjectNotFoundError:  # versions are deleted oldest first
                return

    def commit(self, version: int, data: Data) -> bool:
        """Creates a version. Returns False if another writer was faster. Cost: two requests; for the first version, a list too.

        A store may create the object and lose the answer. Then the object has the bytes of this call, and the commit counts.
        """
        key = self._key(version)
        try:
            self._objects.put_new(key, data)
        except (ObjectExistsError, ObjectStoreUnavailableError):
            if not self._is_there(key, data):
                return False
        return self._follows(version)

    def _follows(self, version: int) -> bool:
        """Returns whether a version that was just created follows the one before it.

        It does not if its writer paused for so long that the number was used and swept meanwhile. Versions are deleted oldest
        first, so the one before it is deleted too, and a later one is older. Then it is deleted: it was never the newest one.
        """
        if version > 1 and self._objects.head(self._key(version - 1)) is not None:
            return True
        times = self._times()
        created = times.get(version)
        if created is None or all(time >= created for number, time in times.items() if number > version):
            return True
        self._objects.delete([self._key(version)])
        return False

    def _is_there(self, key: str, data: Data) -> bool:
        try:
            return bytes(self._objects.get(key)[0]) == bytes(data)
        except ObjectNotFoundError:
            why = "the store failed the request; try again"
            raise failed(ObjectStoreUnavailableError, self._objects.url, key, "create", why) from None

    def hint(self, version: int) -> None:
        """Writes the hint. A failure costs later readers a GET, and nothing else."""
        with contextlib.suppress(ObjectStoreError):
            self._objects.put_if(self._prefix + HEAD, msgspec.json.encode(_Head(version)), None)

    def _key(self, version: int) -> str:
        return version_key(self._prefix, version, self._suffix)

    def url(self, version: int) -> str:
        """Returns the URL of a version, for messages."""
        return f"{self._objects.url}/{self._key(version)}"

    def _read(self, version: int) -> bytes | memoryview:
        return self._objects.get(self._key(version))[0]


def store_manifests(objects: ObjectStore) -> Versions[StoreManifest]:
    """Returns the manifests of the store."""
    return Versions(objects, STORE, DOCUMENT, decode_store)
