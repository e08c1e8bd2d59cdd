"""`graduate`: a directory of pylog's becomes one that a fresh Kafka broker boots from, and can be taken back until it has.

Logs stay as they are. What a broker lacks are its own small files: who it is (`meta.properties`), which topics there are
(`bootstrap.checkpoint`), and in each partition the topic's id. Planning writes nothing and takes no lock; carrying out holds the
directory alone, and writes `meta.properties` last, without which no broker starts: a crash leaves pylog's directory, not half of
a broker's.

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
from pylog.errors import CorruptionError, IllegalStateError, InvalidArgumentError, NotALogDirectoryError, StoreLockedError
from pylog.fs import FileSystem, OsFileSystem, absolute, join, parent_of, write_atomically
from pylog.log.checkpoints import (
    CLEAN_SHUTDOWN,
    format_partition_metadata,
    new_topic_id,
    parse_partition_directory,
    read_topic_id,
)
from pylog.log.report import HARMLESS
from pylog.log.verification import Progress
from pylog.opening import open_store
from pylog.record.types import TopicPartition
from pylog.segment.names import LOG, PARTITION_METADATA
from pylog.store import Store
from pylog.tools.adoption import kafka_topic, notes_on, server_properties
from pylog.tools.metadata import BOOTSTRAP, KafkaTopic, bootstrap_checkpoint
from pylog.tools.partitions import is_in_use, look_at, targets
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
    """A file to be written: its directory, "" for the root, its name, its content."""

    directory: str
    name: str
    data: bytes

    @property
    def path(self) -> str:
        """Its path below the root."""
        return join(self.directory, self.name)


class Written(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The content of `pylog-graduated.json`: the files that were written, by their paths below the root."""

    version: int
    files: list[str]


@dataclass(frozen=True)
class Graduation:
    """What is to be done.

    Attributes:
        root: the directory.
        topics: as the broker will know them.
        files: what will be written, in that order.
        properties: lines that the broker's `server.properties` must have.
        notes: what will be another thing under a broker than it was, a sentence each.
        next_producer_id: the first that the broker hands out.
        logs: the names and sizes of all `.log` files that this was planned for.
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
    """Finds out what it takes to make a directory one that a fresh Kafka 4.3 broker boots from. Writes nothing.

    Args:
        path: the directory of a store.
        node_id: of the broker that is to have it.
        progress: is called with (bytes done, bytes in all, path) while everything is verified.
        fs, clock: others than the system's, for tests.

    Raises:
        StoreLockedError: a broker runs on it. Other pylog processes may have it open; `carry_out` refuses them.
        IllegalStateError: it is a broker's already.
        CorruptionError: something in it is damaged; the message names the first, and says what to do.
        NotALogDirectoryError: there is no such directory, or something in it keeps a broker from starting.
        InvalidArgumentError: `node_id` is not a number from 0 to 2^31 - 1.

    Cost: everything is read twice; memory for one batch, and for the names of all partitions.

    >>> import pylog, tempfile
    >>> root = tempfile.mkdtemp()
    >>> with pylog.open(root) as store:
    ...     _ = store.create_topic("orders")
    >>> [file.path for file in plan_graduation(root).files]
    ['bootstrap.checkpoint', 'meta.properties']
    """
    if isinstance(node_id, bool) or not isinstance(node_id, int) or not 0 <= node_id <= limits.INT32_MAX:
        raise InvalidArgumentError(f"node_id={node_id!r} is not an int from 0 to {limits.INT32_MAX}")
    files, time = fs or OsFileSystem(), clock or SystemClock()
    files.check_directory(path, write=False)
    root = absolute(path)
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


# ---- what is in the way ------------------------------------------------------------------------------------------------------


def _check_free(fs: FileSystem, root: str) -> None:
    if is_in_use(fs, root):
        told = f"a process has {root} for itself, a broker or pylog; stop it before the directory is handed over"
        raise StoreLockedError(told, path=root)
    begun = fs.exists(join(root, RECORD)) and not fs.exists(join(root, META_PROPERTIES))  # what the last step writes
    for name in _BROKERS:
        if fs.exists(join(root, name)) and not (begun and name == BOOTSTRAP):
            undo = "; --undo takes back what graduate wrote" if fs.exists(join(root, RECORD)) else ""
            raise IllegalStateError(f"{root} is a broker's already: it has {name}{undo}", path=join(root, name))


def _check_names(fs: FileSystem, root: str) -> None:
    """Refuses what stops a broker when it starts (interop 1.1.2, 1.2.2), and a number that no topic's partitions reach."""
    for entry in fs.list(root):
        if not entry.is_directory or _SKIPPED.fullmatch(entry.name):
            continue
        path = join(root, entry.name)
        partition = parse_partition_directory(entry.name)
        if partition is None:
            told = f"{path} is a directory that is no partition: no broker starts beside it; move it away"
            raise NotALogDirectoryError(told, path=path)
        if partition.partition >= limits.MAX_PARTITIONS:
            told = f"{path} would have the broker make all partitions of topic {partition.topic} before it"
            raise NotALogDirectoryError(f"{told}, and {limits.MAX_PARTITIONS} are the most; move it away", path=path)
        for file in fs.list(path):
            if file.is_file and file.name.endswith(_NUMBERED_ENDINGS) and not file.name.split(".")[0].isdigit():
                told = f"{join(path, file.name)} has no number before its ending: no broker starts with it; move it away"
                raise NotALogDirectoryError(told, path=join(path, file.name))


