"""`KafkaTier`: the remote storage of a Kafka broker, for reading."""

from __future__ import annotations

from collections.abc import Mapping
from types import NoneType
from typing import Any, Final, NamedTuple

from pylog.arguments import check_kind
from pylog.errors import InvalidArgumentError
from pylog.fs import FileSystem
from pylog.objects.aiven import AivenTier
from pylog.objects.aiven_keys import KeyRing
from pylog.objects.local_tier import LocalTier
from pylog.objects.opening import CACHE, open_objects
from pylog.objects.remote_files import RemoteFileSystem
from pylog.objects.tier_files import PinnedFolders, RemoteOnlyFolders, TierFolders, TierView, ViewedFolders
from pylog.objects.tier_source import TierLayout
from pylog.record.types import TopicPartition

LAYOUTS: Final = ("aiven", "local")


class KafkaTier:
    """The remote tier of a Kafka broker (KIP-405). It is only read, never changed.

    Give it to `pylog.open` with the broker's log directory, as `archive`: then a log has its remote and its local records, in
    order. Give it as the path to read what is in the tier without a broker's directory.

    Args:
        url: the tier's URL: `s3://bucket/prefix`, `gs://`, `az://`, `file:///directory`, or a directory.
        layout: "aiven" for Aiven's tiered-storage plugin, "local" for Kafka's own `LocalTieredStorage`.
        key_prefix: the plugin's `key.prefix`, as far as the URL does not have it.
        keys: the RSA private keys of encrypted segments by key id: paths of PEM files, or their bytes.
        topic_ids: without a broker's directory: which id counts of a topic that was deleted and created again, by topic.
        options: the options of the object store, such as `region` and `endpoint`, except for its cache.

    Raises:
        InvalidArgumentError: an argument is invalid. IllegalStateError: the extra `objects` is not installed.

    >>> KafkaTier("file:///mnt/tier", layout="local")
    KafkaTier('file:///mnt/tier', layout='local')
    """

    def __init__(
        self,
        url: str,
        *,
        layout: str = "aiven",
        key_prefix: str = "",
        keys: Mapping[str, str | bytes] | None = None,
        topic_ids: Mapping[str, str] | None = None,
        **options: Any,
    ) -> None:
        if layout not in LAYOUTS:
            raise InvalidArgumentError(f"layout={layout!r} is not one of {', '.join(LAYOUTS)}")
        if layout == "local" and (key_prefix or keys):
            raise InvalidArgumentError(
                "layout='local' takes no key_prefix and no keys: its objects are not encrypted; leave them out"
            )
        if not options.keys().isdisjoint(CACHE):
            raise InvalidArgumentError(
                f"{' and '.join(CACHE)} apply to archives only: a broker's tier is not cached on the disk; leave them out"
            )
        check_kind("key_prefix", key_prefix, str, "text")
        check_kind("topic_ids", topic_ids, (Mapping, NoneType), "a mapping of topics to ids")
        objects = open_objects(url, **options)
        self._layout_name = layout
        self._topic_ids = dict(topic_ids or {})
        self._layout: TierLayout = LocalTier(objects) if layout == "local" else AivenTier(objects, key_prefix, KeyRing(keys))
        self.url = objects.url

    def __repr__(self) -> str:
        return f"KafkaTier({self.url!r}, layout={self._layout_name!r})"


class TieredDirectory(NamedTuple):
    """Where the logs of a tier are read: with a broker's log directory, or alone. It has a file system for each use.

    Attributes:
        tier: the broker's tier.
        root: the broker's log directory; the URL of the tier to read the tier alone.
        fs: the file system of that directory; None to read the tier alone.
    """

    tier: KafkaTier
    root: str
    fs: FileSystem | None = None

    def folders(self) -> ViewedFolders:
        """Returns the directories of the partitions, and what is found of each."""
        if self.fs is None:
            return RemoteOnlyFolders(self.tier._layout, self.tier.url, self.tier._topic_ids)
        return TierFolders(self.tier._layout, self.tier.url, self.fs, self.root)

    def files(self, folders: ViewedFolders | None = None) -> FileSystem:
        """Returns a file system with the segments of the tier before the local ones."""
        return RemoteFileSystem(self.root, folders or self.folders(), self.fs)

    def pinned_files(self, partition: TopicPartition, view: TierView) -> FileSystem:
        """Returns a file system with one partition of the tier as a view has it. Lists nothing in the tier."""
        folders = PinnedFolders(self.folders(), f"{partition.topic}-{partition.partition}", view)
        return RemoteFileSystem(self.root, folders, self.fs)
