"""`graduate`: prepares a log directory for a new Kafka broker. This can be undone until a broker has started on it.

Logs stay as they are. A broker requires a few small files: its identity (`meta.properties`), its topics
(`bootstrap.checkpoint`), and the topic id in each partition. Planning writes nothing and takes no lock. `carry_out` locks the
directory exclusively and writes `meta.properties` last. No broker starts without that file, so after a crash the directory still
belongs to pylog.

Spec: groups-and-transactions 9.4, interop 1 to 3.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

import msgspec

from pylog import limits, trace
from pylog.clock import Clock, SystemClock
from pylog.directory.archives import check_no_archive
from pylog.directory.checkpoints import CLEAN_SHUTDOWN
from pylog.directory.partition_metadata import format_partition_metadata, new_topic_id, read_topic_id
from pylog.directory.topic_names import parse_partition_directory
from pylog.errors import CorruptionError, IllegalStateError, InvalidArgumentError, NotALogDirectoryError, StoreLockedError
from pylog.fs import FileKind, FileSystem, OsFileSystem, absolute, at_most, join, parent_of, write_atomically
from pylog.log.checking.report import HARMLESS
from pylog.log.checking.verification import Progress
from pylog.opening import open_store
from pylog.record.types import TopicPartition
from pylog.segment.names import LOG, PARTITION_METADATA
from pylog.store import Store
from pylog.text import counted
from pylog.tools.adoption import kafka_topic, notes_on, server_properties
from pylog.tools.metadata import BOOTSTRAP, KafkaTopic, bootstrap_checkpoint
from pylog.tools.partitions import is_in_use, partition_reader, targets
from pylog.tools.producers import highest_numbers
from pylog.tools.verify import Verification, verify
from pylog.topics.catalog import CATALOG
from pylog.topics.partitions import CLUSTER_METADATA, directory_name
from pylog.topics.signs import META_PROPERTIES
from pylog.topics.topic import Topic

RECORD: Final = "pylog-graduated.json"
_BROKERS: Final = (META_PROPERTIES, BOOTSTRAP, f"{CLUSTER_METADATA}-0")
_SKIPPED: Final = re.compile(r".+\.[0-9a-f]{32}-(delete|stray|future)|remote-log-index-cache")
_NUMBERED_ENDINGS: Final = (".log", ".index", ".timeindex", ".txnindex", ".snapshot", ".swap", ".cleaned")


class NewFile(NamedTuple):
    """A file to write: its directory ("" for the root), its name and its content."""

    directory: str
    name: str
    data: bytes

    @property
    def path(self) -> str:
        """The path relative to the root."""
        return join(self.directory, self.name)


class Written(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The content of `pylog-graduated.json`: paths of the written files, relative to the root."""

    version: int
    files: list[str]


_DECODER: Final = msgspec.json.Decoder(Written)  # created at import: see `pylog.topics.catalog`


@dataclass(frozen=True)
class Graduation:
    """A plan to hand a directory over to a broker.

    Attributes:
        root: the directory.
        topics: topics as the broker will know them.
        files: files to write, in this order.
        properties: properties that the broker's `server.properties` must have.
        notes: sentences on what a broker will do differently.
        next_producer_id: the first producer id that the broker assigns.
        logs: names and sizes of all `.log` files when this was planned.
    """

    root: str
    topics: tuple[KafkaTopic, ...]
    files: tuple[NewFile, ...]
    properties: Mapping[str, str]
    notes: tuple[str, ...]
    next_producer_id: int
    logs: tuple[tuple[str, int], ...]


