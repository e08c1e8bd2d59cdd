"""Producer ids: drawn at random, without a coordinator.

A broker's controller assigns producer ids from a counter. Processes that share a directory have no controller, and a counter in a
file could be lost or copied. Two producers would then have the same id, and the log would drop the batches of one as duplicates
(groups-and-transactions T-12). So an id is drawn at random between 2^48, which no broker's counter reaches (reliability 10), and
2^62. Among a million producers of one partition, two ids are equal with a chance of one in 8 million.
"""

from __future__ import annotations

import secrets

from pylog import limits


def new_producer_id() -> int:
    """Returns a producer id that no other producer has.

    >>> 1 << 48 <= new_producer_id() < 1 << 62
    True
    """
    first, end = limits.PRODUCER_IDS
    return first + secrets.randbelow(end - first)


def is_of_a_broker(producer_id: int) -> bool:
    """Returns whether a broker's controller may have assigned an id.

    >>> is_of_a_broker(17), is_of_a_broker(1 << 48)
    (True, False)
    """
    return producer_id < limits.PRODUCER_IDS[0]
