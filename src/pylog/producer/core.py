"""The part of a producer that outlives it: the buffer, the sender and their thread.

The thread, the store and the exit handlers refer to a `ProducerCore`, and never to the `Producer` object or the program's
functions. So a producer that is dropped without `close` is collected, and its records are still appended.
"""

from __future__ import annotations

import atexit
import concurrent.futures.thread  # noqa: F401 - pyarrow may import pandas at exit, and pandas this module, which cannot be imported then
import sys
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Final

from pylog.clock import Clock
from pylog.log_manager import LogManager
from pylog.producer.buffer import RecordAccumulator
from pylog.producer.config import ProducerConfig
from pylog.producer.sender import Sender
from pylog.producer.transactions import ProducerTransactions
from pylog.transactions.manager import TransactionManager

_BEFORE_OTHERS: Final = 100  # exit priority; pools of multiprocessing have 15, managers 10


class ProducerCore:
    """One producer's buffer and sender.

    Args:
        manager: the topics and logs that it sends to.
        clock: for timestamps and waiting.
        config: the producer's options.
        ended: called by the producer's thread when every record is settled.
        manager_of_transactions: begins its transactions; None if the producer has none.

    Attributes:
        transactions: those of the producer; None if it has none.
    """

    def __init__(
        self,
        manager: LogManager,
        clock: Clock,
        config: ProducerConfig,
        ended: Callable[[ProducerCore], object],
        manager_of_transactions: TransactionManager | None = None,
    ) -> None:
        self.buffer = RecordAccumulator(config.buffer_memory, config.max_block_ms, config.linger_ms, config.batch_size)
        self.sender = Sender(manager, clock, _without_calls(config), self.buffer)
        self.transactions = (
            None
            if manager_of_transactions is None
            else ProducerTransactions(manager_of_transactions, manager, clock, _without_calls(config), self.buffer)
        )
        self._ended = ended
        self._begun = False

    def begin(self) -> None:
        """Starts the thread."""
        self._leave_exit = at_exit(self.close)
        try:
            self.buffer.start(self._run)
        except BaseException:
            self._leave_exit()
            raise
        self._begun = True

    @property
    def is_open(self) -> bool:
        """True if the thread was started in this process and the producer is not closed. Takes no lock."""
        return self._begun and not self.buffer.is_closed and not self.buffer.is_foreign()

    def close(self, timeout: float | None = None) -> None:
        """Appends the sent records and ends the thread. See `Producer.close`."""
        if not self.buffer.is_foreign():
            self.buffer.close(timeout)

    def release(self) -> None:
        """Makes the thread append the sent records and end. Does not wait."""
        self.buffer.refuse_new()

    def _run(self) -> None:
        """Runs the producer's thread. The store and the interpreter's exit wait for it until everything is appended."""
        try:
            self.sender.run()
            if self.transactions is not None:
                self.transactions.end()
        finally:
            self.buffer.failures.report()
            self._leave_exit()
            self._ended(self)


def _without_calls(config: ProducerConfig) -> ProducerConfig:
    """Returns the same options without the user's callables, which may refer to the producer."""
    partitioner = config.partitioner if isinstance(config.partitioner, str) else "default"
    return replace(config, partitioner=partitioner, key_serializer=None, value_serializer=None)


def at_exit(close: Callable[[], object]) -> Callable[[], object]:
    """Registers `close` to be called when the interpreter ends. In a child of multiprocessing, which ignores `atexit`, when it
    ends.

    Returns:
        A function that cancels the registration.
    """
    atexit.register(close)
    processes = sys.modules.get("multiprocessing.process")
    if processes is None or processes.parent_process() is None:
        return partial(atexit.unregister, close)
    from multiprocessing.util import Finalize  # a child has it: others need not wait for its import

    ending = Finalize(None, close, exitpriority=_BEFORE_OTHERS)

    def leave() -> None:
        atexit.unregister(close)
        ending.cancel()

    return leave
