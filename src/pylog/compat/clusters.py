"""The stores that stand for Kafka clusters: which one a client means, and one `Store` per directory and process.

The first of these decides: `pylog:` in `bootstrap_servers`, `install(clusters=)`, `install(directory=)`, the environment variable
`PYLOG_KAFKA`, and else the directory `pylog-kafka` below the current one.
"""

from __future__ import annotations

import logging
import threading
import warnings
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple
from weakref import WeakSet

from pylog.clock import Clock, SystemClock
from pylog.config import Durability, OffsetsConfig, TransactionsConfig
from pylog.directory.topic_names import INTERNAL_TOPICS
from pylog.errors import ClosedError, InvalidArgumentError, TopicAlreadyExistsError
from pylog.fs import OsFileSystem, environment_variable, on_fork, path_of, process_id, rooted
from pylog.log_manager import LogManager
from pylog.offsets.offset_manager import OffsetManager
from pylog.offsets.store import offset_manager_of
from pylog.opening import open_store
from pylog.producer.core import at_exit
from pylog.store import Store, manager_of
from pylog.testing.memory import MemoryFileSystem
from pylog.topics.making import check_writable
from pylog.topics.topic import Topic

LOGGER = logging.getLogger("pylog.compat")
VARIABLE: Final = "PYLOG_KAFKA"
MEMORY: Final = "memory:"
_DIRECTORY_SCHEME: Final = "pylog://"
_MEMORY_SCHEME: Final = "pylog+memory://"
_DEFAULT: Final = "pylog-kafka"
_UPKEEP_MS: Final = 300_000  # how often a broker checks retention
_TRUSTED_S: Final = 1.0
_CLOCK: Final = SystemClock()
KEEPS_EVERYTHING: Final = {"retention_ms": -1}  # a store has one owner, and deleted events cannot be restored


@dataclass(frozen=True)
class ClusterSettings:
    """The arguments of `pylog.compat.install`.

    Attributes:
        directory: the store's directory, or `memory:` with an optional name; None leaves it to the environment.
        mode: "rw", or "r" to write nothing.
        durability: the level of acknowledgements of all topics without one of their own; None is SYNC, and OS in memory.
        auto_create_topics: true to create missing topics when they are used.
        num_partitions: the partitions of a topic that is created so.
        topic_config: its options, as for `Store.create_topic`.
        clusters: directories by the address of a server, such as `{"b:9092": "dir-b"}`.
        clock: the stores' clock; None is the system's.
    """

    directory: str | None = None
    mode: str = "rw"
    durability: Durability | None = None
    auto_create_topics: bool = True
    num_partitions: int = 1
    topic_config: Mapping[str, Any] = field(default_factory=dict)
    clusters: Mapping[str, str] = field(default_factory=dict)
    clock: Clock | None = None


class _TrustedCount(NamedTuple):
    """A topic's partitions as they were read.

    Attributes:
        partitions: their numbers.
        changes: the manager's `topic_changes` at that time.
        until: seconds of the monotonic clock; afterwards another process may have changed them.
    """

    partitions: tuple[int, ...]
    changes: int
    until: float


class Cluster:
    """One store with the settings of its clients.

    Args:
        store: the store.
        settings: the installation's settings.
        name: the directory, or `memory:` with a name.

    Attributes:
        store, name, settings: as given.
        manager, offsets: the store's own.
        clients: the producers and consumers that were made for it, as long as they are referred to.
        meaningless: by topic, options that mean something to brokers only. They are kept while the process runs.
    """

    def __init__(self, store: Store, settings: ClusterSettings, name: str) -> None:
        self.store = store
        self.name = name
        self.settings = settings
        self.manager: LogManager = manager_of(store)
        self.offsets: OffsetManager = offset_manager_of(store.offsets)
        self.offsets.accepts_any_offset = self.offsets.accepts_without_member = True
        self._pid = process_id()
        self.clients: WeakSet[Any] = WeakSet()
        self.meaningless: dict[str, dict[str, str]] = {}
        self._known: dict[str, _TrustedCount] = {}

    def check_process(self) -> None:
        """Raises ClosedError in a forked child: the store belongs to the parent."""
        if process_id() != self._pid:
            raise ClosedError(
                "this client was created before a fork, and its store belongs to the parent; create another client here"
            )

    def topics(self) -> dict[str, Topic]:
        """Returns the topics by name."""
        self.check_process()
        return self.manager.topics()

    def partitions(self, topic: str) -> tuple[int, ...] | None:
        """Returns the numbers of a topic's partitions; None if it does not exist.

        Cost: one dictionary access; once a second, and after each change through this store, one listing of the directory.
        """
        known = self._known.get(topic)
        now, changes = _CLOCK.monotonic(), self.manager.topic_changes
        if known is None or known.changes != changes or now >= known.until:
            found = self.topics().get(topic)
            if found is None:
                self._known.pop(topic, None)
                return None
            known = self._known[topic] = _TrustedCount(found.partition_ids, changes, now + _TRUSTED_S)
        return known.partitions

    def create(self, topic: str, partitions: int | None = None, config: Mapping[str, Any] | None = None) -> Topic:
        """Creates a topic, with the settings where an argument is None. Raises as `Store.create_topic`."""
        settings = {} if topic in INTERNAL_TOPICS else KEEPS_EVERYTHING | dict(self.settings.topic_config)
        options: dict[str, Any] = settings | dict(config or {})
        return self.store.create_topic(topic, self.settings.num_partitions if partitions is None else partitions, **options)

    def create_on_demand(self, topic: str, *, allowed: bool) -> bool:
        """Creates a topic that a client uses, if it is missing and that is allowed. Returns whether it exists then."""
        if topic in self.topics():
            return True
        if not (allowed and self.settings.auto_create_topics and self.settings.mode == "rw"):
            return False
        try:
            made = self.create(topic)
        except TopicAlreadyExistsError:  # another client was faster
            return True
        LOGGER.info("topic %s was created on demand with %d partitions in %s", topic, made.partition_count, self.name)
        return True


