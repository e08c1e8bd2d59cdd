"""The rules of writing transactions that the model can leave out, and its scenarios (transactions 4, 15)."""

from __future__ import annotations

from typing import Final, NamedTuple


class Rule(NamedTuple):
    """A rule of the protocol.

    Attributes:
        text: what it asks for.
        scenario: in which a violation follows when the rule is left out.
        states: how many states the search visits before it finds that, about.
    """

    text: str
    scenario: str
    states: int


class Scope(NamedTuple):
    """How often something may happen in a scenario, over all processes."""

    tx: int
    init: int
    kill: int = 0
    power: int = 0
    abort: int = 0
    forget: int = 0
    other: int = 0
    snap: int = 0
    empty: int = 0


RULES: Final[dict[str, Rule]] = {
    "register first": Rule("T names a partition before the transaction's first batch is in it", "same", 160),
    "data synced": Rule("data is durable in all partitions before Prepare is written", "same", 1_018),
    "prepare synced": Rule("Prepare is durable before the answer", "same", 2_071),
    "decision synced": Rule("whoever writes a marker makes the Prepare durable first", "same", 3_851),
    "markers synced": Rule("markers are durable in all partitions before Complete is written", "same", 6_518),
    "predecessor synced": Rule("the record before Ongoing is durable before the first batch", "same", 91),
    "new epoch each": Rule("each transaction has an epoch of its own; its markers carry the next one", "same", 31_415),
    "older only": Rule("a marker never ends an open transaction of a later epoch", "same", 22_392),
    "own only": Rule("an open transaction of an earlier epoch gets ABORT with its own epoch + 1", "abort", 34_911),
    "names what it wrote": Rule("Prepare names the partitions with batches of the transaction, no others", "empty", 3_397),
    "look at T": Rule("an append looks at T, not only at the partition's producer state", "same", 1_044),
    "look under the lock": Rule("an append looks at T while it holds the partition's lock", "same", 1_067),
    "finisher locks": Rule("a finisher takes each partition's lock, also where nothing is open", "same", 1_067),
    "commit looks": Rule("Prepare is written only if T still has Ongoing with this epoch", "same", 3_861),
    "begin looks": Rule("a transaction begins only if T still has Complete or Empty with this epoch", "same", 1_402),
    "init finishes": Rule("a new epoch waits until what is prepared is finished", "same", 1_526),
    "init aborts": Rule("a new epoch aborts what is ongoing, with markers", "same", 465),
    "still prepared": Rule("Complete is written only over the Prepare that was finished", "same", 10_624),
    "orphans first": Rule("an append aborts an older open transaction of its own producer first", "same", 28_549),
    "orphans swept": Rule("opening aborts open transactions that T does not have", "same", 695),
    "orphan's next epoch": Rule("the ABORT of an orphan has the orphan's epoch + 1, not T's", "orphan", 59_402),
    "markers before answer": Rule("commit returns when the markers can be read", "same", 2_877),
    "durable readers": Rule("readers of synced topics do not go past the durable end", "same", 706),
    "owner under the lock": Rule("offsets are appended only while their member owns the partition", "move", 1_880),
    "pending waits": Rule("a member ends transactions with pending offsets before it reads the offset", "move", 1_208),
    "single: finisher locks": Rule("a finisher locks where data and marker of one partition are one write", "single", 1_111),
    "snapshot looks again": Rule("a snapshot is taken between two equal looks at T", "snapshot", 9_372),
    "snapshot by outcome": Rule(
        "a snapshot leaves out open transactions, and does not end at stable offsets", "snapshot", 67_024
    ),
}

# By name: the producer of each of two processes, and the scope.
SCENARIOS: Final[dict[str, tuple[tuple[int, int], Scope]]] = {
    "same": ((0, 0), Scope(3, 3, kill=1, power=1)),
    "others": ((0, 0), Scope(2, 2, kill=1, power=1, other=1)),
    "abort": ((0, 0), Scope(2, 3, kill=1, power=1, abort=1)),
    "empty": ((0, 0), Scope(2, 3, power=1, empty=1)),
    "forget": ((0, 0), Scope(2, 3, forget=1)),
    "group": ((0, 1), Scope(2, 3, kill=1, power=1)),
    "move": ((0, 1), Scope(3, 2)),
    "orphan": ((0, 1), Scope(2, 3, power=1)),
    "snapshot": ((0, 1), Scope(2, 2, snap=1)),
    "single": ((0, 0), Scope(3, 3, kill=1, power=1)),
}
