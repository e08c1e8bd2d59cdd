"""`pylog.json`: the topics that pylog has made or altered, and what of them is being deleted."""

from __future__ import annotations

import functools
import re
from collections.abc import Collection, Iterator, Mapping
from functools import partial
from typing import Any, Final, NamedTuple

import msgspec

from pylog import limits
from pylog.config import TopicConfig, topic_config
from pylog.directory.documents import decoded, version_of
from pylog.directory.topic_names import TRANSACTION_STATE_TOPIC, is_topic_name, parse_partition_directory
from pylog.errors import CorruptionError, InvalidArgumentError, UnsupportedFormatError
from pylog.fs import FileKind, FileSystem, at_most, join, write_atomically
from pylog.record.checksum import crc32c

CATALOG: Final = "pylog.json"
DELETED_NAME: Final = re.compile(
    r"[a-zA-Z0-9._-]+\.[0-9a-f]{32}-delete"
)  # suffixes of renamed partition directories (storage-format 3.2.3)
INTERNAL_OPTIONS: Final[Mapping[str, dict[str, Any]]] = {  # what Kafka sets for its own topics
    name: {"cleanup_policy": "compact", "segment_bytes": limits.DEFAULT_OFFSETS_SEGMENT_BYTES}
    for name in ("__consumer_offsets", TRANSACTION_STATE_TOPIC)
}
_INTERNAL: Final = {name: TopicConfig(**options) for name, options in INTERNAL_OPTIONS.items()}
_VERSION: Final = 1
_SMALL_BYTES: Final = 4 << 10  # of a catalog that stays parsed after its store is closed
_TOPIC_ID = re.compile(r"[A-Za-z0-9_-]{22}")

# Of a topic that `pylog.json` does not name: a broker created it, and only the broker has its retention. So nothing is deleted.
UNKNOWN_CONFIG: Final = TopicConfig(retention_ms=-1)


