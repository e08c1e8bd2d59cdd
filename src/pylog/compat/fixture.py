"""A fresh Kafka for one test: what the fixture `kafka` of `pylog.testing.plugin` returns."""

from __future__ import annotations

import itertools
import sys
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any, Final, Unpack

from pylog.clock import Clock, SystemClock
from pylog.compat.clusters import CLUSTERS, MEMORY, Cluster, ClusterSettings
from pylog.compat.installing import PACKAGES, installed, ours_by_name
from pylog.config import CreateTopicArguments
from pylog.store import Store
from pylog.topics.topic import Topic

_NUMBERS: Final = itertools.count(1)
_A_THREAD_ENDS_S: Final = 5.0
_NAP_S: Final = 0.0005
_CLOCK: Final = SystemClock()


class KafkaForTests:
    """A Kafka of its own for one test, in memory or in a directory. The fixture `kafka` provides it.

    Args:
        name: the directory, or `memory:` with a name.
        cluster: the cluster that has its store.
        clock: the test's clock, or None.

    Attributes:
        clock: as given.
    """

    def __init__(self, name: str, cluster: Cluster, clock: Clock | None) -> None:
        self.clock = clock
        self._name = name
        self._cluster = cluster

    @property
    def store(self) -> Store:
        """The pylog store."""
        return self._cluster.store

    @property
    def bootstrap_servers(self) -> str:
        """The address for clients; any other address leads here, too."""
        if self._name.startswith(MEMORY):
            return "pylog+memory://" + self._name.removeprefix(MEMORY)
        return "pylog://" + self._name

    def topic(self, name: str, partitions: int = 1, **config: Unpack[CreateTopicArguments]) -> Topic:
        """Creates a topic, and returns it.

        Args:
            name: the topic's name.
            partitions: the number of partitions.
            config: the topic's options, as for `Store.create_topic`.

        Raises:
            TopicAlreadyExistsError: there is such a topic. InvalidTopicError, InvalidArgumentError: as `Store.create_topic`.
        """
        return self._cluster.create(name, partitions, config)

    def send(self, topic: str, value: bytes | str | None, key: bytes | str | None = None) -> int:
        """Appends one record to a topic's first partition, and returns its offset. The topic is created if it is missing.

        Args:
            topic: the topic's name.
            value, key: bytes or None; text is encoded.

        Raises:
            PylogError: as `Log.append`.
        """
        self._cluster.create_on_demand(topic, allowed=True)
        return self.store.log(topic).append(_bytes(value), key=_bytes(key))

    def values(self, topic: str) -> list[bytes | None]:
        """Returns the values of all records of a topic, partition by partition; none if it does not exist.

        Args:
            topic: the topic's name.
        """
        numbers = self._cluster.partitions(topic) or ()
        return [record.value for number in numbers for record in self.store.log(topic, number).records()]

    def committed(self, group: str) -> dict[Any, int]:
        """Returns the offsets that a group has committed, by partition.

        Args:
            group: the group's name. A group without commits has none.
        """
        return {partition: found.offset for partition, found in self.store.offsets.fetch(group).items()}


def _bytes(given: bytes | str | None) -> bytes | None:
    return given.encode() if isinstance(given, str) else given


@contextmanager
def kafka_for_test(directory: str | None = None, clock: Clock | None = None, *, replace: bool = True) -> Iterator[KafkaForTests]:
    """Provides a fresh Kafka while the block runs. Closes clients that are still open, with a ResourceWarning each.

    Args:
        directory: the store's directory; by default in memory.
        clock: the store's clock; by default the system's.
        replace: true to put the layer in the place of the real package, also in modules that have imported it.

    Raises:
        AssertionError: threads of pylog are left.
    """
    name = directory or f"{MEMORY}test-{next(_NUMBERS)}"
    before, threads = CLUSTERS.settings, set(threading.enumerate())
    CLUSTERS.settings = ClusterSettings(directory=name, clock=clock)
    try:
        with _in_place_of_the_real_one(replace=replace and not installed()):
            yield KafkaForTests(name, CLUSTERS.of(None), clock)
    finally:
        CLUSTERS.settings = before
        left = _close_what_is_open(name)
        CLUSTERS.forget(name)
    _check_threads(threads)
    for message in left:  # last: a warning can be an error
        warnings.warn(message, ResourceWarning, stacklevel=3)


def _close_what_is_open(name: str) -> list[str]:
    """Closes the clients that a test left open. Returns a message for each, and for each that failed."""
    messages = []
    for client in CLUSTERS.clients_of(name):
        if client._closed:
            continue
        messages.append(f"{type(client).__name__} {client.config['client_id']!r} was not closed by the test")
        try:
            client._abandon()
        except Exception as error:  # noqa: BLE001 - also of the test's own serializers: the other clients are closed, too
            messages.append(f"closing it failed: {error}")
    return messages


def _check_threads(before: set[threading.Thread]) -> None:
    """Waits for the threads of a test. One that another thread starts at this moment is among them, and cannot be joined."""
    deadline = _CLOCK.monotonic() + _A_THREAD_ENDS_S
    while left := [each.name for each in threading.enumerate() if each not in before and each.name.startswith("pylog")]:
        assert _CLOCK.monotonic() < deadline, f"threads are left of the test: {', '.join(left)}"
        _CLOCK.sleep(_NAP_S)


@contextmanager
def _in_place_of_the_real_one(*, replace: bool) -> Iterator[None]:
    """Puts the layers' modules and names in the place of the real packages', and brings those back."""
    if not replace:
        yield
        return
    real = {name: module for name, module in sys.modules.items() if name.partition(".")[0] in PACKAGES}
    ours = {name: module for package in PACKAGES for name, module in ours_by_name(package).items()}
    held = _held(real, ours) if real else []
    for name in real:
        del sys.modules[name]
    sys.modules.update(ours)
    for module, name, _, mine in held:
        setattr(module, name, mine)
    try:
        yield
    finally:
        for module, name, theirs, _ in held:
            setattr(module, name, theirs)
        for name in ours:
            sys.modules.pop(name, None)
        sys.modules.update(real)


_Held = list[tuple[ModuleType, str, Any, Any]]  # a module, a name in it, what it is, and ours
_found: dict[object, _Held] = {}  # of the last scan; a scan of thousands of modules takes longer than a test


def _held(real: dict[str, ModuleType], ours: dict[str, ModuleType]) -> _Held:
    """Returns the names of other modules that hold something of the real package."""
    state = len(sys.modules), next(reversed(sys.modules))
    if state not in _found:
        _found.clear()
        _found[state] = [
            (module, name, found, mine)
            for module_name, module in list(sys.modules.items())
            if module_name not in real and not module_name.startswith("pylog.") and isinstance(module, ModuleType)
            for name, found in list(vars(module).items())
            if (mine := _ours_for(found, ours)) is not None
        ]
    return [(module, name, found, mine) for module, name, found, mine in _found[state] if vars(module).get(name) is found]


def _ours_for(found: Any, ours: dict[str, ModuleType]) -> Any:
    if isinstance(found, ModuleType):
        return ours.get(found.__name__)
    defined_in = getattr(found, "__module__", None) if callable(found) else None
    package = defined_in.partition(".")[0] if isinstance(defined_in, str) else ""
    if package not in PACKAGES:
        return None
    name = getattr(found, "__name__", "")
    modules = [module for each, module in ours.items() if each.partition(".")[0] == package]
    return next((getattr(module, name) for module in modules if hasattr(module, name)), None)
