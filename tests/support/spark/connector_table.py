"""What is asked of Spark's Kafka connector and of pylog alike: combinations of options over the topics of `connector_data`.

Needs the standard library only: the connector runs where there is no pylog. What the connector answered is kept in
`tests/golden/connector`; a case that is changed here is recorded again with `./dev record-connector`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

TIME = 1_700_000_000_000  # of each partition's first record; the others follow a second apart

Rows = Mapping[str, str]  # "topic-partition" -> offsets, as `connector_answers.ranges` writes them
Instead = str | Rows | list[Rows]


@dataclass(frozen=True)
class Stream:
    """One start of a streaming query with `Trigger.AvailableNow`.

    Attributes:
        options: besides the case's.
        moved: offsets in the checkpoint that are changed before the start.
    """

    options: Mapping[str, str] = field(default_factory=dict)
    moved: Mapping[str, Mapping[str, int]] = field(default_factory=dict)


@dataclass(frozen=True)
class Case:
    """One combination of options.

    Attributes:
        name: says what it is about.
        options: all but where the data is.
        streams: starts of a streaming query, one after the other on one checkpoint; none for a batch query.
        differs: why pylog's answer is not the connector's (docs/SPARK.md), if it is not.
        instead: pylog's answer then: the kind of an error, or the rows (of a stream: of each micro-batch).
    """

    name: str
    options: Mapping[str, str]
    streams: tuple[Stream, ...] = ()
    differs: str = ""
    instead: Instead = ""

    @property
    def asked(self) -> list[Any]:
        """The options of each query, as the recording keeps them beside its answer."""
        starts = self.streams or (Stream(),)
        return [{**self.options, **each.options, **({"moved": each.moved} if each.moved else {})} for each in starts]


def batch(name: str, *, differs: str = "", instead: Instead = "", **options: Any) -> Case:
    """A batch query; what is no string is JSON. In names of options `__` stands for a dot."""
    return Case(name, _texts(options), (), differs, instead)


def stream(name: str, *starts: Stream, differs: str = "", instead: Instead = "", **options: Any) -> Case:
    """A streaming query, started once unless more is said."""
    return Case(name, _texts(options), starts or (Stream(),), differs, instead)


def start(moved: Mapping[str, Mapping[str, int]] | None = None, **options: Any) -> Stream:
    """One start of several."""
    return Stream(_texts(options), moved or {})


def _texts(options: Mapping[str, Any]) -> dict[str, str]:
    return {name.replace("__", "."): value if isinstance(value, str) else json.dumps(value) for name, value in options.items()}


def at(seconds: float) -> str:
    """A time in milliseconds: so many seconds after the first record's."""
    return str(int(TIME + 1000 * seconds))


def orders(*values: Any) -> dict[str, dict[str, Any]]:
    """JSON for the four partitions of `orders`."""
    return {"orders": {str(partition): value for partition, value in enumerate(values)}}


def only(topic: str, *values: Any) -> dict[str, dict[str, Any]]:
    """The same for another topic."""
    return {topic: {str(partition): value for partition, value in enumerate(values)}}


def times(topic: str, *seconds: float) -> dict[str, dict[str, int]]:
    """JSON of times for the partitions of a topic."""
    return only(topic, *(int(at(each)) for each in seconds))


COMMITTED = {"kafka__isolation__level": "read_committed"}
LATEST = {"startingOffsetsByTimestampStrategy": "latest"}
LENIENT = {"failOnDataLoss": "false"}

# Where pylog means to answer otherwise, and why: docs/SPARK.md says the same.
UNKNOWN_OPTION = "an option that does not exist is an error, lest a misspelt one pass silently"
NO_BROKER = "there is no consumer or broker to be set"
NAMED_BUT_MISSING = "a partition that `assign` names and that is not there is an error; the connector leaves it out"
NEGATIVE_TIME = "a time before 1970 is an error; the connector hands it on to the broker, where it may mean something else"
TIMES_IN_ORDER = (
    "an end time before the start time of a partition is an error; the connector minds only the offsets that it finds"
)
NO_END_IN_STREAMS = "a stream with `endingTimestamp` is an error, as one with any other end; the connector ignores it"
NOTHING_LEFT_BEHIND = (
    "`Trigger.AvailableNow` reads all there is; the connector leaves the last of it if it is less than the least"
)
NO_LIMIT_OF_ZERO = "a limit of 0 is an error; the connector reads nothing, for ever"
BAD_REQUEST, NOT_THERE = "bad request", "not there"

