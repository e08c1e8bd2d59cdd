"""The part of aiokafka's `AIOKafkaClient` that needs no network: it knows the topics of a store."""

from __future__ import annotations

import asyncio
import warnings
from collections.abc import Awaitable, Iterable, Mapping
from typing import Any, Final, Self

from pylog.compat.aiokafka import errors
from pylog.compat.aiokafka.util import create_future, get_running_loop
from pylog.compat.clusters import CLUSTERS, Cluster
from pylog.compat.kafka.metadata import NODE, ClusterMetadata

__all__ = ["AIOKafkaClient", "ClusterMetadata"]

_PROTOCOLS: Final = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")

_MECHANISMS: Final = ("PLAIN", "GSSAPI", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")
_OPTIONS: Final = (
    "loop",
    "bootstrap_servers",
    "security_protocol",
    "ssl_context",
    "sasl_mechanism",
    "sasl_plain_username",
    "sasl_plain_password",
)


class AIOKafkaClient:
    """The topics of a cluster. Requests of Kafka's protocol are refused: there is no network.

    Args:
        loop: ignored.
        bootstrap_servers: choose the store, as for a producer.
        security_protocol, ssl_context: checked as aiokafka does, and ignored.
        sasl_mechanism, sasl_plain_username, sasl_plain_password: the same.
        configs: the other options, which are ignored.

    Raises:
        ValueError: there is no such protocol or mechanism, TLS has no context, or PLAIN has no user or password.

    Attributes:
        cluster: the topics and the one broker, after `bootstrap`.
    """

    def __init__(
        self,
        *,
        loop: Any = None,
        bootstrap_servers: Any = "localhost",
        security_protocol: str = "PLAINTEXT",
        ssl_context: Any = None,
        sasl_mechanism: str = "PLAIN",
        sasl_plain_username: str | None = None,
        sasl_plain_password: str | None = None,
        **configs: Any,
    ) -> None:
        if security_protocol not in _PROTOCOLS:
            message = "`security_protocol` should be SSL or PLAINTEXT, alone or after SASL_"
            raise ValueError(f"{message}; it is {security_protocol!r}")
        if security_protocol in ("SSL", "SASL_SSL") and ssl_context is None:
            raise ValueError(f"`ssl_context` is mandatory if security_protocol=={security_protocol!r}")
        if security_protocol.startswith("SASL_"):
            _check_sasl(sasl_mechanism, sasl_plain_username, sasl_plain_password)
        if loop is not None:
            warnings.warn("the option loop is deprecated; leave it out", DeprecationWarning, stacklevel=4)
        self._loop = loop or get_running_loop()
        self._servers = bootstrap_servers
        self._names: set[str] = set()
        self._store: Cluster | None = None
        self.cluster: Any = None

    @classmethod
    def of(cls, config: Mapping[str, Any]) -> Self:
        """Returns the client for the configuration of a producer, a consumer or an administrator."""
        return cls(**{name: config[name] for name in _OPTIONS})

    async def bootstrap(self) -> Cluster:
        """Opens the store, and returns it."""
        if self._store is None:
            self._store = await asyncio.to_thread(CLUSTERS.of, self._servers)
            self.cluster = ClusterMetadata(self._store)
        return self._store

    async def close(self) -> None:
        """Does nothing: the store stays open for other clients."""

    def force_metadata_update(self) -> Awaitable[bool]:
        """Creates the topics that were added, as a broker does. Returns a future of True."""
        return self._loop.create_task(self._created(frozenset(self._names)))

    async def _created(self, names: Iterable[str]) -> bool:
        store = await self.bootstrap()
        for name in sorted(names):
            await asyncio.to_thread(store.create_on_demand, name, allowed=True)
        return True

    async def fetch_all_metadata(self) -> Any:
        """Returns `cluster`."""
        await self.bootstrap()
        return self.cluster

    async def _wait_on_metadata(self, topic: str) -> set[int]:
        """Returns the numbers of a topic's partitions. Creates it if it is missing. aiokafka's own tests call it."""
        await self.add_topic(topic)
        found: set[int] = self.cluster.partitions_for_topic(topic)
        return found

    def add_topic(self, topic: str) -> Awaitable[bool]:
        """Adds a topic. Returns a future of True."""
        self._names.add(topic)
        return self.force_metadata_update()

    def set_topics(self, topics: Iterable[str]) -> Awaitable[bool]:
        """Replaces the topics. Returns a future of True."""
        self._names = set(topics)
        if self._names:
            return self.force_metadata_update()
        done = create_future()
        done.set_result(True)
        return done

    def get_random_node(self) -> int | str:
        """Returns the id of the one broker."""
        return NODE.nodeId

    async def send(self, node_id: Any, request: Any, **_: Any) -> Any:
        """Refuses requests.

        Raises:
            UnsupportedVersionError: always.
        """
        message = "requests of Kafka's protocol need a network; use the producer, the consumer and the administrator"
        raise errors.UnsupportedVersionError(message)

    ready = coordinator_lookup = send


def _check_sasl(mechanism: str, username: str | None, password: str | None) -> None:
    if mechanism not in _MECHANISMS:
        raise ValueError(f"sasl_mechanism={mechanism!r} is not one of {', '.join(_MECHANISMS)}")
    if mechanism == "PLAIN" and (username is None or password is None):
        raise ValueError("sasl_plain_username and sasl_plain_password required for PLAIN sasl")


def report_unclosed(client: object, kind: str, loop: asyncio.AbstractEventLoop) -> None:
    """Warns that a client was dropped without `stop`, as aiokafka does.

    Args:
        client: the client.
        kind: "producer" or "consumer".
        loop: its event loop.
    """
    message = f"Unclosed {type(client).__name__}"
    warnings.warn(f"{message} {client!r}", ResourceWarning, source=client, stacklevel=3)
    loop.call_exception_handler({kind: client, "message": message})
