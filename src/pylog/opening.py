"""`pylog.open`: a `Store` from a path."""

from __future__ import annotations

import functools
import inspect
import os
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, ParamSpec

from pylog import limits
from pylog.archive.settings import check_restored
from pylog.arguments import check_callable, check_method
from pylog.clock import Clock, SystemClock
from pylog.config import Durability, OffsetsConfig, TransactionsConfig
from pylog.errors import InvalidArgumentError, ReadOnlyError
from pylog.fs import FileSystem, OsFileSystem, path_of, rooted
from pylog.options import Committed, StoreOptions, check_known
from pylog.store import Store, open_directory

if TYPE_CHECKING:  # they load pyarrow
    from pylog.objects import ObjectStore
    from pylog.objects.kafka_tier import KafkaTier

P = ParamSpec("P")


def _refusing_unknown_options(function: Callable[P, Store]) -> Callable[P, Store]:
    """Lets a function refuse options that it does not have with an InvalidArgumentError, which gives advice."""
    known = list(inspect.signature(function).parameters)

    @functools.wraps(function)
    def checked(*arguments: P.args, **options: P.kwargs) -> Store:
        check_known(options, known)
        return function(*arguments, **options)

    return checked


@_refusing_unknown_options
def open_store(
    path: str | os.PathLike[str] | KafkaTier,
    mode: str = "rw",
    *,
    durability: Durability | str = Durability.SYNC,
    create: bool = False,
    exclusive: bool = False,
    lock_timeout_ms: int = 30_000,
    tick_interval_ms: int | None = None,
    committed: Committed | None = None,
    offsets: OffsetsConfig | None = None,
    transactions: TransactionsConfig | None = None,
    cleaner_dedupe_buffer_size: int = limits.DEFAULT_DEDUPE_BUFFER_BYTES,
    cleaner_io_max_bytes_per_second: float | None = None,
    archive: str | ObjectStore | KafkaTier | None = None,
    access: Mapping[str, Any] | None = None,
    fs: FileSystem | None = None,
    clock: Clock | None = None,
) -> Store:
    """Opens a directory of topics: a pylog store, or a Kafka broker's log directory.

    Args:
        path: the directory. With mode "rw" it is created if it does not exist. A `KafkaTier` is read without a directory,
            and so is the URL of an archive: `s3://bucket/prefix`, `gs://`, `az://`, or `file:///directory`. Both need mode "r".
        mode: "rw", or "r": take no lock and write nothing. "r" works while a broker is running and on read-only media.
        durability: the guarantee of acknowledgements if neither the call nor the topic sets one.
        create: true to use a directory that has other files and no topics. By default, only a new or empty directory and a log
            directory are accepted, so that a wrong path gets no files.
        exclusive: exclude all other writing processes. Appends then skip checks for them and cost a few microseconds less.
        lock_timeout_ms: how long a call waits while another process changes the same partition.
        tick_interval_ms: call `tick` that often in the background. Default: never.
        committed: returns the next offset that a group will read in a partition, or None if it has committed none. It is used for
            topics with a `retention_group`. Default: the group's committed offset in `offsets`.
        offsets: how committed offsets are kept.
        transactions: how transactions are kept.
        cleaner_dedupe_buffer_size: bytes of memory for the keys of a compaction; if they do not fit, it takes more rounds.
        cleaner_io_max_bytes_per_second: the most bytes that compaction reads and writes per second; None means no limit.
        archive: the object store that topics with `remote_storage_enable` use: a URL (`s3://bucket/prefix`, `gs://`, `az://`,
            `file:///directory`), or `pylog.objects.open_objects(url, ...)` with options of the provider. The first URL is kept in
            the directory, credentials never. Default: the one that is kept.
            With mode "r" and a broker's directory: the broker's remote tier. A log then has its remote records, too.
        access: with a URL, how to reach the bucket: `region`, `endpoint`, `anonymous`, `allow_http`, `timeout_seconds`, and
            `credentials`, a function that returns them. Without it they come from the environment. `cache_dir`: a directory
            that keeps what is read, for all processes that are given it, up to `cache_bytes` (10 GiB).
        fs: another file system, for tests.
        clock: another clock, for tests.

    Returns:
        A `Store`. Close it, or use it in a `with` statement.

    Raises:
        NotALogDirectoryError: the path is missing, is not a directory, or may not be accessed; or the directory has other files
            and no topics, and `create` is false; or the URL has no archive.
        StoreLockedError: a broker or a pylog process with `exclusive=True` has it open; with `exclusive=True`, any writer.
        InvalidArgumentError: an argument is invalid. ReadOnlyError: a URL, and another mode than "r".
        IllegalStateError: the directory has an unfinished restore, or another archive than `archive`.
        ObjectStoreError: with a URL or a `KafkaTier`: a request failed.

    >>> import pylog, tempfile
    >>> with pylog.open(tempfile.mkdtemp()) as store:
    ...     store.topics()
    {}
    """
    check_method("fs", fs, "check_directory", "a file system, such as pylog.testing.MemoryFileSystem()")
    check_method("clock", clock, "monotonic", "a clock, such as pylog.clock.ManualClock(0)")
    check_callable("committed", committed, "; give a function of a group and a partition")
    options = StoreOptions(
        mode=mode,
        durability=Durability.of(durability),
        create=create,
        exclusive=bool(exclusive),
        lock_timeout_ms=lock_timeout_ms,
        tick_interval_ms=tick_interval_ms,
        committed=committed,
        offsets=StoreOptions.offsets if offsets is None else offsets,
        transactions=StoreOptions.transactions if transactions is None else transactions,
        archive=None if type(archive).__name__ == "KafkaTier" else archive,
        cleaner_dedupe_buffer_size=cleaner_dedupe_buffer_size,
        cleaner_io_max_bytes_per_second=cleaner_io_max_bytes_per_second,
    )
    root, files = _files_of(path, archive, access, fs, mode)
    return open_directory(root, options, files, clock or SystemClock())


