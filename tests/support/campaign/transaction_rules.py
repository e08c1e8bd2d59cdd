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

# By name: the mutant of pylog without the rule, in `support.trust.mutants_transactions`.
MUTANTS: Final[dict[str, str]] = {
    "register first": "a_partition_is_registered_after_its_first_batch",
    "data synced": "the_data_of_a_transaction_is_not_synced",
    "prepare synced": "a_decision_is_not_synced",
    "decision synced": "a_finisher_trusts_a_decision_that_is_not_durable",
    "markers synced": "the_markers_of_a_transaction_are_not_synced",
    "predecessor synced": "a_transaction_begins_after_a_record_that_is_not_durable",
    "new epoch each": "markers_have_the_epoch_of_the_data",
    "older only": "a_marker_ends_a_later_transaction",
    "own only": "an_orphan_is_committed",
    "names what it wrote": "a_decision_names_what_was_registered",
    "look at T": "an_append_does_not_look_at_the_state",
    "look under the lock": "an_append_looks_at_the_state_before_it_has_the_lock",
    "finisher locks": "a_finisher_takes_no_lock_where_nothing_is_open",
    "commit looks": "a_decision_does_not_look_at_the_state",
    "begin looks": "a_transaction_begins_in_another",
    "init finishes": "an_init_passes_over_what_is_prepared",
    "init aborts": "an_init_passes_over_what_is_open",
    "still prepared": "a_completed_transaction_is_completed_again",
    "orphans first": "an_append_joins_an_orphan",
    "orphans swept": "an_opening_leaves_orphans",
    "orphan's next epoch": "an_orphan_ends_with_its_own_epoch",
    "markers before answer": "a_commit_returns_before_its_markers",
    "durable readers": "an_abort_marker_is_not_synced",
    "owner under the lock": "a_transaction_commits_for_a_member_that_has_lost_a_partition",
    "pending waits": "a_partition_is_taken_over_with_pending_offsets",
    "single: finisher locks": "a_finisher_takes_no_lock_where_nothing_is_open",
    "snapshot looks again": "a_snapshot_does_not_notice_a_commit_between_its_partitions",
    "snapshot by outcome": "a_snapshot_has_open_transactions",
}