class CatalogTopic(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A topic in `pylog.json`."""

    id: str
    partitions: int
    config: dict[str, Any] = {}


class Catalog(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The content of `pylog.json`.

    Attributes:
        version: the version of the file's format.
        topics: by name.
        deleting: partition directories whose deletion was decided and may not be done, with the names that they get for it.
        crc32c: the checksum of all that, so that no flipped bit of a retention time deletes anything; eight hexadecimal digits.
    """

    version: int = _VERSION
    topics: dict[str, CatalogTopic] = {}
    deleting: dict[str, str] = {}
    crc32c: str = ""

    def config_of(self, topic: str) -> TopicConfig:
        """Returns a topic's configuration, as far as it is known."""
        known = self.topics.get(topic)
        return _INTERNAL.get(topic, UNKNOWN_CONFIG) if known is None else topic_config(known.config)

    def sealed(self) -> Catalog:
        """Returns the document with its checksum."""
        bare = msgspec.structs.replace(self, crc32c="")
        return msgspec.structs.replace(bare, crc32c=f"{crc32c(msgspec.json.encode(bare)):08x}")


_CATALOG_DECODER: Final = msgspec.json.Decoder(Catalog)


class KnownCatalog:
    """The catalog of a directory as it stands, parsed once for each content of its file. From any thread.

    Args:
        fs, root: the log directory.
    """

    def __init__(self, fs: FileSystem, root: str) -> None:
        self._fs = fs
        self._path = join(root, CATALOG)
        self._known = _Known(None, Catalog(), {})

    def read(self) -> Catalog:
        """Returns the catalog now. Raises as `read_catalog`. Cost: one small read while nothing has changed."""
        return self._refreshed().catalog

    def config_of(self, topic: str, topic_id: str | None = None) -> TopicConfig:
        """Returns a topic's configuration now, the same object while nothing has changed.

        Args:
            topic: the topic's name.
            topic_id: the id that the partition's own files have. Another one than the catalog's belongs to a topic that a broker
                has created since under the same name, of which nothing is known.
        """
        known = self._refreshed()
        entry = known.catalog.topics.get(topic)
        if entry is not None and topic_id not in (None, entry.id):
            return UNKNOWN_CONFIG
        found = known.configs.get(topic)
        return known.configs.setdefault(topic, known.catalog.config_of(topic)) if found is None else found

    def _refreshed(self) -> _Known:
        known, data = self._known, CATALOGS.fetch(self._fs, self._path)
        if data != known.data:
            small = len(data or b"") <= _SMALL_BYTES
            known = self._known = _parsed_once(data, self._path) if small else _parsed(data, self._path)
        return known


class _Known(NamedTuple):
    """A catalog, the bytes that it was read from, and the requested configurations."""

    data: bytes | None
    catalog: Catalog
    configs: dict[str, TopicConfig]


def _parsed(data: bytes | None, path: str) -> _Known:
    return _Known(data, parsed_catalog(data, path), {})


_parsed_once: Final = functools.lru_cache(maxsize=2)(_parsed)  # a program that opens its store often reads the same bytes


def read_catalog(fs: FileSystem, root: str) -> Catalog:
    """Reads the catalog of a directory; an empty one if there is no file.

    Raises:
        CorruptionError: the file is not as it was written.
        UnsupportedFormatError: it is of a later version.
    """
    path = join(root, CATALOG)
    return parsed_catalog(CATALOGS.fetch(fs, path), path)


def parsed_catalog(data: bytes | None, path: str) -> Catalog:
    """Returns the catalog of a file's bytes; an empty one if there is no file. Raises as `read_catalog`."""
    return Catalog() if data is None else CATALOGS.parsed(data, path)


def _parse(data: bytes, path: str) -> Catalog:
    damaged = partial(_damaged, path)
    version = version_of(data, damaged)
    if version != _VERSION:
        message = f"{path} has version {version}; this pylog reads version {_VERSION}; upgrade pylog to read it"
        raise UnsupportedFormatError(message, path=path)
    catalog = decoded(_CATALOG_DECODER, data, damaged)
    wrong = next(_impossible(catalog), None)
    if wrong is not None:
        raise _damaged(path, wrong)
    return catalog


CATALOGS: Final = FileKind("a catalog", _parse, at_most(limits.MAX_CHECKPOINT_BYTES), "restore it")


def _damaged(path: str, why: str) -> CorruptionError:
    return CorruptionError(f"{path} is damaged ({why}); restore it: without it every topic has default settings", path=path)


def _impossible(catalog: Catalog) -> Iterator[str]:
    """Returns an entry that no pylog wrote. Its names become paths that may be removed, and none may be outside the directory."""
    if catalog != catalog.sealed():
        yield "its checksum is of another content"
    if _partitions(catalog) > limits.MAX_PARTITIONS:
        yield f"its topics have more than {limits.MAX_PARTITIONS} partitions together"
    for name, topic in catalog.topics.items():
        if not is_topic_name(name):
            yield f"{name!r} is not a topic name"
        if not 1 <= topic.partitions <= limits.MAX_PARTITIONS or not _TOPIC_ID.fullmatch(topic.id):
            yield f"topic {name!r} has an impossible number of partitions, or id"
    for old, new in catalog.deleting.items():
        if (parse_partition_directory(old) is None and not DELETED_NAME.fullmatch(old)) or not DELETED_NAME.fullmatch(new):
            yield f"{old!r} and {new!r} are not names of a partition that is deleted"


def _partitions(catalog: Catalog) -> int:
    return sum(topic.partitions for topic in catalog.topics.values())


def without(catalog: Catalog, names: Collection[str]) -> Catalog:
    """Returns a catalog without the entries of some topics."""
    kept = {name: entry for name, entry in catalog.topics.items() if name not in names}
    return msgspec.structs.replace(catalog, topics=kept)


def write_catalog(fs: FileSystem, root: str, catalog: Catalog) -> None:
    """Replaces `pylog.json` atomically."""
    data = msgspec.json.format(msgspec.json.encode(catalog.sealed()), indent=1) + b"\n"
    write_atomically(fs, root, CATALOG, CATALOGS.checked(data, join(root, CATALOG)))


def check_room(fs: FileSystem, root: str, name: str, count: int) -> None:
    """Raises InvalidArgumentError if the directory cannot have a topic of `count` partitions next to its others.

    Its cost does not depend on `count`.
    """
    _check_room(read_catalog(fs, root), root, name, count)


def _check_room(catalog: Catalog, root: str, name: str, count: int) -> None:
    if count + _partitions(without(catalog, [name])) > limits.MAX_PARTITIONS:
        message = f"with {count} partitions of {name!r} the topics of {root} have more than {limits.MAX_PARTITIONS}"
        raise InvalidArgumentError(f"{message} together; use another directory", path=root)


def write_topic(fs: FileSystem, root: str, name: str, topic: CatalogTopic) -> None:
    """Adds a topic to `pylog.json`, or replaces its entry. Under the root's lock."""
    catalog = read_catalog(fs, root)
    _check_room(catalog, root, name, topic.partitions)
    write_catalog(fs, root, msgspec.structs.replace(catalog, topics=catalog.topics | {name: topic}))
