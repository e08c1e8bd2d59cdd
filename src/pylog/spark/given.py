"""The options that a user gave, by name in any case: which exist, and what each may be used for.

An unknown option is an error: one that is misspelt never passes silently. So is one that belongs to another use of the source,
except for those that the Kafka connector accepts in a batch read with a warning.
"""

from __future__ import annotations

import difflib
import logging
from collections.abc import Mapping, Sequence
from typing import Literal, TypeVar

from pylog.errors import InvalidArgumentError
from pylog.spark.values import Parse

Use = Literal["batch reads", "streaming reads", "writing"]

_READ = (
    "path", "subscribe", "subscribePattern", "assign",
    "startingOffsets", "startingTimestamp", "startingOffsetsByTimestamp", "startingOffsetsByTimestampStrategy",
    "isolationLevel", "isolation.level", "kafka.isolation.level", "failOnDataLoss",
    "minPartitions", "maxBytesPerPartition", "maxRecordsPerPartition",
    "includeHeaders", "columns", "verifyChecksums",
    "s3.region", "s3.endpoint", "s3.anonymous", "tier", "tier.layout", "tier.keyPrefix", "tier.keys", "tier.topicIds",
)  # fmt: skip
ENDING = ("endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp")
_LIMITS = ("maxOffsetsPerTrigger", "minOffsetsPerTrigger", "maxTriggerDelay")
KNOWN: Mapping[Use, tuple[str, ...]] = {
    "batch reads": (*_READ, *ENDING, "snapshot"),
    "streaming reads": (*_READ, *_LIMITS, "maxBytesPerTrigger", "groupId"),
    "writing": ("path", "topic", "createTopics", "partitions", "compression", "durability", "timestampType", "transactional"),
}
_IGNORED: Mapping[Use, tuple[str, ...]] = {
    "batch reads": _LIMITS,
    "streaming reads": (),
    "writing": (),
}  # the connector warns, and goes on
_NO_OPTIONS = (
    "; a table made with a list of columns does not pass on its options: leave out the columns, and use the option `columns`"
)

_logger = logging.getLogger("pylog.spark")

T = TypeVar("T")
D = TypeVar("D")


class GivenOptions:
    """The options that the user gave; making it refuses those that do not belong here.

    Args:
        options: names, in any case, to values.
        uses: the uses they are given for; several if the use is not known yet.

    Raises:
        InvalidArgumentError: an option does not exist, or is for another use.

    >>> "subscribe" in GivenOptions({"SUBSCRIBE": "orders"}, "batch reads")
    True
    """

    def __init__(self, options: Mapping[str, str], *uses: Use) -> None:
        self._values = {name.lower(): value for name, value in options.items()}
        known = {name.lower(): name for names in KNOWN.values() for name in names}
        for name in sorted(self._values):
            if name not in known:
                raise InvalidArgumentError(_unknown(name, uses))
            _check_use(known[name], uses)

    def __contains__(self, name: str) -> bool:
        return name.lower() in self._values

    def get(self, name: str, parse: Parse[T], default: D) -> T | D:
        """Returns the parsed value of an option, or its default. Raises as `pylog.spark.values`."""
        return parse(name, self._values[name.lower()]) if name in self else default

    def required(self, name: str, parse: Parse[T]) -> T:
        """Returns the value of an option that must be given; raises `InvalidArgumentError` if it was not."""
        if name not in self:
            raise InvalidArgumentError(f"the option {name!r} is required{_NO_OPTIONS if not self._values else ''}")
        return parse(name, self._values[name.lower()])


def _unknown(name: str, uses: Sequence[Use]) -> str:
    if name.startswith("kafka."):
        hint = "; pylog reads and writes a log's files itself: there is no broker to configure"
    else:
        known = {option.lower(): option for options in KNOWN.values() for option in options}
        close = difflib.get_close_matches(name, known, n=1)
        hint = f"; did you mean {known[close[0]]!r}?" if close else ""
    names = dict.fromkeys(name for use in uses for name in KNOWN[use])
    return f"unknown option {name!r}{hint}; the options of {' and '.join(uses)} are {', '.join(names)}"


def _check_use(name: str, uses: Sequence[Use]) -> None:
    if any(name in KNOWN[use] for use in uses):
        return
    if any(name in _IGNORED[use] for use in uses):
        _logger.warning("the option %r is for streaming reads: a batch read ignores it", name)
        return
    others = " and ".join(other for other, names in KNOWN.items() if name in names)
    raise InvalidArgumentError(f"the option {name!r} is for {others}, not for {' or '.join(uses)}")