def _check_sound(root: str, found: Verification) -> None:
    if not found.ok:
        first = next(each for each in found.affected if each.finding.kind not in HARMLESS)
        told = f"not all is well in {root}: {first.finding.message}; `pylog verify` tells everything, `pylog repair` mends it"
        raise CorruptionError(told, path=first.finding.path, position=first.finding.position, offset=first.first_offset)


def _check_ends(fs: FileSystem, root: str, clock: Clock) -> None:
    """Refuses bytes behind a log's end that a broker would not cut off: with the marker it takes files as they are."""
    marker = join(root, CLEAN_SHUTDOWN)
    for target in targets(fs, root) if fs.exists(marker) else ():
        state = look_at(fs, target, clock)().state
        behind = 0 if state.active is None else state.active.file().size() - state.active_size
        if state.active is not None and behind:
            told = f"{state.active.path} has {behind} bytes behind its end; remove {marker}: then the broker cuts them off"
            raise CorruptionError(told, path=state.active.path, position=state.active_size, offset=state.end_offset)


def _topic_id(fs: FileSystem, root: str, topic: Topic) -> tuple[str, list[NewFile]]:
    """A topic's id, and the `partition.metadata` that its partitions lack: one without it is a stray to a broker."""
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
            told = f"{join(root, name)} is of another topic (id {own}) than its name says (id {topic_id}); move it away"
            raise NotALogDirectoryError(told, path=join(root, name))
    return topic_id, missing


def _logs(fs: FileSystem, root: str) -> tuple[tuple[str, int], ...]:
    """Names and sizes of all `.log` files, by which a change is noticed, and of what says which topics there are."""
    return tuple(_sizes(fs, root))


def _sizes(fs: FileSystem, root: str) -> Iterator[tuple[str, int]]:
    for entry in fs.list(root, sizes=CATALOG):
        if entry.name == CATALOG:
            yield entry.name, entry.mtime_ms
        if entry.is_directory and parse_partition_directory(entry.name) is not None:
            for file in fs.list(join(root, entry.name), sizes=LOG):
                if file.name.endswith(LOG):
                    yield join(entry.name, file.name), file.size


# ---- doing it, and taking it back --------------------------------------------------------------------------------------------


