"""How commands open a log directory for reading or writing."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, TypeVar

import pylog
from pylog.cli.exits import CommandFailed
from pylog.errors import GroupIdNotFoundError, PylogError, UnknownTopicOrPartitionError
from pylog.text import printable

if TYPE_CHECKING:
    from pylog.log.partition_log import PartitionLog
    from pylog.store import Store
    from pylog.topics.topic import Topic

Answer = TypeVar("Answer")
Key = TypeVar("Key")  # of a partition


def reading(path: str) -> Store:
    """Opens a directory for reading. Takes no lock and writes nothing, so a broker may run, or the file system be read-only."""
    store = pylog.open(path, mode="r")
    note_links(path)
    return store


def note_links(path: str) -> None:
    """Prints on stderr which partitions of a directory are symbolic links to other places."""
    from pylog.cli.exits import complain
    from pylog.fs import OsFileSystem, resolved
    from pylog.topics.links import linked_partitions

    with contextlib.suppress(PylogError):  # the command itself reports the error
        for link in linked_partitions(OsFileSystem(), path):
            complain(f"{link} is a symbolic link to {resolved(link)}, which is followed")


def writing(path: str, *, make: bool = False, **options: Any) -> Store:
    """Opens a directory for writing.

    Args:
        path: the directory.
        make: creates a directory that does not exist. False by default: a mistyped path must not create an empty store.
        options: options of `pylog.open`.
    """
    from pylog.fs import OsFileSystem

    fs = OsFileSystem()
    if not make or fs.exists(path):  # here, since a command has no option for the advice that `pylog.open` gives
        fs.check_directory(path, write=True)
    return pylog.open(path, **options)


@contextlib.contextmanager
def naming_groups(path: str) -> Iterator[None]:
    """Lets the error of a group that does not exist name the command that lists the groups.

    Args:
        path: the log directory, as it was given.
    """
    try:
        yield
    except GroupIdNotFoundError as error:
        raise CommandFailed(in_commands(error, path)) from error


def in_commands(error: PylogError, path: str) -> str:
    """Returns an error's message, with a command in the place of a method.

    Args:
        error: the library's error.
        path: the log directory, as it was given.
    """
    return str(error).replace("Store.groups lists the groups", f"list them: pylog groups list {path}")


def chosen_topics(store: Store, names: Iterable[str]) -> list[Topic]:
    """Returns the topics with these names; all topics if there are no names."""
    wanted = list(dict.fromkeys(names))
    return [store.topic(name) for name in wanted] if wanted else list(store.topics().values())


def logs_of(store: Store, topic: Topic, partitions: Iterable[int] = ()) -> list[PartitionLog]:
    """Returns the logs of some partitions of a topic; by default of all partitions that exist already."""
    from pylog.store import manager_of

    named, logs, manager = sorted(set(partitions)), [], manager_of(store)
    for number in named or topic.partition_ids:
        with contextlib.suppress(*([] if named else [UnknownTopicOrPartitionError])):
            logs.append(manager.log(topic.name, number))
    return logs


def answers_of(
    store: Store, topic: Topic, question: Callable[[PartitionLog], Answer]
) -> tuple[list[Answer], dict[int, PylogError]]:
    """Asks the logs of a topic; see `each_answer`."""
    from pylog.store import manager_of

    return each_answer(topic.partition_ids, lambda number: question(manager_of(store).log(topic.name, number)))


def each_answer(partitions: Iterable[Key], question: Callable[[Key], Answer]) -> tuple[list[Answer], dict[Key, PylogError]]:
    """Asks something of partitions that exist already. One that cannot be read is reported on stderr, and hides no other.

    Returns:
        The answers, and the errors of the partitions that cannot be read.
    """
    from pylog.cli.exits import complain

    found: list[Answer] = []
    unreadable: dict[Key, PylogError] = {}
    for partition in partitions:
        try:
            found.append(question(partition))
        except UnknownTopicOrPartitionError:  # not created yet, or just deleted
            continue
        except PylogError as error:
            unreadable[partition] = error
            complain(str(error))
    return found, unreadable


def complain_of_losses(path: str, log: PartitionLog) -> None:
    """Prints on stderr which records of a log are damaged or missing, as far as opening it has shown."""
    from pylog.cli.exits import complain
    from pylog.log.recovery.findings import losses_in

    for finding in losses_in(log.recovery_report):
        complain(f"{printable(finding.message)}; see pylog verify {path}")
