"""A store and its clients for asyncio: a thin layer over `Store`, `Log`, `Producer` and `Consumer`.

Nothing here keeps the event loop waiting: what may block goes to another thread, and what other threads finish comes back by
`call_soon_threadsafe`, once for all that has come in meanwhile.
"""

from __future__ import annotations

from pylog.aio.batch import BatchBuilder
from pylog.aio.consumer import AsyncConsumer
from pylog.aio.log import AsyncLog
from pylog.aio.producer import AsyncProducer
from pylog.aio.store import AsyncStore, open  # noqa: A004 - as `pylog.open`
from pylog.aio.threads import AsyncIteration

__all__ = ["AsyncConsumer", "AsyncIteration", "AsyncLog", "AsyncProducer", "AsyncStore", "BatchBuilder", "open"]