def plan_graduation(
    path: str,
    *,
    node_id: int = 1,
    progress: Progress | None = None,
    fs: FileSystem | None = None,
    clock: Clock | None = None,
) -> Graduation:
    """Plans how to hand a log directory over to a new Kafka 4.3 broker. Writes nothing.

    Args:
        path: the log directory.
        node_id: node id of the broker.
        progress: called with (bytes done, total bytes, path) during verification.
        fs, clock: the file system and the clock; by default the system's.

    Raises:
        StoreLockedError: a broker is running on the directory. Other pylog processes may have it open until `carry_out`.
        IllegalStateError: the directory belongs to a broker already.
        CorruptionError: the directory has damage; the message names the first finding and the next step.
        NotALogDirectoryError: the directory does not exist, or something in it stops a broker from starting.
        InvalidArgumentError: `node_id` is not a number from 0 to 2^31 - 1.

    Cost: reads everything twice; memory for one batch and the names of all partitions.

    >>> import pylog, tempfile
    >>> root = tempfile.mkdtemp()
    >>> with pylog.open(root) as store:
    ...     _ = store.create_topic("orders")
    >>> [file.path for file in plan_graduation(root).files]
    ['bootstrap.checkpoint', 'meta.properties']
    """
    if isinstance(node_id, bool) or not isinstance(node_id, int) or not 0 <= node_id <= limits.INT32_MAX:
        raise InvalidArgumentError(f"node_id={node_id!r} is not an integer from 0 to {limits.INT32_MAX}")
    files, time = fs or OsFileSystem(), clock or SystemClock()
    files.check_directory(path, write=False)
    root = absolute(path)
    check_no_archive(files, root)
    _check_free(files, root)
    _check_names(files, root)
    _check_sound(root, verify(root, progress=progress, fs=files, clock=time))
    _check_ends(files, root, time)
    logs = _logs(files, root)
    with open_store(root, "r", fs=files, clock=time) as store:
        return _planned(files, store, time, node_id, logs)


def _planned(fs: FileSystem, store: Store, clock: Clock, node_id: int, logs: tuple[tuple[str, int], ...]) -> Graduation:
    topics, ids = [], []
    numbers = highest_numbers(fs, store.path, clock)
    for topic in store.topics().values():
        _check_complete(store, topic)
        topic_id, missing = _topic_id(fs, store.path, topic)
        ids += missing
        count = topic.partition_ids[-1] + 1
        epochs = [numbers.leader_epochs.get(TopicPartition(topic.name, number), 0) for number in range(count)]
        topics.append(kafka_topic(topic, topic_id, tuple(epochs)))
    checkpoint = bootstrap_checkpoint(topics, node_id, numbers.next_producer_id, clock.now_ms())
    identity = f"version=1\ncluster.id={new_topic_id()}\nnode.id={node_id}\ndirectory.id={new_topic_id()}\n".encode()
    return Graduation(
        store.path,
        tuple(topics),
        (*ids, NewFile("", BOOTSTRAP, checkpoint), NewFile("", META_PROPERTIES, identity)),
        server_properties(store, node_id, clock.now_ms()),
        tuple(notes_on(store, clock.now_ms())),
        numbers.next_producer_id,
        logs,
    )


# ---- checks ------------------------------------------------------------------------------------------------------------------


def _check_free(fs: FileSystem, root: str) -> None:
    if is_in_use(fs, root):
        message = f"a broker or a pylog process has {root} open exclusively; stop it before the directory is handed over"
        raise StoreLockedError(message, path=root)
    begun = fs.exists(join(root, RECORD)) and not fs.exists(join(root, META_PROPERTIES))  # the last step writes META_PROPERTIES
    for name in _BROKERS:
        if fs.exists(join(root, name)) and not (begun and name == BOOTSTRAP):
            undo = "; undo the graduation to remove its files" if fs.exists(join(root, RECORD)) else ""
            raise IllegalStateError(f"{root} belongs to a broker already: it has {name}{undo}", path=join(root, name))


