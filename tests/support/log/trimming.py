"""Logs of a few known segments, to be made shorter."""

from __future__ import annotations

from typing import Any

import pylog
from pylog.store import Store

NOW = 1_700_000_000_000


def sized(store: Store, name: str = "t", per_segment: int = 5, **config: Any) -> pylog.Log:
    """A log whose segments hold so many records, each a batch of its own, of one digit."""
    batch = 61 + 8
    store.create_topic(name, segment_bytes=per_segment * batch, index_interval_bytes=0, **({"retention_ms": -1} | config))
    return store.log(name)


def digit(number: int) -> bytes:
    return b"%d" % (number % 10)


def aged(store: Store, **config: Any) -> pylog.Log:
    """Fifteen records, five a segment, a second apart."""
    log = sized(store, **config)
    for number in range(15):
        log.append(digit(number), timestamp=NOW + 1000 * number)
    return log
