"""An internal topic of Kafka's, whose partitions are replayed: creation, and the partitions that exist."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from typing import Any, Final, Generic, TypeVar

from pylog import limits
from pylog.errors import ClosedError, PylogError, TopicAlreadyExistsError, UnknownTopicOrPartitionError
from pylog.fs import join
from pylog.log.partition_log import PartitionLog
from pylog.log_manager import LogManager
from pylog.record.types import TopicPartition
from pylog.replayed_partition import ReplayedPartition
from pylog.topics.partitions import directory_name

_TRIES: Final = 3  # while another process deletes the topic and makes it again
P = TypeVar("P", bound=ReplayedPartition[Any])
Result = TypeVar("Result")
MakePartition = Callable[[Callable[[], PartitionLog], str, int], P]


def _never(_: str) -> bool:
    return False


class InternalTopic(Generic[P]):
    """The partitions of an internal topic.

    Args:
        manager: the store's manager.
        name: the topic's.
        make_partition: makes a partition from the function that opens its log, its directory, and its number.
        partition_count, options: the topic's partition count and options, if it must be created.
    """

    def __init__(
        self, manager: LogManager, name: str, make_partition: MakePartition[P], partition_count: int, **options: Any
    ) -> None:
        self._manager = manager
        self._name = name
        self._make_partition = make_partition
        self._partition_count, self._options = partition_count, options
        self._guard = threading.Lock()
        self._partitions: dict[int, P] = {}
        self._count = 0  # of partitions of the topic, 0 as long as it is not known
        self._numbers: dict[str, int] = {}  # group or transactional id → partition

    def on_partition(self, name: str, action: Callable[..., Result], *given: Any, make: bool = False) -> Result | None:
        """Runs an action on the partition that has the records of a name: of a group, or a transactional id.

        Returns None if the topic does not exist and must not be created.
        """
        tries = _TRIES
        while True:
            try:
                partition = self._partitions.get(self._numbers.get(name, -1)) or self._partition_of(name)
                if partition is None and make:
                    self.create()
                    partition = self._partition_of(name)
                return None if partition is None else action(partition, *given)
            except (UnknownTopicOrPartitionError, ClosedError) as error:  # deleted, or not made yet
                tries -= 1
                if not tries:
                    if make or isinstance(error, ClosedError):
                        raise
                    return None  # nothing can be committed where there is no partition
                self.forget()

    def _partition_of(self, name: str) -> P | None:
        number = self._numbers.get(name)
        if number is None:
            count = self._count
            if not count:
                ids = self.partition_ids()
                if not ids:
                    return None
                count = self._count = ids[-1] + 1
            number = self._number_of(name, count)
        with self._guard:
            if len(self._numbers) >= limits.GROUP_NUMBERS:
                self._numbers.clear()  # many of them may not exist any more
            self._numbers[name] = number
            return self._opened(number)

    def _number_of(self, name: str, count: int) -> int:
        """Returns the number of the partition for a group or a transactional id, of a topic with `count` partitions."""
        raise NotImplementedError

    def create(self) -> None:
        """Creates the topic as Kafka does (groups-and-transactions 1.1)."""
        try:
            self._manager.create_topic(self._name, self._partition_count, **self._options)
        except TopicAlreadyExistsError:
            return  # another thread or process was faster

    def partition_ids(self) -> tuple[int, ...]:
        """Returns the numbers of the partitions; none if the topic does not exist."""
        topic = self._manager.topics().get(self._name)
        return () if topic is None else topic.partition_ids

    def partition(self, number: int) -> P:
        """Returns one partition. Raises UnknownTopicOrPartitionError if it does not exist."""
        with self._guard:
            return self._opened(number)

    def _opened(self, number: int) -> P:
        found = self._partitions.get(number)
        if found is None:
            log = partial(self._manager.log, self._name, number)
            found = self._make_partition(log, self._directory_of(number), number)
            self._partitions[number] = found
        return found

    def _directory_of(self, number: int) -> str:
        return join(self._manager.path, directory_name(TopicPartition(self._name, number)))

    def all_partitions(self) -> Iterator[P]:
        """Yields the existing partitions. One that the topic's creator has not created yet has no records."""
        for number in self.partition_ids():
            with suppress(UnknownTopicOrPartitionError):
                found = self.partition(number)
                yield found

    def each_partition(
        self, action: Callable[[P], Result], unless_unopened: Callable[[str], bool] = _never
    ) -> tuple[dict[int, Result], dict[int, PylogError]]:
        """Returns the results of `action` for each partition, by number, and the errors of those that it fails for.

        A partition that was not created yet, or was just deleted, is in neither.

        Args:
            action: called with each partition.
            unless_unopened: called with the directory of a partition that is not open yet. If it returns true, the partition is
                left out, and not opened.
        """
        found: dict[int, Result] = {}
        failed: dict[int, PylogError] = {}
        for number in self.partition_ids():
            try:
                if number in self._partitions or not unless_unopened(self._directory_of(number)):
                    found[number] = action(self.partition(number))
            except UnknownTopicOrPartitionError:
                continue
            except ClosedError:
                raise
            except PylogError as error:
                failed[number] = error
        return found, failed

    def forget(self) -> None:
        """Forgets the partitions: the topic was deleted, and may have been created again."""
        with self._guard:
            self._count = 0
            self._partitions.clear()
            self._numbers.clear()
