"""Mutants of the administration of transactions (hanging ones, owners, lost markers), and of the layer for confluent-kafka."""

from __future__ import annotations

from typing import Final

from support.trust.mutant import Mutant

_TESTS: Final = "tests/transactions/test_admin.py::"
_REPAIRS: Final = "tests/tools/test_lost_markers_crash.py::test_the_power_may_go_at_any_moment_of_a_repair_that_loses_markers"

ADMINISTRATION: Final[tuple[Mutant, ...]] = (
    Mutant(
        name="a_transaction_of_an_unnamed_partition_is_known",
        file="pylog/transactions/admin.py",
        text="    return judge(state, identity, partition) is OpenTransactionKind.KNOWN\n",
        replacement="    return judge(state, identity, partition) is not OpenTransactionKind.HANGING\n",
        tests=(f"{_TESTS}test_a_transaction_hangs_if_its_id_is_in_another_one_or_does_not_name_the_partition",),
        why="A hanging transaction whose id goes on is never found.",
    ),
    Mutant(
        name="a_known_transaction_is_ended_as_a_hanging_one",
        file="pylog/transactions/admin.py",
        text="            for each in given:\n                self._check_hanging(each)\n",
        replacement="",
        tests=(f"{_TESTS}test_a_transaction_that_an_id_has_open_is_never_ended_as_a_hanging_one",),
        why="Half of a transaction is aborted, and its id commits the other half.",
    ),
    Mutant(
        name="a_reader_takes_every_owner_for_alive",
        file="pylog/transactions/owners.py",
        text="    return fs.lock_owner(path, byte, 1) is not None\n",
        replacement="    return fs.lock_owner(path) is not None\n",
        tests=(f"{_TESTS}test_settle_aborts_the_transaction_of_a_process_that_was_killed",),
        why="An administrator waits for a process that has ended.",
    ),
    Mutant(
        name="an_exclusive_stores_bytes_count_as_owners",
        file="pylog/transactions/owners.py",
        text="    if fs.lock_owner(path, EVERYTHING, 1) is not None:\n        return None\n",
        replacement="",
        tests=(f"{_TESTS}test_the_owners_of_an_exclusive_store_are_unknown_to_a_reader",),
        why="The owner of every transaction seems alive.",
    ),
    Mutant(
        name="verify_lists_what_a_living_owner_completes",
        file="pylog/transactions/checking.py",
        text='    if state.owner in (None, "alive") or (',
        replacement="    if state.owner is None or (",
        tests=(
            "tests/cli/test_doctor_transactions.py::test_verify_lists_hanging_and_undecided_transactions_and_calls_them_no_damage",
        ),
        why="A verification next to a commit reports it.",
    ),
    Mutant(
        name="a_repair_parts_a_marker_from_its_segment",
        file="pylog/tools/plan.py",
        text="        plan = self._with_places(plan, [marker.offset for marker in ends if marker.offset < self._end])\n",
        replacement="",
        tests=(f"{_REPAIRS}[truncate 4]", f"{_REPAIRS}[truncate 8]"),
        why="The power is lost in a repair, and the next opening aborts a committed transaction whose marker was removed.",
    ),
    Mutant(
        name="a_repair_writes_the_oldest_segment_first",
        file="pylog/tools/repair.py",
        text="        for segment in sorted(plan.segments, reverse=True):",
        replacement="        for segment in sorted(plan.segments):",
        tests=(f"{_REPAIRS}[truncate 4]",),
        why="The power is lost in a repair, and the next one finds no damage and leaves what was to be removed.",
    ),
    Mutant(
        name="a_damaged_offset_is_a_markers_place",
        file="pylog/tools/lost_markers.py",
        text="        event = event._replace(offset=_offset_within(damage, following, event.offset))\n",
        replacement="",
        tests=("tests/tools/test_lost_markers.py::test_a_marker_whose_offset_is_damaged_is_replaced_in_its_place",),
        why="A lost marker is written after the producer's next one, which then decides its transaction.",
    ),
    Mutant(
        name="a_later_epoch_shows_a_hidden_marker",
        file="pylog/tools/lost_markers.py",
        text=" and event.epoch > last.epoch + event.ends:",
        replacement=" and event.epoch < last.epoch:",
        tests=("tests/tools/test_lost_markers.py::test_each_of_two_damaged_markers_in_a_row_gets_a_marker_in_its_place",),
        why="Two damaged markers in a row: the producer's next marker decides a transaction, and no repair says so.",
    ),
    Mutant(
        name="a_confluent_consumer_creates_missing_topics",
        file="pylog/compat/confluent/consumer.py",
        text='given.take("allow.auto.create.topics", False)',
        replacement='given.take("allow.auto.create.topics", False) or True',
        tests=(
            "tests/compat/test_confluent_assignment.py::test_a_missing_topic_is_created_by_a_consumer_only_if_that_is_allowed",
        ),
        why="A consumer with confluent-kafka's names creates a topic whose name is misspelt, and waits in it.",
    ),
    Mutant(
        name="error_cb_is_not_called",
        file="pylog/compat/confluent/producer.py",
        text="                self._events.failed(error)\n",
        replacement="                pass\n",
        tests=("tests/compat/test_confluent_events.py::test_a_store_that_fails_is_told_to_error_cb_once_until_it_works_again",),
        why="A program with confluent-kafka's names is not called when its disk is full.",
    ),
    Mutant(
        name="alter_configs_resets_retention",
        file="pylog/compat/confluent/admin_topics.py",
        text="given = _KEPT | resource.set_config_dict",
        replacement="given = resource.set_config_dict",
        tests=("tests/compat/test_confluent_admin.py::test_options_are_changed_one_by_one_or_replaced_all",),
        why="A change of another option deletes all records that are older than a week.",
    ),
)