def carry_out(graduation: Graduation, *, fs: FileSystem | None = None, clock: Clock | None = None) -> None:
    """Writes the files. What they are is noted in `pylog-graduated.json`, so that `take_back` can remove them.

    Args:
        graduation: as it was planned.
        fs, clock: others than the system's, for tests.

    Raises:
        StoreLockedError: somebody has the directory open.
        IllegalStateError: it has changed since it was planned, or is a broker's already; nothing was written.
        StorageFailedError: a write failed; what was written can be taken back, and no broker starts on it.

    Cost: some writes and syncs for each partition that has no `partition.metadata`.
    """
    files, time = fs or OsFileSystem(), clock or SystemClock()
    files.check_directory(graduation.root, write=True)
    _check_free(files, graduation.root)
    with open_store(graduation.root, exclusive=True, fs=files, clock=time):
        if _logs(files, graduation.root) != graduation.logs:
            raise IllegalStateError(f"{graduation.root} has changed since this was planned; plan again", path=graduation.root)
        written = Written(1, [file.path for file in graduation.files])
        write_atomically(files, graduation.root, RECORD, msgspec.json.encode(written) + b"\n")
        for file in graduation.files:
            write_atomically(files, join(graduation.root, file.directory), file.name, file.data)
    trace.line(trace.HANDED_OVER, path=graduation.root, files=[file.path for file in graduation.files])


def take_back(path: str, *, fs: FileSystem | None = None, clock: Clock | None = None) -> list[str]:
    """Removes what `carry_out` wrote, as long as no broker has started on it.

    Args:
        path: the directory.
        fs, clock: others than the system's, for tests.

    Returns:
        The files that were removed, as paths below the directory.

    Raises:
        StoreLockedError: somebody has the directory open.
        IllegalStateError: it was never graduated, or a broker has started on it.
        CorruptionError: the note of what was written is damaged.
    """
    files, time = fs or OsFileSystem(), clock or SystemClock()
    files.check_directory(path, write=True)
    root = absolute(path)
    names = _noted(files, root)
    with open_store(root, exclusive=True, fs=files, clock=time):
        removed = [name for name in reversed(names) if files.exists(join(root, name))]
        _remove(files, root, [META_PROPERTIES])  # first, and for good: no broker starts on what a crash leaves of the others
        _remove(files, root, removed)
        _remove(files, root, [RECORD])
    trace.line(trace.TAKEN_BACK, path=root, files=removed)
    return removed


def _remove(fs: FileSystem, root: str, paths: list[str]) -> None:
    """Removes files by their paths below the root, those that are there, for good."""
    for path in paths:
        if fs.exists(join(root, path)):
            fs.remove(join(root, path))
    for directory in sorted({parent_of(join(root, path)) for path in paths}):
        fs.sync_directory(directory)


def _noted(fs: FileSystem, root: str) -> list[str]:
    path = join(root, RECORD)
    data = fs.read(path, limits.MAX_CHECKPOINT_BYTES)
    if data is None:
        raise IllegalStateError(f"{root} was not graduated: it has no {RECORD}; nothing is to be taken back", path=root)
    if fs.exists(join(root, f"{CLUSTER_METADATA}-0")):
        told = f"a broker has started on {root}, and has its metadata in {CLUSTER_METADATA}-0; pylog opens the directory as it is"
        raise IllegalStateError(told, path=root)
    try:
        names = msgspec.json.decode(data, type=Written).files
    except (msgspec.MsgspecError, ValueError) as error:
        raise CorruptionError(
            f"{path} is damaged ({error}); remove {META_PROPERTIES} and {BOOTSTRAP} by hand", path=path
        ) from error
    if not all(map(_is_ours, names)):
        raise CorruptionError(f"{path} names files that graduate never writes; remove them by hand", path=path)
    return names


def _is_ours(name: str) -> bool:
    """No file that another program put into the note may be removed, and none outside of the directory."""
    directory, _, file = name.rpartition("/")
    if not directory:
        return file in (META_PROPERTIES, BOOTSTRAP)
    return file == PARTITION_METADATA and parse_partition_directory(directory) is not None
