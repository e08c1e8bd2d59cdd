"""The columns of the source, in Spark's types and in the Arrow types that Spark takes batches of.

Names, order and types are the Kafka connector's. A batch must have exactly the declared Arrow schema, down to the name of a
list's items, or Spark refuses it.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from pylog.errors import InvalidArgumentError

_HEADER = StructType([StructField("key", StringType()), StructField("value", BinaryType())])
_SPARK_TYPES: dict[str, DataType] = {
    "key": BinaryType(),
    "value": BinaryType(),
    "topic": StringType(),
    "partition": IntegerType(),
    "offset": LongType(),
    "timestamp": TimestampType(),
    "timestampType": IntegerType(),
    "headers": ArrayType(_HEADER),
}
ARROW_HEADER = pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())])
_ARROW_TYPES = {
    "key": pa.binary(),
    "value": pa.binary(),
    "topic": pa.string(),
    "partition": pa.int32(),
    "offset": pa.int64(),
    "timestamp": pa.timestamp("us", "UTC"),
    "timestampType": pa.int32(),
    "headers": pa.list_(pa.field("element", ARROW_HEADER)),
}


def spark_schema(columns: Sequence[str]) -> StructType:
    """Returns the source's schema with these columns.

    Args:
        columns: names of columns, as in the Kafka connector.

    >>> spark_schema(["value", "offset"]).simpleString()
    'struct<value:binary,offset:bigint>'
    """
    return StructType([StructField(name, _SPARK_TYPES[name]) for name in columns])


def arrow_schema(columns: Sequence[str]) -> pa.Schema:
    """Returns the Arrow schema of the batches that Spark takes for `spark_schema(columns)`.

    Args:
        columns: names of columns, as in the Kafka connector.

    >>> arrow_schema(["timestamp"]).field("timestamp").type
    TimestampType(timestamp[us, tz=UTC])
    """
    return pa.schema([pa.field(name, _ARROW_TYPES[name]) for name in columns])


def check_schema(schema: StructType, columns: Sequence[str]) -> None:
    """Refuses a schema of the user's own: the source has a fixed one, of which the option `columns` takes a part.

    Args:
        schema: the schema that Spark asks for.
        columns: the columns that the options ask for.

    Raises:
        InvalidArgumentError: they differ.
    """
    own = spark_schema(columns)
    if [_comparable(field) for field in schema] != [_comparable(field) for field in own]:
        raise InvalidArgumentError(
            f"the source has the schema {own.simpleString()} and takes no other ({schema.simpleString()}); "
            "the option `columns` chooses columns and their order"
        )


def _comparable(field: StructField) -> tuple[str, DataType, bool]:
    """Returns the facts of a column that must be equal; a comment may differ."""
    return field.name, field.dataType, field.nullable
