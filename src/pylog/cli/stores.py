"""How commands open a directory: for reading beside whoever writes it, for writing only what is there."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import pylog
from pylog.errors import PylogError, UnknownTopicOrPartitionError

if TYPE_CHECKING:
    from pylog.log.log import Log
    from pylog.store import Store
    from pylog.topics.topic import Topic


def reading(path: str) -> Store:
    """The directory, open for reading: nothing is locked or written, a running broker or a read-only file system are welcome."""
    store = pylog.open(path, mode="r")
    note_links(path)
    return store


def note_links(path: str) -> None:
    """Prints on stderr which partitions of a directory are symbolic links: what is read is not all in that directory."""
    from pylog.cli.exits import complain
    from pylog.fs import OsFileSystem, resolved
    from pylog.topics.links import linked_partitions

    with contextlib.suppress(PylogError):  # it is a file, or the command itself says what is wrong
        for link in linked_partitions(OsFileSystem(), path):
            complain(f"{link} is a symbolic link to {resolved(link)}, which is followed")


def writing(path: str, *, make: bool = False, **options: Any) -> Store:
    """The directory, open for writing.

    Args:
        path: the directory.
        make: whether it is made if it is not there; otherwise a slip of the pen would leave an empty one.
        options: of `pylog.open`.
    """
    from pylog.fs import OsFileSystem

    if not make:
        OsFileSystem().check_directory(path, write=True)
    return pylog.open(path, **options)


def chosen_topics(store: Store, names: Iterable[str]) -> list[Topic]:
    """The topics of those names; all of them if none is named."""
    wanted = list(dict.fromkeys(names))
    return [store.topic(name) for name in wanted] if wanted else list(store.topics().values())


def logs_of(store: Store, topic: Topic, partitions: Iterable[int] = ()) -> list[Log]:
    """The logs of some partitions of a topic; of all that are there, if none is named: some may not be made yet."""
    named, logs = sorted(set(partitions)), []
    for number in named or topic.partition_ids:
        with contextlib.suppress(*([] if named else [UnknownTopicOrPartitionError])):
            logs.append(store.log(topic.name, number))
    return logs
