"""What must hold in the model of transactions, whoever opens the directory next, and whatever a power loss has left."""

from __future__ import annotations

from typing import NamedTuple

from support.campaign.transaction_logs import (
    BOTH,
    Data,
    DataLog,
    States,
    broker_opens,
    committed,
    cuts,
    offset_of,
    pylog_opens,
    told,
)


class Past(NamedTuple):
    """What was promised: answered commits, the positions of readers, and what readers saw: partition, offset, value."""

    acked: tuple[int, ...]
    positions: tuple[int, ...]
    seen: tuple[tuple[int, int, int], ...]


class Judge:
    """Asks how a state would end.

    Args:
        rules: those that hold.
        is_single: whether each transaction has one partition only, and no offsets.
    """

    def __init__(self, rules: frozenset[str], is_single: bool) -> None:
        self._rules = rules
        self._is_single = is_single
        self._known: dict[object, str | None] = {}

    def violation(self, states: States, data: Data, past: Past, same_life: bool) -> tuple[str, str] | None:
        """What goes wrong if all die now, or if the power fails now; as it happens, and what follows."""
        bare = tuple(log._replace(holder=-1) for log in data)
        bad = self._ends(states, bare, past, same_life)
        if bad:
            return "all die", bad
        for t, d in cuts(states, bare):
            bad = self._ends(t, d, past, False)
            if bad:
                return "POWER LOSS keeps " + told(t, d, lambda log: log.entries), bad
        return None

    def _ends(self, states: States, data: Data, past: Past, same_life: bool) -> str | None:
        key = states, data, past, same_life
        if key not in self._known:
            self._known[key] = self._ended(states, data, past, same_life)
        return self._known[key]

    def _ended(self, states: States, data: Data, past: Past, same_life: bool) -> str | None:
        """`same_life`: the power has never failed, so that even a broker leaves nothing open."""
        t, d = pylog_opens(states, data, self._rules)
        bad = self._judged(d, past) or _hangs(d)
        if bad:
            return bad + " (pylog opens)"
        bad = _cannot_go_on(t, d, past)
        if bad:
            return bad
        for is_new in (True, False) if "new epoch each" in self._rules else (False,):
            d, stuck = broker_opens(states, data, is_new)
            bad = "a marker is refused: the coordinator never completes it" if stuck else self._judged(d, past)
            bad = bad or (_hangs(d) if same_life else None)
            if bad:
                return bad + (" (a broker opens)" if is_new else " (an older broker opens)")
        return None

    def _judged(self, data: Data, past: Past) -> str | None:
        outputs = committed(data[0].entries)
        offsets = outputs if self._is_single else committed(data[1].entries)
        lost = [value for value in past.acked if value not in outputs or value not in offsets]
        if lost:
            return f"answered commit of {lost[0]} is lost"
        if outputs != list(range(len(outputs))):
            return f"outputs {outputs} are committed: not each once"
        if not self._is_single and offset_of(data[1].entries) != len(outputs):
            return f"{len(outputs)} outputs are committed, and the offset is {offset_of(data[1].entries)}: torn"
        for partition, offset, value in past.seen:
            if not _has(data[partition], offset, value):
                return f"a reader saw {value} at {offset} of D{partition}, and it is gone"
        return None


def _has(log: DataLog, offset: int, value: int) -> bool:
    return offset < len(log.entries) and log.entries[offset][3] == value and log.all.outcomes.get(offset) == "C"


def _hangs(data: Data) -> str | None:
    return next((f"a transaction stays open in D{number} for ever" for number in BOTH if data[number].all.open), None)


def _cannot_go_on(states: States, data: Data, past: Past) -> str | None:
    for number, log in enumerate(data):
        if past.positions[number] > len(log.entries):
            end = len(log.entries)
            return f"a reader is at {past.positions[number]} of D{number}, which ends at {end}: it will skip what comes"
        for producer, epoch in log.all.epochs.items():
            last = states[producer].last
            if epoch > (last[1] + 1 if last else 0):
                return f"the next epoch is older than what D{number} has: nobody can write any more"
    return None