EVERYTHING = batch("every record of every topic, with its headers", subscribePattern=".*", includeHeaders="true")


def _subscriptions() -> Iterator[Case]:
    yield batch("one topic, one of its partitions empty", subscribe="orders")
    yield batch("several topics, one of them empty", subscribe="orders,orders-old,nothing")
    yield batch("spaces between topics, and one named twice", subscribe=" orders-old , orders,orders ")
    yield batch("a pattern", subscribePattern="orders.*")
    yield batch("a pattern of a part of names", subscribePattern="order")
    yield batch("a pattern between ^ and $", subscribePattern="^orders(-old)?$")
    yield batch("a pattern with alternatives", subscribePattern="(orders|nothing|codecs)$")
    yield batch("a pattern of a name that is a part of others", subscribePattern="orders")
    yield batch("a pattern that matches nothing", subscribePattern="no such .*")
    yield batch("partitions of several topics", assign={"orders": [3, 0], "orders-old": [0]})
    yield batch("an empty partition alone", assign={"orders": [2]})
    yield batch("an empty topic", subscribe="nothing")
    yield batch("names of options in another case", SUBSCRIBE="orders-old", STARTINGOFFSETS="EARLIEST", endingoffsets=" latest ")


def _contents() -> Iterator[Case]:
    yield batch("headers: none, null, empty, twice", subscribe="orders", includeHeaders="true")
    yield batch("headers that are not asked for", subscribe="orders", includeHeaders="false")
    yield batch("all codecs", subscribe="codecs")
    yield batch(
        "all codecs, from and to the middle of batches",
        subscribe="codecs",
        startingOffsets=only("codecs", 6),
        endingOffsets=only("codecs", 17),
    )
    yield batch("times of arrival", subscribe="arrived")
    yield batch("times in no order", subscribe="disordered")
    yield batch("gaps that compaction left", subscribe="compacted")
    yield batch("a compacted topic with transactions of a real broker", subscribe="compact-txn", includeHeaders="true")
    yield batch("logs that no longer begin at 0", subscribe="trimmed")
    yield batch("transactions, also aborted ones", subscribe="payments")
    yield batch("committed transactions only", subscribe="payments", **COMMITTED)
    yield batch("committed transactions of some partitions", assign={"payments": [1, 3]}, **COMMITTED)
    yield batch("committed transactions of a real broker", subscribe="compact-txn", **COMMITTED)


def _offsets() -> Iterator[Case]:
    yield batch("the defaults by name", subscribe="orders", startingOffsets="earliest", endingOffsets="latest")
    yield batch("a start for each partition", subscribe="orders", startingOffsets=orders(5, 6, 0, 0))
    yield batch("a start at the earliest of some", subscribe="orders", startingOffsets=orders(-2, 3, -2, 1))
    yield batch("an end for each partition", subscribe="orders", endingOffsets=orders(5, 0, 0, 1))
    yield batch("an end at the latest of some", subscribe="orders", endingOffsets=orders(-1, 3, -1, -1))
    yield batch("start and end", subscribe="orders", startingOffsets=orders(2, 0, 0, 0), endingOffsets=orders(9, 3, 0, 1))
    yield batch(
        "start and end the same", subscribe="orders", startingOffsets=orders(12, 3, 0, 0), endingOffsets=orders(12, 3, 0, 0)
    )
    yield batch(
        "a start in a gap, an end in a gap",
        subscribe="compacted",
        startingOffsets=only("compacted", 5),
        endingOffsets=only("compacted", 20),
    )
    yield batch(
        "nothing but a gap", subscribe="compacted", startingOffsets=only("compacted", 10), endingOffsets=only("compacted", 20)
    )
    yield batch(
        "gaps of a real broker's",
        subscribe="compact-txn",
        startingOffsets=only("compact-txn", 300),
        endingOffsets=only("compact-txn", 512),
    )
    yield batch("from a marker on", subscribe="payments", startingOffsets=only("payments", 7, 2, 2, 2))
    yield batch("up to a marker", subscribe="payments", endingOffsets=only("payments", 7, 2, 2, 2))
    yield batch(
        "nothing but a marker",
        subscribe="payments",
        startingOffsets=only("payments", 7, 2, 2, 2),
        endingOffsets=only("payments", 8, 3, 3, 3),
    )
    yield batch(
        "inside of transactions, uncommitted",
        subscribe="payments",
        startingOffsets=only("payments", 6, 1, 1, 1),
        endingOffsets=only("payments", 15, 6, 2, 2),
    )
    yield batch(
        "inside of transactions, committed",
        subscribe="payments",
        startingOffsets=only("payments", 6, 1, 1, 1),
        endingOffsets=only("payments", 15, 5, 2, 2),
        **COMMITTED,
    )
    yield batch(
        "a trimmed log from an offset that is there",
        subscribe="trimmed",
        startingOffsets=only("trimmed", 9, 10),
        endingOffsets=only("trimmed", 11, 10),
    )


