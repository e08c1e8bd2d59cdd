"""Counts the records that a command appended, by partition."""

from __future__ import annotations

from typing import Any, Final

from pylog.cli.output import Column, print_json, print_line, print_table
from pylog.text import counted

_COLUMNS: Final = (
    Column("partition", "number"),
    Column("records", "number"),
    Column("first_offset", "number"),
    Column("last_offset", "number"),
)


class Tally:
    """The numbers and offsets of records appended to each partition of a topic.

    >>> tally = Tally("orders")
    >>> tally.add(0, range(5, 7))
    >>> str(tally)
    'appended before: 2 records, at offsets 5 to 6 of partition 0'
    """

    def __init__(self, topic: str) -> None:
        self.topic = topic
        self._found: dict[int, tuple[int, int, int]] = {}

    def add(self, partition: int, offsets: range) -> None:
        """Adds an append."""
        count, first, _ = self._found.get(partition, (0, offsets.start, 0))
        self._found[partition] = (count + len(offsets), first, offsets.stop - 1)

    @property
    def count(self) -> int:
        """The number of records."""
        return sum(count for count, _, _ in self._found.values())

    def rows(self) -> list[dict[str, Any]]:
        """Returns one row per partition."""
        names = [column.name for column in _COLUMNS]
        return [dict(zip(names, (number, *found), strict=True)) for number, found in sorted(self._found.items())]

    def __str__(self) -> str:
        """Describes the records appended before a failure."""
        if not self._found:
            return "nothing was appended"
        ranges = [f"{row['first_offset']} to {row['last_offset']} of partition {row['partition']}" for row in self.rows()]
        return f"appended before: {counted(self.count, 'record')}, at offsets {', '.join(ranges)}"

    def report(self, *, json: bool) -> None:
        """Prints the counts."""
        if json:
            print_json({"topic": self.topic, "records": self.count, "partitions": self.rows()})
            return
        print_line(f"Appended {counted(self.count, 'record')} to {self.topic}.")
        if self.count:
            print_table(_COLUMNS, self.rows())
