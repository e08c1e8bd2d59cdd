"""Where the records of a command have gone, partition by partition."""

from __future__ import annotations

from typing import Any, Final

from pylog.cli.output import Column, print_json, print_line, print_table

_COLUMNS: Final = (
    Column("partition", "number"),
    Column("records", "number"),
    Column("first_offset", "number"),
    Column("last_offset", "number"),
)


class Tally:
    """How many records were appended to each partition of a topic, and at which offsets.

    >>> tally = Tally("orders")
    >>> tally.add(0, range(5, 7))
    >>> str(tally)
    '2 records before that were appended, at the offsets 5 to 6 of partition 0'
    """

    def __init__(self, topic: str) -> None:
        self.topic = topic
        self._found: dict[int, tuple[int, int, int]] = {}

    def add(self, partition: int, offsets: range) -> None:
        """Notes an append."""
        count, first, _ = self._found.get(partition, (0, offsets.start, 0))
        self._found[partition] = (count + len(offsets), first, offsets.stop - 1)

    @property
    def count(self) -> int:
        """How many records."""
        return sum(count for count, _, _ in self._found.values())

    def rows(self) -> list[dict[str, Any]]:
        """A row a partition."""
        names = [column.name for column in _COLUMNS]
        return [dict(zip(names, (number, *found), strict=True)) for number, found in sorted(self._found.items())]

    def __str__(self) -> str:
        """What there is to know when it ended too early."""
        if not self._found:
            return "nothing was appended"
        places = [f"{row['first_offset']} to {row['last_offset']} of partition {row['partition']}" for row in self.rows()]
        return f"{self.count} records before that were appended, at the offsets {', '.join(places)}"

    def report(self, *, json: bool) -> None:
        """Prints it."""
        if json:
            print_json({"topic": self.topic, "records": self.count, "partitions": self.rows()})
            return
        print_line(f"Appended {self.count} record{'s' * (self.count != 1)} to {self.topic}.")
        if self.count:
            print_table(_COLUMNS, self.rows())