def _check_names(fs: FileSystem, root: str) -> None:
    """Refuses names that stop a broker from starting (interop 1.1.2, 1.2.2), and partition numbers that are too large."""
    for entry in fs.list(root):
        if not entry.is_directory or _SKIPPED.fullmatch(entry.name):
            continue
        path = join(root, entry.name)
        partition = parse_partition_directory(entry.name)
        if partition is None:
            message = f"{path} is not a partition directory: no broker starts with it; move it away"
            raise NotALogDirectoryError(message, path=path)
        if partition.partition >= limits.MAX_PARTITIONS:
            message = f"{path} would make the broker create all lower partitions of topic {partition.topic}"
            raise NotALogDirectoryError(f"{message}; at most {limits.MAX_PARTITIONS} are allowed; move it away", path=path)
        for file in fs.list(path):
            if file.is_file and file.name.endswith(_NUMBERED_ENDINGS) and not file.name.split(".")[0].isdigit():
                message = f"{join(path, file.name)} has no offset in its name: no broker starts with it; move it away"
                raise NotALogDirectoryError(message, path=join(path, file.name))


def _check_sound(root: str, found: Verification) -> None:
    if not found.ok:
        first = next(each for each in found.affected if each.finding.kind not in HARMLESS)
        message = f"{root} has damage: {first.finding.message}; verify the directory to see all of it, and repair it first"
        raise CorruptionError(message, path=first.finding.path, position=first.finding.position, offset=first.first_offset)


def _check_complete(store: Store, topic: Topic) -> None:
    """Refuses a topic whose first records are only in pylog's archive: the broker would begin after them."""
    for number in topic.partition_ids if topic.config.is_tiered else ():
        log = store.log(topic.name, number)
        if log.start_offset < log.local_start_offset:
            offsets = f"offsets {log.start_offset} to {log.local_start_offset - 1} of {topic.name}-{number}"
            message = f"{offsets} are only in the archive, where a broker would not find them"
            raise IllegalStateError(f"{message}; restore the archive into a new directory, and graduate that", path=store.path)


def _check_ends(fs: FileSystem, root: str, clock: Clock) -> None:
    """Refuses bytes after a log's end that a broker would not cut off. After a clean shutdown, a broker trusts file sizes."""
    marker = join(root, CLEAN_SHUTDOWN)
    for target in targets(fs, root) if fs.exists(marker) else ():
        state = partition_reader(fs, target, clock)().state
        extra = 0 if state.active is None else state.active.file().size() - state.active_size
        if state.active is not None and extra:
            message = (
                f"{state.active.path} has {counted(extra, 'byte')} after its end; remove {marker} to make the broker cut them off"
            )
            raise CorruptionError(message, path=state.active.path, position=state.active_size, offset=state.end_offset)


def _topic_id(fs: FileSystem, root: str, topic: Topic) -> tuple[str, list[NewFile]]:
    """Returns a topic's id, and the missing `partition.metadata` files. Without it a partition is a stray to a broker."""
    topic_id = topic.id or new_topic_id()
    missing = []
    for number in topic.partition_ids:
        name = directory_name(TopicPartition(topic.name, number))
        if not fs.exists(join(root, name)):
            continue
        own = read_topic_id(fs, join(root, name))
        if own is None:
            missing.append(NewFile(name, PARTITION_METADATA, format_partition_metadata(topic_id)))
        elif own != topic_id:
            message = f"{join(root, name)} has topic id {own}, but the topic has id {topic_id}; move it away"
            raise NotALogDirectoryError(message, path=join(root, name))
    return topic_id, missing


def _logs(fs: FileSystem, root: str) -> tuple[tuple[str, int], ...]:
    """Returns names and sizes of all `.log` files, and the time of the catalog of topics, to detect changes."""
    return tuple(_sizes(fs, root))


def _sizes(fs: FileSystem, root: str) -> Iterator[tuple[str, int]]:
    for entry in fs.list(root, sizes=CATALOG):
        if entry.name == CATALOG:
            yield entry.name, entry.mtime_ms
        if entry.is_directory and parse_partition_directory(entry.name) is not None:
            for file in fs.list(join(root, entry.name), sizes=LOG):
                if file.name.endswith(LOG):
                    yield join(entry.name, file.name), file.size


# ---- execution and undo ------------------------------------------------------------------------------------------------------


