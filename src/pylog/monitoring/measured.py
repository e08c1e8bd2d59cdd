"""The metrics of a store: `MeasuredStore` has the methods for users, `Measures` what they need."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from contextlib import ExitStack, nullcontext
from functools import partial
from typing import TYPE_CHECKING, cast

from pylog.errors import IllegalStateError
from pylog.extras import install_command
from pylog.fs import LiveSet
from pylog.log_manager import LogManager
from pylog.metrics import Sample
from pylog.offsets.offset_manager import OffsetManager

if TYPE_CHECKING:  # opening a store loads none of them
    from pylog.monitoring.monitor import Monitor
    from pylog.monitoring.page import Choice
    from pylog.monitoring.server import MetricsServer
    from pylog.transactions.admin import TransactionAdmin
    from pylog.ui.planned import ChangingStore
    from pylog.ui.server import WindowServer
    from pylog.ui.watch import Watch


class Measures:
    """Takes the samples of a store, and closes its metrics servers with it.

    Args:
        manager, offsets: the store's manager and offsets.
        transactions: returns the administration of its transactions.
    """

    def __init__(self, manager: LogManager, offsets: OffsetManager, transactions: Callable[[], TransactionAdmin]) -> None:
        self._manager = manager
        self._offsets = offsets
        self._transactions = transactions
        self._guard = threading.Lock()
        self._monitor: Monitor | None = None
        self._servers: LiveSet[MetricsServer | WindowServer] = LiveSet()

    def samples(self, *, counters: bool = True) -> list[Sample]:
        """See `MeasuredStore.metrics`. `counters` as of `Monitor.samples`."""
        with self._manager.gate.throughout():
            with self._guard:
                if self._monitor is None:
                    from pylog.monitoring import monitor

                    self._monitor = monitor.Monitor(self._manager, self._offsets)
            return self._monitor.samples(counters=counters)

    def page(self, choice: Choice, format: str) -> str:  # noqa: A002
        """Returns the chosen metrics as text."""
        from pylog.monitoring import page

        return page.page(partial(self.samples, counters=choice.counters), choice, self._manager.path, format)

    def serve(self, choice: Choice, host: str, port: int, token: str | None) -> MetricsServer:
        """See `MeasuredStore.serve_metrics`."""
        from pylog.monitoring import foreign, server

        self._manager.gate.check()
        foreign.check_exporters(choice.names)
        made = server.MetricsServer(lambda kind: self.page(choice, kind), host, port, token)
        self._servers.add(made)
        return made

    def check_writable(self) -> None:
        """Raises ReadOnlyError if the store is open for reading, and ClosedError if it is closed."""
        self._manager.check_writable()

    def watch(self) -> Watch:
        """Returns what the window shows."""
        from pylog.ui import watch

        return watch.Watch(self._manager, self._offsets, self._transactions, self.negotiated)

    def negotiated(self, accept: str) -> tuple[str, str]:
        """Returns all metrics in the format that a client's `Accept` header names, and its media type."""
        from pylog.monitoring import page, requests

        kind = requests.wanted_format(accept)
        return self.page(page.Choice(counters=self._manager.writable), kind), requests.MEDIA_TYPES[kind]

    def serve_ui(
        self, host: str, port: int | None, token: str | None, changing: ChangingStore | None, *, hide_values: bool
    ) -> WindowServer:
        """See `MeasuredStore.serve_ui`."""
        self._manager.gate.check()
        try:
            from pylog.ui import server
        except ModuleNotFoundError as error:
            raise IllegalStateError(f"the window requires {error.name}; install it: {install_command('ui')}") from error

        writing = None if changing is None else lambda: nullcontext(changing)
        made = server.WindowServer(self.watch(), host, port, token, writing=writing, hide_values=hide_values)
        self._servers.add(made)
        return made

    def close(self) -> None:
        """Closes the servers."""
        with ExitStack() as last:
            for server in self._servers.members():
                last.callback(server.close)