def _times() -> Iterator[Case]:
    yield batch("from a record's own time", assign={"orders": [0, 1]}, startingTimestamp=at(5))
    yield batch("from between two records", assign={"orders": [0, 1]}, startingTimestamp=at(4.5))
    yield batch("from before all records", assign={"orders": [0, 1]}, startingTimestamp=at(-100))
    yield batch("from a time that some partitions have nothing after", assign={"orders": [0, 1]}, startingTimestamp=at(9))
    yield batch("the same from their end", assign={"orders": [0, 1]}, startingTimestamp=at(9), **LATEST)
    yield batch("from a time, an empty partition among them", subscribe="orders", startingTimestamp=at(0))
    yield batch("the same from the empty one's end", subscribe="orders", startingTimestamp=at(0), **LATEST)
    yield batch("up to a time", subscribe="orders", endingTimestamp=at(5))
    yield batch("up to a time after all records", subscribe="orders", endingTimestamp=at(500))
    yield batch("up to a time before all records", subscribe="orders", endingTimestamp=at(-5))
    yield batch("between two times", assign={"orders": [0, 1]}, startingTimestamp=at(2), endingTimestamp=at(5))
    yield batch("from a time on that is after the end's", assign={"orders": [0]}, startingTimestamp=at(5), endingTimestamp=at(2))
    yield batch("a time for each partition", subscribe="orders", startingOffsetsByTimestamp=times("orders", 3, 6, 0, 0), **LATEST)
    yield batch(
        "a time for each that one has nothing after", subscribe="orders-old", startingOffsetsByTimestamp=times("orders-old", 9)
    )
    yield batch("an end time for each partition", subscribe="orders", endingOffsetsByTimestamp=times("orders", 3, 6, 0, 90))
    yield batch(
        "start and end time for each partition",
        subscribe="orders",
        startingOffsetsByTimestamp=times("orders", 1, 1, 0, 0),
        endingOffsetsByTimestamp=times("orders", 3, 6, 9, 9),
        **LATEST,
    )
    yield batch("from a time in a log in no order", subscribe="disordered", startingTimestamp=at(10))
    yield batch("from a later time in a log in no order", subscribe="disordered", startingTimestamp=at(26))
    yield batch("from the latest time in a log in no order", subscribe="disordered", startingTimestamp=at(30))
    yield batch("up to a time in a log in no order", subscribe="disordered", endingTimestamp=at(13))
    yield batch("from a time of arrival", subscribe="arrived", startingTimestamp=at(5))
    yield batch("up to a time of arrival", subscribe="arrived", endingTimestamp=at(20))
    yield batch("from a time in a gap", subscribe="compacted", startingTimestamp=at(15))
    yield batch("from a time that a trimmed log no longer has", subscribe="trimmed", startingTimestamp=at(3), **LATEST)
    yield batch("from a time in transactions", assign={"payments": [0, 1]}, startingTimestamp=at(7))
    yield batch("from a time in transactions, committed", assign={"payments": [0]}, startingTimestamp=at(8), **COMMITTED)
    yield batch("from a time behind the last stable offset", assign={"payments": [1]}, startingTimestamp=at(6), **COMMITTED)
    yield batch("the same from the end", assign={"payments": [1]}, startingTimestamp=at(6), **COMMITTED, **LATEST)
    yield batch("up to a time behind the last stable offset", assign={"payments": [1]}, endingTimestamp=at(7), **COMMITTED)
    yield batch(
        "a time goes before offsets", subscribe="orders-old", startingTimestamp=at(3), startingOffsets=only("orders-old", 1)
    )
    yield batch(
        "a time goes before times by partition",
        subscribe="orders-old",
        startingTimestamp=at(3),
        startingOffsetsByTimestamp=times("orders-old", 1),
    )
    yield batch(
        "times by partition go before offsets",
        subscribe="orders-old",
        startingOffsetsByTimestamp=times("orders-old", 2),
        startingOffsets=only("orders-old", 1),
    )
    yield batch(
        "an end time goes before offsets", subscribe="orders-old", endingTimestamp=at(3), endingOffsets=only("orders-old", 1)
    )