def carry_out(graduation: Graduation, *, fs: FileSystem | None = None, clock: Clock | None = None) -> None:
    """Writes the files of a plan, and lists them in `pylog-graduated.json` so that `take_back` can remove them.

    Args:
        graduation: the plan.
        fs, clock: the file system and the clock; by default the system's.

    Raises:
        StoreLockedError: another process has the directory open.
        IllegalStateError: the directory has changed since the plan, or belongs to a broker already; nothing was written.
        StorageFailedError: a write failed. `take_back` removes the files so far, and no broker starts on the directory.

    Cost: some writes and syncs for each partition without `partition.metadata`.
    """
    files, time = fs or OsFileSystem(), clock or SystemClock()
    files.check_directory(graduation.root, write=True)
    _check_free(files, graduation.root)
    with open_store(graduation.root, exclusive=True, fs=files, clock=time):
        if _logs(files, graduation.root) != graduation.logs:
            raise IllegalStateError(f"{graduation.root} has changed since the plan; plan again", path=graduation.root)
        written = msgspec.json.encode(Written(1, [file.path for file in graduation.files])) + b"\n"
        write_atomically(files, graduation.root, RECORD, NOTES.checked(written, join(graduation.root, RECORD)))
        for file in graduation.files:
            write_atomically(files, join(graduation.root, file.directory), file.name, file.data)
    trace.line(trace.HANDED_OVER, path=graduation.root, files=[file.path for file in graduation.files])


def take_back(path: str, *, fs: FileSystem | None = None, clock: Clock | None = None) -> list[str]:
    """Removes the files that `carry_out` wrote, unless a broker has started on the directory.

    Args:
        path: the directory.
        fs, clock: the file system and the clock; by default the system's.

    Returns:
        The removed files, as paths relative to the directory.

    Raises:
        StoreLockedError: another process has the directory open.
        IllegalStateError: the directory was never graduated, or a broker has started on it.
        CorruptionError: `pylog-graduated.json` is damaged.
    """
    files, time = fs or OsFileSystem(), clock or SystemClock()
    files.check_directory(path, write=True)
    root = absolute(path)
    names = _noted(files, root)
    with open_store(root, exclusive=True, fs=files, clock=time):
        removed = [name for name in reversed(names) if files.exists(join(root, name))]
        _remove(files, root, [META_PROPERTIES])  # first and durably: after a crash no broker starts on the rest
        _remove(files, root, removed)
        _remove(files, root, [RECORD])
    trace.line(trace.TAKEN_BACK, path=root, files=removed)
    return removed


def _remove(fs: FileSystem, root: str, paths: list[str]) -> None:
    """Removes files durably, by their paths relative to the root. Ignores missing ones."""
    for path in paths:
        if fs.exists(join(root, path)):
            fs.remove(join(root, path))
    for directory in sorted({parent_of(join(root, path)) for path in paths}):
        fs.sync_directory(directory)


def _noted(fs: FileSystem, root: str) -> list[str]:
    path = join(root, RECORD)
    data = NOTES.fetch(fs, path)
    if data is None:
        raise IllegalStateError(f"{root} was not graduated: it has no {RECORD}; there is nothing to undo", path=root)
    if fs.exists(join(root, f"{CLUSTER_METADATA}-0")):
        message = (
            f"a broker has started on {root} and keeps its metadata in {CLUSTER_METADATA}-0; pylog opens the directory as it is"
        )
        raise IllegalStateError(message, path=root)
    names = NOTES.parsed(data, path).files
    if not all(map(_is_ours, names)):
        raise CorruptionError(f"{path} names files that graduate never writes; remove them by hand", path=path)
    return names


def _parse(data: bytes, _path: str) -> Written:
    return _DECODER.decode(data)


NOTES: Final = FileKind(
    "a note of what graduating wrote",
    _parse,
    at_most(limits.MAX_CHECKPOINT_BYTES),
    f"remove {META_PROPERTIES} and {BOOTSTRAP} by hand",
)


def _is_ours(name: str) -> bool:
    """Returns True only for files that graduate writes: an edited list must not delete others."""
    directory, _, file = name.rpartition("/")
    if not directory:
        return file in (META_PROPERTIES, BOOTSTRAP)
    return file == PARTITION_METADATA and parse_partition_directory(directory) is not None