class _Clusters:
    """The open stores of this process."""

    def __init__(self) -> None:
        self.settings = ClusterSettings()
        self._guard = threading.RLock()
        self._open: dict[str, Cluster] = {}
        self._memories: dict[str, MemoryFileSystem] = {}
        self._of_parent: frozenset[str] = frozenset()  # the parent's stores in memory, which a forked child cannot share
        self._leave_exit: Callable[[], object] | None = None
        on_fork(self)

    def forked(self) -> None:
        """Gives up the parent's stores in a forked child."""
        self._guard = threading.RLock()
        self._open = {}
        self._of_parent |= frozenset(self._memories)
        self._leave_exit = None

    def of(self, servers: object) -> Cluster:
        """Returns the cluster that a client's `bootstrap_servers` mean, opened on first use."""
        name = self._name(servers)
        with self._guard:
            known = self._open.get(name)
            if known is None or not is_open(known.store):
                known = self._open[name] = Cluster(self._opened(name), self.settings, name)
                if self._leave_exit is None:
                    self._leave_exit = at_exit(self.close)
            return known

    def _name(self, servers: object) -> str:
        """Returns the directory's absolute path, or `memory:` with a name."""
        given = [str(each) for each in _listed(servers)]
        for each in given:
            if each.startswith(_MEMORY_SCHEME):
                return MEMORY + each.removeprefix(_MEMORY_SCHEME)
            if each.startswith(_DIRECTORY_SCHEME):
                return _directory(each.removeprefix(_DIRECTORY_SCHEME))
        for each in given:
            if each in self.settings.clusters:
                return _directory(str(self.settings.clusters[each]))
        chosen = self.settings.directory or environment_variable(VARIABLE)
        if chosen is None:
            chosen = rooted(_DEFAULT)
            if chosen not in self._open:
                advice = f"call pylog.compat.install(directory) or set {VARIABLE}"
                warnings.warn(f"topics are in {chosen}: no directory was named; {advice}", UserWarning, stacklevel=4)
        return _directory(chosen)

    def _opened(self, name: str) -> Store:
        settings = self.settings
        if not name.startswith(MEMORY):
            if settings.mode == "rw" and OsFileSystem().exists(name):
                check_writable(OsFileSystem(), name, 'read it with pylog.compat.install(mode="r"), without a group')
            return open_store(
                name,
                settings.mode,
                durability=settings.durability or Durability.SYNC,
                create=True,  # the directory was named for this
                tick_interval_ms=_UPKEEP_MS if settings.mode == "rw" and settings.clock is None else None,
                clock=settings.clock,
            )
        if name in self._of_parent:
            raise InvalidArgumentError(f"the store {name!r} in memory belongs to the parent process; name a directory instead")
        fs = self._memories.setdefault(name, MemoryFileSystem(clock=SystemClock()))
        return open_store(
            "/kafka",
            durability=settings.durability or Durability.OS,
            offsets=OffsetsConfig(topic_num_partitions=1),
            fs=fs,
            clock=settings.clock,
        )

    def clients_of(self, name: str) -> list[Any]:
        """Returns the clients of a store that are still referred to."""
        cluster = self._open.get(name)
        return [] if cluster is None else list(cluster.clients)

    def close(self) -> None:
        """Closes all stores, their producers first."""
        with self._guard:
            opened, self._open = list(self._open.values()), {}
            leave, self._leave_exit = self._leave_exit, None
        if leave is not None:
            leave()
        with ExitStack() as last:
            for cluster in opened:
                last.callback(cluster.store.close)

    def forget(self, name: str) -> None:
        """Closes one store, and removes it if it is in memory."""
        with self._guard:
            cluster = self._open.pop(name, None)
            self._memories.pop(name, None)
        if cluster is not None:
            cluster.store.close()


def too_long_for_a_transaction(timeout_ms: int) -> str | None:
    """Returns the message about a timeout that a broker refuses; None if the stores of clusters accept it.

    Args:
        timeout_ms: a producer's option, in milliseconds.
    """
    longest = TransactionsConfig().max_timeout_ms  # these stores are opened without a value of their own
    if timeout_ms <= longest:
        return None
    return f"the transaction timeout of {timeout_ms} ms is longer than {longest} ms, the broker's transaction.max.timeout.ms"


def is_open(store: Store) -> bool:
    """Returns whether a store is still open: a program may close what `Cluster.store` gave it."""
    return not manager_of(store).gate.is_shut


def _listed(servers: object) -> Iterable[object]:
    if servers is None:
        return ()
    if isinstance(servers, str) or not isinstance(servers, Iterable):
        return str(servers).split(",")
    return servers


def _directory(given: str) -> str:
    if given.startswith(MEMORY):
        return given
    return rooted(path_of("bootstrap_servers", given))


CLUSTERS: Final = _Clusters()