def _splits() -> Iterator[Case]:
    yield batch("fewer tasks wanted than partitions", subscribe="orders,orders-old", minPartitions="1")
    yield batch("many tasks wanted", subscribe="orders,orders-old", minPartitions="9")
    yield batch("many tasks over gaps", subscribe="compacted,compact-txn", minPartitions="12")
    yield batch("many tasks over transactions", subscribe="payments", minPartitions="12", **COMMITTED)
    yield batch("few records to a task", subscribe="orders", maxRecordsPerPartition="2")
    yield batch("few records to a task over gaps", subscribe="compacted", maxRecordsPerPartition="3")
    yield batch("many tasks of few records", subscribe="orders", maxRecordsPerPartition="5", minPartitions="8")


def _bad_options() -> Iterator[Case]:
    yield batch("no topics said", startingOffsets="earliest")
    yield batch("topics said in two ways", subscribe="orders", assign={"orders": [0]})
    yield batch("topics and a pattern", subscribe="orders", subscribePattern="orders")
    yield batch("no topic between the commas", subscribe=" , ")
    yield batch("an empty pattern", subscribePattern="")
    yield batch("a pattern that is none", subscribePattern="(orders")
    yield batch("partitions that are no JSON", assign="orders-0")
    yield batch("partitions of the wrong type", assign={"orders": ["first"]})
    yield batch("a batch that begins at the latest", subscribe="orders", startingOffsets="latest")
    yield batch("a batch that begins at the latest of one partition", subscribe="orders", startingOffsets=orders(-1, 0, 0, 0))
    yield batch("a batch that ends at the earliest", subscribe="orders", endingOffsets="earliest")
    yield batch("a batch that ends at the earliest of one partition", subscribe="orders", endingOffsets=orders(-2, 0, 0, 0))
    yield batch("a word that is no offset", subscribe="orders", startingOffsets="somewhere")
    yield batch("offsets that are no JSON", subscribe="orders", startingOffsets='{"orders":{"0":5')
    yield batch("an offset that is a word", subscribe="orders-old", startingOffsets=only("orders-old", "first"))
    yield batch("an offset of -3", subscribe="orders-old", startingOffsets=only("orders-old", -3))
    yield batch("a partition without a start", subscribe="orders", startingOffsets=orders(0, 0, 0))
    yield batch("a start for a partition that is not read", subscribe="orders-old", startingOffsets=only("orders-old", 0, 0))
    yield batch(
        "a start for a topic that is not read",
        subscribe="orders-old",
        startingOffsets={**only("orders-old", 0), **only("codecs", 0)},
    )
    yield batch("a partition without an end", subscribe="orders", endingOffsets=orders(1, 1, 0))
    yield batch(
        "start and end for different partitions",
        subscribe="orders",
        startingOffsets=orders(0, 0, 0, 0),
        endingOffsets=orders(0, 0, 0),
    )
    yield batch(
        "an end before the start", subscribe="orders", startingOffsets=orders(5, 0, 0, 0), endingOffsets=orders(4, 0, 0, 0)
    )
    yield batch("a time that is a word", subscribe="orders", startingTimestamp="yesterday")
    yield batch("a time before 1970", subscribe="orders-old", startingTimestamp="-5", differs=NEGATIVE_TIME, instead=BAD_REQUEST)
    yield batch("an end time of -1", subscribe="orders-old", endingTimestamp="-1", differs=NEGATIVE_TIME, instead=BAD_REQUEST)
    yield batch("a partition without a time", subscribe="orders", startingOffsetsByTimestamp=times("orders", 0, 0, 0), **LATEST)
    yield batch(
        "an end time before the start time",
        subscribe="orders-old",
        startingOffsetsByTimestamp=times("orders-old", 3),
        endingOffsetsByTimestamp=times("orders-old", 2),
    )
    yield batch(
        "times in the wrong order, before all records",
        subscribe="orders-old",
        startingOffsetsByTimestamp=times("orders-old", -2),
        endingOffsetsByTimestamp=times("orders-old", -3),
        differs=TIMES_IN_ORDER,
        instead=BAD_REQUEST,
    )
    yield batch("times that are no JSON", subscribe="orders", startingOffsetsByTimestamp="5")
    yield batch(
        "a strategy that there is not", subscribe="orders", startingTimestamp=at(0), startingOffsetsByTimestampStrategy="never"
    )
    yield batch("no tasks wanted", subscribe="orders", minPartitions="0")
    yield batch("a number of tasks that is a word", subscribe="orders", minPartitions="few")
    yield batch("no records to a task", subscribe="orders", maxRecordsPerPartition="0")
    yield batch("an answer neither true nor false", subscribe="orders", failOnDataLoss="perhaps")
    yield batch("headers neither wanted nor not", subscribe="orders", includeHeaders="some")
    yield batch("an isolation that there is not", subscribe="orders", kafka__isolation__level="half_committed")
    yield batch("an option of the consumer that the source sets", subscribe="orders", kafka__key__deserializer="X")
    yield batch("where the consumer would begin", subscribe="orders", kafka__auto__offset__reset="earliest")
    yield batch(
        "limits of a stream in a batch",
        subscribe="orders-old",
        maxOffsetsPerTrigger="2",
        minOffsetsPerTrigger="1",
        maxTriggerDelay="1s",
    )
    yield batch("a misspelt option", subscribe="orders-old", startingOffset="latest", differs=UNKNOWN_OPTION, instead=BAD_REQUEST)
    yield batch(
        "a setting of Kafka's consumer",
        subscribe="orders-old",
        kafka__fetch__max__bytes="1000",
        differs=NO_BROKER,
        instead=BAD_REQUEST,
    )