def _files_of(
    path: object, archive: object, access: Mapping[str, Any] | None, fs: FileSystem | None, mode: str
) -> tuple[str, FileSystem]:
    """Returns the path of a log directory, and the file system that has it."""
    if fs is None and isinstance(path, str) and "://" in path:
        return archived_root(path, access, mode)
    if access is not None:
        raise InvalidArgumentError(f"access requires the URL of an archive; path={path!r} is not one")
    if "KafkaTier" in (type(archive).__name__, type(path).__name__):
        from pylog.objects.kafka_tier import KafkaTier, TieredDirectory  # few stores have a tier

        if mode != "r":
            raise InvalidArgumentError(
                f"mode={mode!r} with a KafkaTier: a broker's tier cannot be written; open it with mode='r'"
            )
        if isinstance(path, KafkaTier):
            if archive is not None:
                raise InvalidArgumentError("path and archive are both a KafkaTier; give the broker's directory as the path")
            return path.url, TieredDirectory(path, path.url).files()
        if isinstance(archive, KafkaTier):
            root = _local(path, fs)
            return root, TieredDirectory(archive, root, fs or OsFileSystem()).files()
    root, files = _local(path, fs), fs or OsFileSystem()
    check_restored(files, root, write=mode != "r")
    return root, files


def archived_root(url: str, access: Mapping[str, Any] | None = None, mode: str = "r") -> tuple[str, FileSystem]:
    """Returns the URL of an archive, and a file system with the archived store.

    Args:
        url: the archive's URL.
        access, mode: as of `open_store`.

    Raises:
        ReadOnlyError: the mode is another than "r".
        NotALogDirectoryError: there is no archive. InvalidArgumentError: the URL is not valid.
        ObjectStoreError: a request failed.

    Cost: three requests.
    """
    from pylog.archived_files import archived_files  # few stores are read from objects
    from pylog.objects import open_objects

    objects = open_objects(url, **(access or {}))
    if mode != "r":
        raise ReadOnlyError(
            f"mode={mode!r}: the archive {objects.url} cannot be written; open it with mode='r'", path=objects.url
        )
    return objects.url, archived_files(objects)


def _local(path: object, fs: FileSystem | None) -> str:
    given = path_of("path", path)
    return given if fs is not None else rooted(given)
