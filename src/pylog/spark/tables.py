"""SQL tables: how the options of `CREATE TABLE … USING pylog OPTIONS (…)` reach the queries that read the table.

Spark asks a Python data source for its schema when such a table is created, and then passes all properties of the table.
When the table is read it gives back nothing but that schema. So the schema carries the options, in the metadata of its first
column, which Spark's catalog keeps. Frames that are loaded without a table carry nothing.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import NamedTuple

from pyspark.sql.types import StructField, StructType

from pylog.errors import InvalidArgumentError
from pylog.spark.options import ListedTopics, SourceOptions, any_options

_METADATA = "pylog.options"
_CLAUSE = "option."  # the catalog's prefix for names of the OPTIONS clause


def table_options(properties: Mapping[str, str]) -> dict[str, str] | None:
    """Returns the options among a new table's properties; None if the mapping has plain options instead.

    Args:
        properties: what Spark gave the data source.

    >>> table_options({"provider": "pylog", "owner": "me", "path": "file:/shop", "option.subscribe": "a", "subscribe": "a"})
    {'subscribe': 'a', 'path': 'file:/shop'}
    >>> table_options({"path": "/shop", "subscribe": "a"})
    """
    if "provider" not in properties:
        return None
    options = {name.removeprefix(_CLAUSE): value for name, value in properties.items() if name.startswith(_CLAUSE)}
    if "path" in properties:  # Spark has taken it out of the clause: it is the table's location
        options["path"] = properties["path"]
    return options


def carrying(schema: StructType, options: Mapping[str, str]) -> StructType:
    """Returns the schema with the options in it.

    Args:
        schema: the table's schema.
        options: the table's options.
    """
    first, *others = schema.fields
    metadata = {_METADATA: json.dumps(dict(options))}
    return StructType([StructField(first.name, first.dataType, first.nullable, metadata), *others])


def carried(schema: StructType) -> dict[str, str]:
    """Returns the options in a schema; none if it is not a table's.

    Args:
        schema: what Spark reads with.

    >>> from pylog.spark.schema import spark_schema
    >>> carried(carrying(spark_schema(["value"]), {"subscribe": "a"}))
    {'subscribe': 'a'}
    """
    found = schema.fields[0].metadata.get(_METADATA) if schema.fields else None
    return dict(json.loads(found)) if found is not None else {}


class WriteTarget(NamedTuple):
    """Where a write goes.

    Attributes:
        options: the write's options.
        of_table: they are those of the table that the columns of the rows carry, which is the one to insert into unless the rows
            were read from a table: then it may be that one.
    """

    options: dict[str, str]
    of_table: bool


def write_from(schema: StructType, options: Mapping[str, str]) -> WriteTarget:
    """Returns the options of a write: the given ones, and in `INSERT INTO` a table those of the table.

    Spark does not say which of the two a write is. `INSERT` has no path, and rows with just the columns of the table; a frame
    that was created from a table has its options too, but may be written elsewhere.

    Args:
        schema: the schema of the rows; inserted rows have the metadata of the table's columns.
        options: that Spark gives for this write.

    Raises:
        InvalidArgumentError: the frame belongs to a table, and no option names the store to write to; or the table reads a
            broker's remote tier.

    >>> from pylog.spark.schema import spark_schema
    >>> table = carrying(spark_schema(["key", "value"]), {"path": "/shop", "subscribe": "orders", "columns": "key,value"})
    >>> write_from(table, {})
    WriteTarget(options={'path': '/shop', 'topic': 'orders'}, of_table=True)
    >>> write_from(table, {"path": "/archive"})
    WriteTarget(options={'path': '/archive'}, of_table=False)
    """
    given, of_table = dict(options), carried(schema)
    if not of_table or "path" in {name.lower() for name in given}:
        return WriteTarget(given, of_table=False)
    table = any_options(of_table)
    if table.scan.access.tier is not None:
        raise InvalidArgumentError("the table reads a broker's remote tier, which cannot be written; write to another path")
    if tuple(schema.fieldNames()) != table.scan.columns:
        raise InvalidArgumentError(
            "the option 'path' is required: the rows come from a table, and it is not taken for the place where they go"
        )
    return WriteTarget(_insert_options(table) | given, of_table=True)


def _insert_options(table: SourceOptions) -> dict[str, str]:
    """Returns a table's options that apply to `INSERT INTO`: its store and, if it has only one topic, that topic."""
    where = {"path": ",".join(table.paths)}
    match table.subscription:
        case ListedTopics((topic,)):
            return where | {"topic": topic}
    return where
