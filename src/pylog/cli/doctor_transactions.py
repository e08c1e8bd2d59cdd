"""What `pylog doctor` says of transactions: which one holds the last stable offset of a partition, and how it ends."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from pylog.errors import PylogError
from pylog.text import counted
from pylog.times import rounded_duration_text

if TYPE_CHECKING:
    from pylog.transactions.described import OpenTransactionDescription

_NAMED: Final = 20  # partitions; the others are counted
_OWNERS: Final = {
    "alive": "its process lives",
    "dead": "its process has ended",
    "broker": "of a Kafka broker's client",
    "unknown": "the locks do not tell whether its process lives",
}


class Held(NamedTuple):
    """A partition whose last stable offset is held by a transaction.

    Attributes:
        what: which transaction holds it, and for how long.
        hangs: true if only an administrator ends it.
        advice: the command that ends it.
    """

    what: str
    hangs: bool
    advice: str


def held_partitions(path: str) -> tuple[list[Held], list[PylogError]]:
    """Returns the partitions whose last stable offset is held, and the errors of those that cannot be read.

    Args:
        path: the log directory, as it was given.
    """
    from pylog.cli.stores import reading

    held: list[Held] = []
    errors: list[PylogError] = []
    with reading(path) as opened:
        for topic in opened.topics().values():
            for number in topic.partition_ids:
                try:
                    found = opened.transactions.find_open(topic.name, number)
                except PylogError as error:
                    errors.append(error)
                else:
                    held += [_held(found, path)] if found else []
    return held[:_NAMED] + _others(held[_NAMED:], path), errors


def _held(found: list[OpenTransactionDescription], path: str) -> Held:
    first, others = found[0], len(found) - 1
    topic, number = first.topic_partition
    whose = f"transactional id '{first.transactional_id}' ({first.state})" if first.transactional_id else "no transactional id"
    lives = "it hangs" if first.is_hanging or first.owner is None else _OWNERS[first.owner]
    since = rounded_duration_text(first.duration_ms)
    facts = f"{whose}, producer {first.producer_id}, epoch {first.producer_epoch}, for {since}; {lives}"
    more = f"; {others} more after it" if others else ""
    what = f"{topic}-{number}: readers with read_committed stop at offset {first.start_offset}: {facts}{more}"
    return Held(what, first.is_hanging, _command(first, path))


def _command(found: OpenTransactionDescription, path: str) -> str:
    topic, number = found.topic_partition
    if found.is_hanging:
        return f"pylog transactions abort {path} --topic {topic} --partition {number} --start-offset {found.start_offset}"
    if found.owner == "dead" or (found.state or "").startswith("Prepare"):
        return f"pylog transactions settle {path}"
    return f"if its program does not end it: pylog transactions abort {path} {found.transactional_id}"


def _others(held: list[Held], path: str) -> list[Held]:
    if not held:
        return []
    hang = any(each.hangs for each in held)
    return [
        Held(
            f"{counted(len(held), 'more partition')}", hang, f"pylog transactions list {path}; pylog transactions hanging {path}"
        )
    ]
