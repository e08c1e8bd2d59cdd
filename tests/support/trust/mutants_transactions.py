"""Mutants of transactions: states of ids, markers, the fold of `__transaction_state`, owners."""

from __future__ import annotations

from typing import Final

from support.trust.mutant import Mutant

TRANSACTIONS: Final[tuple[Mutant, ...]] = (
    Mutant(
        name="a_completed_transaction_is_completed_again",
        file="pylog/transactions/states.py",
        text="    if current != prepared:\n        return None\n",
        replacement="    if current is None:\n        return None\n",
        tests=("tests/transactions/test_states.py::test_complete_is_written_over_the_very_prepare_that_was_finished",),
        why="A finisher that was stopped ends the next transaction of the id.",
    ),
    Mutant(
        name="a_transaction_begins_in_another",
        file="pylog/transactions/states.py",
        text="    if not known.state.is_at_rest or known.producer_epoch > LAST_DATA_EPOCH:\n        raise _wrong",
        replacement="    if False:\n        raise _wrong",
        tests=("tests/transactions/test_states.py::test_no_transaction_begins_twice_and_none_ends_that_has_not_begun",),
        why="Two transactions have one epoch.",
    ),
    Mutant(
        name="an_older_incarnation_goes_on",
        file="pylog/transactions/states.py",
        text="    if current.identity == mine:\n        return current",
        replacement="    if current.producer_id == mine.producer_id:\n        return current",
        tests=("tests/transactions/test_states.py::test_an_older_incarnation_is_fenced_in_all_that_it_does",),
        why="Two incarnations of an id write at the same time.",
    ),
    Mutant(
        name="markers_have_the_epoch_of_the_data",
        file="pylog/transactions/states.py",
        text="        producer_epoch=min(known.producer_epoch + 1, MAX_PRODUCER_EPOCH),\n",
        replacement="        producer_epoch=known.producer_epoch,\n",
        tests=("tests/transactions/test_states.py::test_a_commit_names_what_was_written_and_nothing_else",),
        why="A finisher that was stopped commits half of the next transaction.",
    ),
    Mutant(
        name="a_marker_ends_a_later_transaction",
        file="pylog/transactions/markers.py",
        text="    if open_epoch is None or open_epoch > own.producer_epoch:",
        replacement="    if open_epoch is None:",
        tests=(
            "tests/transactions/test_states.py::test_a_marker_ends_its_own_transaction_and_aborts_an_orphan_and_leaves_a_later_one_alone",
        ),
        why="A late ABORT aborts half of a prepared transaction.",
    ),
    Mutant(
        name="an_orphan_is_committed",
        file="pylog/transactions/markers.py",
        text="    if open_epoch < own.producer_epoch:\n",
        replacement="    if False:\n",
        tests=(
            "tests/transactions/test_states.py::test_a_marker_ends_its_own_transaction_and_aborts_an_orphan_and_leaves_a_later_one_alone",
        ),
        why="Data that a power loss has left is committed with a later transaction.",
    ),
    Mutant(
        name="an_odd_state_is_the_one_before",
        file="pylog/transactions/image.py",
        text="        return StateEntry(offset, value, NO_PRODUCER_ID, -1, str(error))\n",
        replacement="        return StateEntry(offset, value, NO_PRODUCER_ID, 0, None)\n",
        tests=(
            "tests/transactions/test_image.py::test_an_id_whose_last_value_cannot_be_read_is_refused_and_never_has_the_state_before",
        ),
        why="An id whose last record cannot be read goes on as if nothing were prepared.",
    ),
    Mutant(
        name="any_locked_byte_is_an_owner",
        file="pylog/transactions/owners.py",
        text="        if byte not in OWNERS and byte not in ANONYMOUS_OWNERS:\n",
        replacement="        if False:\n",
        tests=("tests/transactions/test_owners.py::test_a_byte_that_is_locked_for_another_reason_is_no_living_owner",),
        why="A damaged record keeps its transaction open as long as any store is open.",
    ),
    Mutant(
        name="a_suspended_observer_aborts",
        file="pylog/transactions/deadlines.py",
        text="max(0.0, min(now - self._looked, self._longest_gap))",
        replacement="now - self._looked",
        tests=("tests/transactions/test_deadlines.py::test_an_observer_that_was_suspended_or_whose_clock_jumps_aborts_nothing",),
        why="A machine that was suspended aborts the transactions of all living processes.",
    ),
    Mutant(
        name="a_block_whose_commit_fails_stays_open",
        file="pylog/transactions/transaction.py",
        text="            self._abort_after(failed)\n            raise\n",
        replacement="            raise\n",
        tests=("tests/transactions/test_interrupted.py::test_a_block_whose_commit_fails_aborts_and_the_id_can_be_used_again",),
        why="The id of a block whose commit fails cannot be used again, and its records hold readers up.",
    ),
    Mutant(
        name="an_interrupted_commit_cannot_be_aborted",
        file="pylog/transactions/transaction.py",
        text='        outcome = self.outcome\n        if outcome == "aborted":\n',
        replacement='        outcome = self._outcome\n        if outcome == "aborted":\n',
        tests=(
            "tests/transactions/test_interrupted.py::test_an_interrupted_commit_leaves_an_outcome_that_can_be_asked_for_and_no_id_that_is_stuck",
        ),
        why="An interrupt in a commit leaves a transaction that can be neither committed nor aborted.",
    ),
    Mutant(
        name="an_abort_that_is_too_late_says_aborted",
        file="pylog/transactions/transaction.py",
        text='        except InvalidTransactionStateError:  # it is decided otherwise\n            self._outcome = "unknown"\n',
        replacement="        except InvalidTransactionStateError:  # it is decided otherwise\n",
        tests=(
            "tests/transactions/test_interrupted.py::test_an_abort_that_comes_too_late_does_not_call_a_committed_transaction_aborted",
        ),
        why="A committed transaction is called aborted, and the program writes its records again.",
    ),
    Mutant(
        name="numbers_are_taken_twice",
        file="pylog/transactions/incarnation.py",
        text=" and self._last == mine:\n",
        replacement=":\n",
        tests=(
            "tests/transactions/test_interrupted.py::test_threads_that_hand_an_id_over_at_the_decision_never_begin_with_numbers_that_are_used_up",
        ),
        why="A thread begins a transaction with the numbers of one that another thread has committed.",
    ),
    Mutant(
        name="the_next_transaction_is_overdue",
        file="pylog/transactions/coordinator.py",
        text="        overdue = deadlines.opened_at(current) in self._overdue\n",
        replacement="        overdue = current.transactional_id in {each.transactional_id for each in self._overdue}\n",
        tests=(
            "tests/transactions/test_deadlines.py::test_the_time_that_a_transaction_has_used_up_never_aborts_the_next_one_of_its_id",
        ),
        why="A transaction that has just begun is aborted for the time of the one before.",
    ),
    Mutant(
        name="a_marker_needs_the_options_leave",
        file="pylog/log/writing/refitting.py",
        text="    if isinstance(request.producer, MarkerBatch):  # a transaction must end, whatever the options are\n",
        replacement="    if False:\n",
        tests=(
            "tests/transactions/test_transactions.py::test_a_transaction_ends_also_where_the_options_accept_no_batch_any_more[commit]",
        ),
        why="A committed transaction is seen by no reader as long as the topic's largest batch is smaller than a marker.",
    ),
    Mutant(
        name="a_log_is_held_up_by_damaged_states",
        file="pylog/transactions/manager.py",
        text="        except PylogError as error:\n            trace.line(trace.TRANSACTIONS_LEFT,",
        replacement="        except PylogError as error:\n            raise\n            trace.line(trace.TRANSACTIONS_LEFT,",
        tests=("tests/transactions/test_left_behind.py::test_a_log_can_be_opened_while_the_states_of_transactions_are_damaged",),
        why="One damaged record of an id keeps all partitions with open transactions from being opened.",
    ),
    Mutant(
        name="what_is_unreadable_is_aborted",
        file="pylog/transactions/topic.py",
        text="        if unreadable:\n",
        replacement="        if False:\n",
        tests=(
            "tests/transactions/test_left_behind.py::test_an_open_transaction_is_never_aborted_while_the_state_of_an_id_cannot_be_read",
        ),
        why="A transaction that was committed is aborted, because a later version wrote the last record of its id.",
    ),
    Mutant(
        name="an_orphan_is_tried_once",
        file="pylog/transactions/manager.py",
        text="        self._unswept.add(log.partition)\n",
        replacement="",
        tests=(
            "tests/transactions/test_left_behind.py::test_what_could_not_be_finished_when_a_log_was_opened_is_finished_by_the_next_tick",
        ),
        why="An orphan that a full disk left open holds readers up until the store is opened again.",
    ),
    Mutant(
        name="a_transaction_commits_for_a_member_that_has_lost_a_partition",
        file="pylog/offsets/pending.py",
        text="self._manager.members.check_commit(view, self.group, self._partitions)\n",
        replacement="pass\n",
        tests=("tests/producer/test_transactions.py::test_a_member_commits_only_for_its_own_partitions_and_its_current_epoch",),
        why="Two members of a group process the same records, and both commit them with their results.",
    ),
    Mutant(
        name="a_transaction_commits_for_a_topic_that_was_created_again",
        file="pylog/offsets/pending.py",
        text="check=items.check, producer=batch",
        replacement="producer=batch",
        tests=("tests/producer/test_transactions.py::test_a_topic_that_is_created_again_does_not_get_the_offset_of_the_old_one",),
        why="A group skips the first records of a topic that has the name of a deleted one.",
    ),
    Mutant(
        name="waiting_for_a_record_of_a_transaction_does_not_write_it",
        file="pylog/producer/waiting.py",
        text="            self.before_waiting()\n",
        replacement="            pass\n",
        tests=("tests/producer/test_transactions.py::test_waiting_for_a_record_of_an_open_transaction_writes_it",),
        why="A program that waits for a record before the commit waits forever.",
    ),
    Mutant(
        name="a_closed_producer_leaves_its_transaction_open",
        file="pylog/producer/core.py",
        text="                self.transactions.end()\n",
        replacement="                pass\n",
        tests=("tests/producer/test_transactions.py::test_closing_aborts_what_is_open",),
        why="Readers of committed records wait at the transaction of a closed producer until its timeout.",
    ),
    Mutant(
        name="a_block_leaves_a_transaction_open_whose_commit_has_failed",
        file="pylog/transactions/transaction.py",
        text='            if self.outcome == "open":\n',
        replacement="            if False:\n",
        tests=("tests/producer/test_transactions.py::test_a_block_whose_commit_fails_aborts_so_that_the_id_can_be_used_again",),
        why="The transactional id cannot be used again, and readers wait at the open transaction.",
    ),
)
