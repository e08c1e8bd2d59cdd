"""Writers and readers of one topic, each a process that can be killed and started again; and what is known of them afterwards."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from support.campaign.actors import Reader, Scene, Writer, first_value
from support.campaign.history import Append, Operation, Outcome, Read, check
from support.campaign.processes import CampaignError, Child, Journal

_ANOMALIES_SHOWN: Final = 20


class Crew:
    """The processes of a scene.

    Args:
        scene: where they work.
        rng: decides what they do.
        writers: how many; they are the first of the crew.
        journals: one for each member.
    """

    def __init__(self, scene: Scene, rng: random.Random, writers: int, journals: list[Journal]) -> None:
        self._scene = scene
        self._rng = rng
        self._journals = journals
        self._next = [first_value(writer) for writer in range(writers)]
        self._started: Counter[int] = Counter()

    def __len__(self) -> int:
        return len(self._journals)

    def start(self, member: int) -> Child:
        """Starts a member of the crew. The one before it of that number is dead and was buried."""
        rng, journal = random.Random(self._rng.random()), self._journals[member]
        is_writer = member < len(self._next)
        actor = Writer(journal, self._next[member], rng) if is_writer else Reader(journal, rng)
        self._started[member] += 1
        name = f"{'writer' if is_writer else 'reader'} {member}.{self._started[member]}"
        return Child(name, lambda ready: actor.work(self._scene, ready), journal)

    def bury(self, member: int, child: Child) -> list[Operation]:
        """Waits for the end of a member, and returns what it did."""
        child.wait()
        operations = child.operations()
        last = max((each.values[-1] for each in operations if isinstance(each, Append)), default=None)
        if last is not None:
            self._next[member] = last + 1
        return operations


def judge(history: list[Operation], directory: Path) -> None:
    """Checks a history; one that is not right is written down beside the files.

    Raises:
        CampaignError: with the first anomalies.
    """
    anomalies = check(history)
    if anomalies:
        path = directory / "history.txt"
        path.write_text("\n".join(map(repr, history)))
        raise CampaignError("\n".join([f"see {path}", *map(str, anomalies[:_ANOMALIES_SHOWN])]))


def summary(operations: Iterable[Operation], known: set[int]) -> Counter[str]:
    """How often what happened, to a crew whose records are `known` in the end."""
    counts: Counter[str] = Counter()
    for operation in operations:
        if isinstance(operation, Read):
            counts["read"] += len(operation.records)
        elif operation.outcome is Outcome.OK:
            counts["acknowledged"] += 1
        else:
            counts["unknown_kept" if operation.values[0] in known else "unknown_dropped"] += 1
    return counts
