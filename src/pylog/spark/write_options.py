"""The options of writing, and the schema of the rows to write, both checked when the job begins.

Names and meanings are those of Spark's Kafka connector, as far as it has them: the option `topic` counts more than the column.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from pyspark.sql.types import ArrayType, BinaryType, DataType, IntegerType, StringType, StructType, TimestampType

from pylog.config import Durability
from pylog.directory.topic_names import INTERNAL_TOPICS, check_topic_name
from pylog.errors import InvalidArgumentError
from pylog.record.compression import codec_id
from pylog.spark import values
from pylog.spark.given import GivenOptions
from pylog.topics.making import check_partition_count

_BYTES: tuple[type[DataType], ...] = (BinaryType, StringType)
_TYPES: Mapping[str, tuple[type[DataType], ...]] = {
    "value": _BYTES,
    "key": _BYTES,
    "topic": (StringType,),
    "partition": (IntegerType,),
    "timestamp": (TimestampType,),
}
MessageTimestampType = Literal["CreateTime", "LogAppendTime"]
_TIMESTAMP_TYPES: Mapping[str, MessageTimestampType] = {"createtime": "CreateTime", "logappendtime": "LogAppendTime"}


@dataclass(frozen=True, kw_only=True)
class WriteOptions:
    """The options of a job that writes; `write_options` makes them.

    Attributes:
        root: the store.
        topic: where all rows go; None: each row says so.
        create_topics: true to create missing topics.
        partitions: how many these get.
        compression: a codec's name; the topic's by default.
        durability: the level of the append, as text; the topic's or the store's by default.
        timestamp_type: `CreateTime` or `LogAppendTime`; the topic's by default.
        transactional: whether all rows are in one transaction; None for a micro-batch if the directory can have transactions, and
            not for a batch job.
        of_table: the columns of the rows say where they go (`tables.WriteTarget`).
    """

    root: str
    topic: str | None = None
    create_topics: bool = False
    partitions: int = 1
    compression: str | None = None
    durability: str | None = None
    timestamp_type: MessageTimestampType | None = None
    transactional: bool | None = None
    of_table: bool = False

    @property
    def level(self) -> Durability | None:
        """The durability asked for."""
        return None if self.durability is None else Durability.of(self.durability)


def write_options(options: Mapping[str, str]) -> WriteOptions:
    """Checks the options of a write.

    Args:
        options: names, in any case, to values.

    Raises:
        InvalidArgumentError: an option that does not exist, is not for writing, is missing, or has a bad value.

    >>> write_options({"path": "/data/shop", "TOPIC": "orders"}).topic
    'orders'
    """
    given = GivenOptions(options, "writing")
    create_topics = given.get("createTopics", values.boolean, False)
    if "partitions" in given and not create_topics:
        raise InvalidArgumentError("the option 'partitions' applies to created topics: it requires createTopics=true")
    return WriteOptions(
        root=given.required("path", _one_path),
        topic=given.get("topic", _topic, None),
        create_topics=create_topics,
        partitions=given.get("partitions", _partitions, 1),
        compression=given.get("compression", _codec, None),
        durability=given.get("durability", _level, None),
        timestamp_type=given.get("timestampType", _timestamp_type, None),
        transactional=given.get("transactional", values.boolean, None),
    )


def _one_path(name: str, value: str) -> str:
    found = values.paths(name, value)
    if len(found) > 1:
        raise InvalidArgumentError(f"{name}={value!r} names {len(found)} directories; rows are written to one")
    return found[0]


def _topic(name: str, value: str) -> str:
    found = check_topic_name(value.strip())
    if found in INTERNAL_TOPICS:
        raise InvalidArgumentError(f"{name}={found!r} is one of Kafka's internal topics, which take no rows; name another topic")
    return found


def _partitions(name: str, value: str) -> int:
    return check_partition_count(values.positive(name, value))


def _codec(name: str, value: str) -> str:  # noqa: ARG001
    codec_id(value.strip().lower())
    return value.strip().lower()


def _level(name: str, value: str) -> str:  # noqa: ARG001
    Durability.of(value.strip().lower())
    return value.strip().lower()


def _timestamp_type(name: str, value: str) -> MessageTimestampType:
    return _TIMESTAMP_TYPES[values.one_of(*_TIMESTAMP_TYPES)(name, value)]


# ---- the rows ------------------------------------------------------------------------------------------------------------


def check_rows(schema: StructType, options: WriteOptions) -> None:
    """Refuses rows that cannot be records; columns of other names than a record has are left out, as in the Kafka connector.

    Args:
        schema: the schema of the rows.
        options: the job's options.

    Raises:
        InvalidArgumentError: no `value`, no topic, or a column of a wrong type.

    >>> check_rows(StructType().add("value", "long"), WriteOptions(root="shop", topic="orders"))
    Traceback (most recent call last):
    pylog.errors.InvalidArgumentError: column value is bigint; it must be binary or string
    """
    if "value" not in schema.fieldNames():
        raise InvalidArgumentError(f"no column 'value' in {schema.simpleString()}; it has the values to write")
    if options.topic is None and "topic" not in schema.fieldNames():
        raise InvalidArgumentError("nothing says where the rows go: give the option 'topic', or a column 'topic'")
    for field in schema:
        wanted = _TYPES.get(field.name)
        if wanted is not None and not isinstance(field.dataType, wanted):
            expected = " or ".join(kind.typeName() for kind in wanted)
            raise InvalidArgumentError(f"column {field.name} is {field.dataType.simpleString()}; it must be {expected}")
        if field.name == "headers" and not _is_headers(field.dataType):
            expected = "array<struct<key:string,value:binary>>"
            raise InvalidArgumentError(f"column headers is {field.dataType.simpleString()}; it must be {expected}")


def _is_headers(given: DataType) -> bool:
    if not isinstance(given, ArrayType) or not isinstance(given.elementType, StructType):
        return False
    found = [(field.name, type(field.dataType)) for field in given.elementType]
    return found == [("key", StringType), ("value", BinaryType)]