class MeasuredStore:
    """The methods of a store for its metrics."""

    _measures: Measures

    def metrics(self) -> list[Sample]:
        """Returns the metrics of the store: offsets, sizes, bytes written by this process, and the lag and health of each group.

        Returns:
            Values of the metrics in `pylog.metrics.METRICS`, for each partition, each group, and each partition with a committed
            offset of a group. `pylog.metrics.exposition` formats them for monitoring systems.

        Raises:
            ClosedError: the store is closed.

        No damage raises: a partition that is damaged or cannot be read has the value 1 for `log_unreadable`, and the other
        partitions are complete.

        Cost: one refresh of each partition, and some 30 µs for each partition of each group. The first call opens all partitions,
        and reads the committed offsets.

        >>> import pylog, tempfile
        >>> with pylog.open(tempfile.mkdtemp()) as store:
        ...     _ = store.create_topic("orders")
        ...     _ = store.log("orders").append_many([b"a", b"b"])
        ...     {sample.name: sample.value for sample in store.metrics()}["log_appended_records"]
        2
        """
        return self._measures.samples()

    def serve_metrics(
        self,
        port: int = 9308,
        *,
        host: str = "127.0.0.1",
        token: str | None = None,
        names: Sequence[str] = (),
        topics: Sequence[str] = (),
        internal: bool = False,
    ) -> MetricsServer:
        """Serves the metrics over HTTP at `/metrics`, from a daemon thread. The server is closed with the store.

        Args:
            port: where to listen; 0 for any free port.
            host: the address to listen on.
            token: clients must send it as a bearer token. An address that other machines can reach needs one.
            names: other exporters whose names are added: "kafka_exporter", "kminion", "lag_exporter".
            topics: patterns for the names of topics, such as `["orders*"]`; by default all topics.
            internal: true to include Kafka's internal topics.

        Returns:
            A `MetricsServer` with `url`, `port` and `close`.

        Raises:
            InvalidArgumentError: an argument is invalid. StorageFailedError: it cannot listen there.
            ClosedError: the store is closed.

        Cost: one thread. A scrape costs one call of `metrics`; its text answers all requests of the next second.

        >>> import pylog, tempfile
        >>> with pylog.open(tempfile.mkdtemp()) as store:
        ...     store.serve_metrics(port=0).url.startswith("http://127.0.0.1:")
        True
        """
        from pylog.monitoring import page

        return self._measures.serve(page.Choice(names, topics, internal), host, port, token)

    def serve_ui(
        self,
        port: int | None = None,
        *,
        host: str = "127.0.0.1",
        token: str | None = None,
        write: bool = False,
        hide_values: bool = False,
    ) -> WindowServer:
        """Serves a window on the store, from a daemon thread: topics, records, segments, groups and their health, in a browser.

        Args:
            port: where to listen; 0 for any free port, None for the first free one from 8055 on.
            host: the address to listen on. One that other machines can reach needs a token.
            token: a text that each request must have; None creates a random one.
            write: true to let pages change the directory: set offsets of groups, append records, delete groups, records and
                topics, abort transactions. Each change is planned first, and confirmed.
            hide_values: true to show sizes instead of values, and not to search values.

        Returns:
            A `WindowServer`. Open its `url`, which has the token, in a browser of this machine.

        Raises:
            InvalidArgumentError: an argument is invalid. StorageFailedError: it cannot listen there.
            IllegalStateError: the extra `ui` is not installed. ClosedError: the store is closed.
            ReadOnlyError: `write` is true, and the store is open for reading.

        Cost: while a page is open, one refresh of each partition in two seconds.

        >>> import pylog, tempfile
        >>> with pylog.open(tempfile.mkdtemp()) as store:
        ...     store.serve_ui(port=0).url.startswith("http://127.0.0.1:")
        True
        """
        if write:
            self._measures.check_writable()
        changing = cast("ChangingStore", self) if write else None
        return self._measures.serve_ui(host, port, token, changing, hide_values=hide_values)


def measures_of(store: MeasuredStore) -> Measures:
    """Returns the measures of a store, for commands."""
    return store._measures