def _losses() -> Iterator[Case]:
    yield batch("a topic that is not there", subscribe="orders-old,elsewhere")
    yield batch("a partition that is not there", assign={"orders-old": [0, 1]}, differs=NAMED_BUT_MISSING, instead=NOT_THERE)
    yield batch("a partition of a topic that is not there", assign={"elsewhere": [0]})
    yield batch("a start that is gone", subscribe="trimmed", startingOffsets=only("trimmed", 5, 10))
    yield batch("a start that is gone, leniently", subscribe="trimmed", startingOffsets=only("trimmed", 5, 10), **LENIENT)
    yield batch(
        "start and end that are gone",
        assign={"trimmed": [0]},
        startingOffsets=only("trimmed", 5),
        endingOffsets=only("trimmed", 7),
    )
    yield batch(
        "start and end that are gone, leniently",
        subscribe="trimmed",
        startingOffsets=only("trimmed", 5, 3),
        endingOffsets=only("trimmed", 7, 4),
        **LENIENT,
    )
    yield batch("an end that is gone", subscribe="trimmed", endingOffsets=only("trimmed", 3, 10))
    yield batch("an end that is gone, leniently", subscribe="trimmed", endingOffsets=only("trimmed", 3, 10), **LENIENT)
    yield batch("a start behind the end of the log", subscribe="orders-old", startingOffsets=only("orders-old", 9))
    yield batch(
        "a start behind the end of the log, leniently", subscribe="orders-old", startingOffsets=only("orders-old", 9), **LENIENT
    )
    yield batch(
        "start and end behind the end of the log",
        subscribe="orders-old",
        startingOffsets=only("orders-old", 9),
        endingOffsets=only("orders-old", 11),
    )
    yield batch(
        "start and end behind the end of the log, leniently",
        subscribe="orders-old",
        startingOffsets=only("orders-old", 9),
        endingOffsets=only("orders-old", 11),
        **LENIENT,
    )
    yield batch("an end behind the end of the log", subscribe="orders-old", endingOffsets=only("orders-old", 9))
    yield batch(
        "an end behind the end of the log, leniently", subscribe="orders-old", endingOffsets=only("orders-old", 9), **LENIENT
    )
    yield batch(
        "an end behind the last stable offset", assign={"payments": [1]}, endingOffsets={"payments": {"1": 7}}, **COMMITTED
    )
    yield batch(
        "an end behind the last stable offset, leniently",
        assign={"payments": [1]},
        endingOffsets={"payments": {"1": 7}},
        **COMMITTED,
        **LENIENT,
    )


FROM_START = {"startingOffsets": "earliest"}


def _streams() -> Iterator[Case]:
    yield stream("all there is, at once", subscribe="orders", **FROM_START)
    yield stream("by default from the latest", subscribe="orders")
    yield stream("from the latest by name", subscribe="orders", startingOffsets="latest", maxOffsetsPerTrigger="2")
    yield stream("an empty topic in a stream", subscribe="nothing", **FROM_START)
    yield stream("a record at a time", subscribe="orders-old", **FROM_START, maxOffsetsPerTrigger="1")
    yield stream(
        "three at a time over partitions of different lengths", subscribe="orders", **FROM_START, maxOffsetsPerTrigger="3"
    )
    yield stream(
        "seven at a time over several topics", subscribe="orders,orders-old,nothing", **FROM_START, maxOffsetsPerTrigger="7"
    )
    yield stream(
        "ten at a time of all topics of a pattern", subscribePattern="orders.*|codecs", **FROM_START, maxOffsetsPerTrigger="10"
    )
    yield stream(
        "four at a time of some partitions", assign={"orders": [0, 2], "codecs": [0]}, **FROM_START, maxOffsetsPerTrigger="4"
    )
    yield stream("more at a time than there are", subscribe="orders", **FROM_START, maxOffsetsPerTrigger="1000")
    yield stream("limits count offsets, not records", subscribe="compacted", **FROM_START, maxOffsetsPerTrigger="7")
    yield stream(
        "two limits over gaps of a real broker's", subscribe="compact-txn,compacted", **FROM_START, maxOffsetsPerTrigger="200"
    )
    yield stream("limits over transactions", subscribe="payments", **FROM_START, maxOffsetsPerTrigger="5")
    yield stream("limits over committed transactions", subscribe="payments", **FROM_START, maxOffsetsPerTrigger="5", **COMMITTED)
    yield stream("limits over logs that no longer begin at 0", subscribe="trimmed", **FROM_START, maxOffsetsPerTrigger="5")
    yield stream(
        "a start for each partition of a stream",
        subscribe="orders",
        startingOffsets=orders(5, -2, -1, -1),
        maxOffsetsPerTrigger="4",
    )
    yield stream("a stream from a time", subscribe="orders", startingTimestamp=at(4), maxOffsetsPerTrigger="4", **LATEST)
    yield stream("a stream from a time that there is nothing after", subscribe="orders", startingTimestamp=at(4))
    yield stream(
        "a stream from a time for each partition",
        subscribe="orders",
        startingOffsetsByTimestamp=times("orders", 3, 6, 0, 0),
        **LATEST,
    )
    yield stream("headers in a stream", subscribe="orders", **FROM_START, includeHeaders="true", maxOffsetsPerTrigger="12")
    yield stream("many tasks of a stream", subscribe="orders,orders-old", **FROM_START, minPartitions="9")
    yield stream("few records to a task of a stream", subscribe="orders", **FROM_START, maxRecordsPerPartition="3")
    yield stream("at least so many, which there are", subscribe="orders", **FROM_START, minOffsetsPerTrigger="5")
    yield stream("at least so many, which there are not", subscribe="orders", **FROM_START, minOffsetsPerTrigger="50")
    yield stream(
        "at least six, at most eight", subscribe="orders", **FROM_START, minOffsetsPerTrigger="6", maxOffsetsPerTrigger="8"
    )
    yield stream(
        "at least seven, at most eight",
        subscribe="orders",
        **FROM_START,
        minOffsetsPerTrigger="7",
        maxOffsetsPerTrigger="8",
        differs=NOTHING_LEFT_BEHIND,
        instead=[
            {"orders-0": "0-3", "orders-1": "0-1", "orders-3": "0"},
            {"orders-0": "4-7", "orders-1": "2-4"},
            {"orders-0": "8-11", "orders-1": "5-6"},
        ],
    )
    yield stream(
        "at least seven, at most eight, without patience",
        subscribe="orders",
        **FROM_START,
        minOffsetsPerTrigger="7",
        maxOffsetsPerTrigger="8",
        maxTriggerDelay="0s",
    )
    yield stream("started again with nothing new", start(), start(), subscribe="orders", **FROM_START, maxOffsetsPerTrigger="11")
    yield stream(
        "started again with another start, which says nothing",
        start(**FROM_START),
        start(startingOffsets="latest"),
        subscribe="orders-old",
    )
    yield stream(
        "started again with one topic more",
        start(subscribe="orders-old"),
        start(subscribe="orders-old,orders"),
        **FROM_START,
        maxOffsetsPerTrigger="4",
    )
    yield stream(
        "started again with a topic more that does not begin at 0",
        start(subscribe="orders-old"),
        start(subscribe="orders-old,trimmed"),
        **FROM_START,
    )
    yield stream(
        "the same, leniently", start(subscribe="orders-old"), start(subscribe="orders-old,trimmed"), **FROM_START, **LENIENT
    )
    yield stream(
        "started again with a topic less", start(subscribe="orders-old,codecs"), start(subscribe="orders-old"), **FROM_START
    )
    yield stream(
        "a topic less, leniently", start(subscribe="orders-old,codecs"), start(subscribe="orders-old"), **FROM_START, **LENIENT
    )
    yield stream(
        "started again where some is to be read once more",
        start(),
        start({"orders": {"0": 9, "1": 5}}),
        subscribe="orders",
        **FROM_START,
    )
    yield stream(
        "started again where records have gone", start(), start({"trimmed": {"0": 5}}), subscribe="trimmed", **FROM_START
    )
    yield stream(
        "where records have gone, leniently", start(), start({"trimmed": {"0": 5}}), subscribe="trimmed", **FROM_START, **LENIENT
    )
    yield stream(
        "started again behind the end of the log", start(), start({"orders-old": {"0": 9}}), subscribe="orders-old", **FROM_START
    )
    yield stream(
        "behind the end of the log, leniently",
        start(),
        start({"orders-old": {"0": 9}}),
        subscribe="orders-old",
        **FROM_START,
        **LENIENT,
    )
    yield stream("a stream of a start that is gone", subscribe="trimmed", startingOffsets=only("trimmed", 5, 10))
    yield stream(
        "a stream of a start that is gone, leniently", subscribe="trimmed", startingOffsets=only("trimmed", 5, 10), **LENIENT
    )
    yield stream("a stream from behind the end of the log", subscribe="orders-old", startingOffsets=only("orders-old", 9))
    yield stream("a stream with an end", subscribe="orders", endingOffsets="latest")
    yield stream(
        "a stream with an end time", subscribe="orders", endingTimestamp=at(5), differs=NO_END_IN_STREAMS, instead=BAD_REQUEST
    )
    yield stream(
        "a stream with an end time for each partition",
        subscribe="orders-old",
        endingOffsetsByTimestamp=times("orders-old", 5),
    )
    yield stream("a stream of a topic that is not there", subscribe="elsewhere", **FROM_START)
    yield stream("a stream that lacks a start for a partition", subscribe="orders", startingOffsets=orders(0, 0))
    yield stream(
        "no records at a time",
        subscribe="orders-old",
        **FROM_START,
        maxOffsetsPerTrigger="0",
        differs=NO_LIMIT_OF_ZERO,
        instead=BAD_REQUEST,
    )
    yield stream("a limit that is a word", subscribe="orders-old", **FROM_START, maxOffsetsPerTrigger="few")
    yield stream(
        "a least that is greater than the most",
        subscribe="orders-old",
        **FROM_START,
        minOffsetsPerTrigger="6",
        maxOffsetsPerTrigger="5",
    )
    yield stream(
        "a delay that is no time", subscribe="orders-old", **FROM_START, minOffsetsPerTrigger="6", maxTriggerDelay="soon"
    )


CASES: tuple[Case, ...] = (
    *_subscriptions(),
    *_contents(),
    *_offsets(),
    *_times(),
    *_splits(),
    *_bad_options(),
    *_losses(),
    *_streams(),
)
assert len({case.name for case in (EVERYTHING, *CASES)}) == len(CASES) + 1, "a name is there twice"
