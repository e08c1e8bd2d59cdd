"""Mutants of the rules of transactions: pylog without one of them. `support.campaign.transaction_rules.MUTANTS` names each."""

from __future__ import annotations

from typing import Final

from support.trust.mutant import Mutant

_RULES: Final = "tests/transactions/test_rules.py::test_"
_SNAPSHOTS: Final = "tests/transactions/test_snapshots.py::test_"

TRANSACTION_RULES: Final[tuple[Mutant, ...]] = (
    Mutant(
        name="a_transaction_whose_records_are_deleted_stays_open_in_one_process",
        file="pylog/log/writing/partition_writer.py",
        text="            if self.writer is writer and _lacks_transactions(writer, before):\n",
        replacement="            if self.writer is not writer:\n",
        tests=(
            (
                "tests/transactions/test_guards.py::test_"
                "an_open_transaction_whose_records_are_all_deleted_holds_no_reader_back_in_any_process[4-True-False]"
            ),
        ),
        why="One process's committed readers stand still until it opens the store again.",
    ),
    Mutant(
        name="a_truncation_parts_archived_records_from_their_marker",
        file="pylog/log/maintenance/transaction_spans.py",
        text="        first = began.pop(producer, unknown)\n",
        replacement="        first = began.pop(producer, None)\n",
        tests=(
            (
                "tests/transactions/test_guards.py::test_"
                "a_truncation_that_would_part_archived_records_from_their_marker_is_refused_and_changes_nothing[lost]"
            ),
        ),
        why="A transaction that was ended is open again, and holds back all committed readers.",
    ),
    Mutant(
        name="a_refused_truncation_leaves_the_archive_shorter",
        file="pylog/log/maintenance/log_tiers.py",
        text="        trimmer.check_truncation(self._log.writer(), end)\n",
        replacement="",
        tests=(
            (
                "tests/transactions/test_guards.py::test_"
                "a_truncation_that_would_part_archived_records_from_their_marker_is_refused_and_changes_nothing[there]"
            ),
        ),
        why="Bad input changes the archive: it lacks segments until the next tick.",
    ),
    Mutant(
        name="a_partition_is_registered_after_its_first_batch",
        file="pylog/transactions/transaction.py",
        text="            self._incarnation.add_partitions(self._mine, partitions)\n",
        replacement="            pass\n",
        tests=(f"{_RULES}a_partition_that_comes_later_is_registered_before_its_first_batch",),
        why="A finisher does not find the partition, and leaves the transaction open there.",
    ),
    Mutant(
        name="the_data_of_a_transaction_is_not_synced",
        file="pylog/transactions/incarnation.py",
        text="batch, [rows], now_ms, compression, level)",
        replacement="batch, [rows], now_ms, compression, Durability.OS)",
        tests=(f"{_RULES}data_is_durable_before_the_decision",),
        why="A power loss takes a part of a committed transaction.",
    ),
    Mutant(
        name="a_decision_is_not_synced",
        file="pylog/transactions/transaction.py",
        text="self._incarnation.prepare_commit(self._mine, ends, self._level)",
        replacement="self._incarnation.prepare_commit(self._mine, ends, Durability.OS)",
        tests=(f"{_RULES}the_decision_is_durable_when_it_is_made",),
        why="A power loss takes a decision.",
    ),
    Mutant(
        name="a_finisher_trusts_a_decision_that_is_not_durable",
        file="pylog/transactions/coordinator.py",
        text="            self.topic.make_durable(prepared.transactional_id)\n",
        replacement="            pass\n",
        tests=(f"{_RULES}a_finisher_makes_the_decision_durable_before_it_writes_a_marker",),
        why="Readers see a transaction, and a power loss takes its decision.",
    ),
    Mutant(
        name="the_markers_of_a_transaction_are_not_synced",
        file="pylog/transactions/coordinator.py",
        text="        level = Durability.SYNC if synced else Durability.OS  #",
        replacement="        level = Durability.OS  #",
        tests=(f"{_RULES}markers_are_durable_before_the_transaction_is_noted_as_complete",),
        why="A power loss takes a marker, and the transaction is aborted with the next one of its id.",
    ),
    Mutant(
        name="a_transaction_begins_after_a_record_that_is_not_durable",
        file="pylog/transactions/coordinator.py",
        text="        if owner.is_synced and not self.topic.is_durable(transactional_id):\n",
        replacement="        if owner.is_synced and not owner:\n",
        tests=(f"{_RULES}the_record_before_a_transaction_is_durable_before_its_first_batch",),
        why="After a power loss, a broker commits the records of the next transaction, or its coordinator is stuck.",
    ),
    Mutant(
        name="a_decision_names_what_was_registered",
        file="pylog/transactions/states.py",
        text="    partitions = tuple(sorted(written))\n",
        replacement="    partitions = known.partitions\n",
        tests=("tests/transactions/test_states.py::test_a_commit_names_what_was_written_and_nothing_else",),
        why="A broker commits an orphan in a partition that the transaction has not written to.",
    ),
    Mutant(
        name="an_append_does_not_look_at_the_state",
        file="pylog/transactions/coordinator.py",
        text="            done = log.append(now_ms, list(pieces), compression, level, batch, True, check=check)\n",
        replacement="            done = log.append(now_ms, list(pieces), compression, level, batch, True)\n",
        tests=(f"{_RULES}an_append_that_a_newer_instance_overtakes_before_it_has_the_lock_is_refused",),
        why="A fenced instance appends, and its transaction stays open.",
    ),
    Mutant(
        name="an_append_looks_at_the_state_before_it_has_the_lock",
        file="pylog/transactions/coordinator.py",
        text="            done = log.append(now_ms, list(pieces), compression, level, batch, True, check=check)\n",
        replacement="            check()\n            done = log.append(now_ms, list(pieces), compression, level, batch, True)\n",
        tests=(f"{_RULES}an_append_that_a_newer_instance_overtakes_before_it_has_the_lock_is_refused",),
        why="A fenced instance appends after its check, and its transaction stays open.",
    ),
    Mutant(
        name="a_finisher_takes_no_lock_where_nothing_is_open",
        file="pylog/transactions/coordinator.py",
        text="        log.commit(MarkerRequest(self._clock.now_ms(), producer_id, choose, coordinator_epoch, level))\n",
        replacement=(
            "        if log.snapshot(committed=True).open_transactions:\n"
            "            log.commit(MarkerRequest(self._clock.now_ms(), producer_id, choose, coordinator_epoch, level))\n"
        ),
        tests=(f"{_RULES}a_newer_instance_waits_for_an_append_that_has_the_lock",),
        why="An append that has passed its check leaves a transaction open that nobody ends.",
    ),
    Mutant(
        name="a_decision_does_not_look_at_the_state",
        file="pylog/transactions/states.py",
        text='    known = _ongoing(current, mine, "commit a transaction")\n',
        replacement="    assert current is not None\n    known = current\n",
        tests=("tests/transactions/test_states.py::test_an_older_incarnation_is_fenced_in_all_that_it_does",),
        why="A fenced instance commits.",
    ),
    Mutant(
        name="an_init_passes_over_what_is_prepared",
        file="pylog/transactions/states.py",
        text="    if current is not None and not current.state.is_at_rest:\n",
        replacement="    if current is not None and current.state is TransactionState.ONGOING:\n",
        tests=("tests/transactions/test_states.py::test_an_incarnation_waits_for_the_end_of_what_is_open_or_prepared",),
        why="A committed transaction loses its markers.",
    ),
    Mutant(
        name="an_init_passes_over_what_is_open",
        file="pylog/transactions/states.py",
        text="    if current is not None and not current.state.is_at_rest:\n",
        replacement="    if current is not None and current.state.is_prepared:\n",
        tests=("tests/transactions/test_states.py::test_an_incarnation_waits_for_the_end_of_what_is_open_or_prepared",),
        why="A transaction of the older instance stays open.",
    ),
    Mutant(
        name="an_append_joins_an_orphan",
        file="pylog/transactions/coordinator.py",
        text="                if error.offset is None or not self.abort_orphan(log, mine):  #",
        replacement="                if error.offset is not None or not self.abort_orphan(log, mine):  #",
        tests=(f"{_RULES}an_append_aborts_an_orphan_of_its_own_producer_first",),
        why="An orphan keeps its id from writing to a partition.",
    ),
    Mutant(
        name="an_opening_leaves_orphans",
        file="pylog/transactions/coordinator.py",
        text="        return int(kind is markers.OpenTransactionKind.ORPHAN and self._abort_orphan(log, found))\n",
        replacement="        return 0\n",
        tests=(f"{_RULES}the_next_opening_aborts_an_orphan",),
        why="A transaction stays open that nobody ends.",
    ),
    Mutant(
        name="an_orphan_ends_with_its_own_epoch",
        file="pylog/transactions/markers.py",
        text="    return Marker(producer_id, min(epoch + 1, MAX_PRODUCER_EPOCH), False, True)\n",
        replacement="    return Marker(producer_id, epoch, False, True)\n",
        tests=("tests/transactions/test_txn_model.py::test_the_engine_writes_the_markers_of_the_model",),
        why="A broker refuses the marker.",
    ),
    Mutant(
        name="a_commit_returns_before_its_markers",
        file="pylog/transactions/transaction.py",
        text="        self._incarnation.complete(self._mine, prepared)\n",
        replacement="",
        tests=(f"{_RULES}a_commit_returns_when_its_records_can_be_read",),
        why="The caller does not see what it has committed.",
    ),
    Mutant(
        name="a_partition_is_taken_over_with_pending_offsets",
        file="pylog/consumer/positions.py",
        text="            if assigned.partition in pending:\n                continue\n",
        replacement="",
        tests=(f"{_RULES}a_group_does_not_read_a_partition_while_an_offset_of_it_is_pending",),
        why="A member reads records again that the transaction before has processed.",
    ),
    Mutant(
        name="a_snapshot_has_open_transactions",
        file="pylog/transactions/snapshots.py",
        text="        into = taken if any(_is_of(found, each, key) for each in included) else kept\n",
        replacement="        into = taken\n",
        tests=(f"{_SNAPSHOTS}open_and_aborted_transactions_stay_out_of_a_snapshot_whatever_becomes_of_them",),
        why="A snapshot has a part of a transaction that is aborted later.",
    ),
    Mutant(
        name="a_snapshot_does_not_notice_a_compaction_under_way",
        file="pylog/log/reading/queries.py",
        text="        return any(_is_replaced(cut.files[base], entry) for base, entry in found.items() if base >= first)\n",
        replacement="        return not found and bool(found)\n",
        tests=(f"{_SNAPSHOTS}a_compaction_that_has_not_noted_its_end_yet_is_noticed",),
        why="A snapshot is read without records that a compaction has deleted.",
    ),
    Mutant(
        name="a_batch_that_is_not_there_is_not_kept_out",
        file="pylog/log/writing/refitting.py",
        text="producers.epoch_of(self._producer_id) < self._epoch + 1 and not self.has_batch and super().decide(producers)",
        replacement="False",
        tests=(
            "tests/transactions/test_single_batch.py::test_a_batch_is_kept_out_from_the_moment_that_another_process_has_not_found_it",
        ),
        why="An older instance that stood still could append its batch after a newer one has ended the transaction.",
    ),
    Mutant(
        name="a_batch_that_is_there_counts_as_aborted",
        file="pylog/log/writing/refitting.py",
        text="self.has_batch = producers.has_batch(self._producer_id, self._epoch)",
        replacement="self.has_batch = False",
        tests=("tests/transactions/test_single_batch.py::test_a_dead_ones_batch_commits[the next opening-append-True-True]",),
        why="A committed transaction is called aborted, and its program writes it again.",
    ),
    Mutant(
        name="a_snapshot_overlooks_a_batch_that_is_on_its_way",
        file="pylog/transactions/snapshots.py",
        text="if any(self._was_written_meanwhile(single, seen) for single in before.singles):",
        replacement="if False:",
        tests=(
            "tests/transactions/test_single_batch.py::test_a_snapshot_has_each_batch_that_others_depend_on[after it-None-rw]",
        ),
        why="A snapshot has what another program has written after it had read the batch, and not the batch.",
    ),
    Mutant(
        name="a_transaction_with_an_id_is_a_plain_batch",
        file="pylog/transactions/lone_batch.py",
        text="        if self._incarnation.is_anonymous:",
        replacement="        if True:",
        tests=(
            "tests/transactions/test_single_batch.py::test_it_is_one_append_without_a_marker_and_its_id_is_known",
            "tests/transactions/test_single_batch.py::test_an_instance_that_stood_still_is_refused[a newer instance]",
        ),
        why="An older instance of an id writes after a newer one has taken over.",
    ),
    Mutant(
        name="threads_use_a_transaction_at_the_same_time",
        file="pylog/transactions/transaction.py",
        text="        with self._lock:\n",
        replacement="        with RLock():\n",
        tests=(
            "tests/transactions/test_interrupted.py::test_a_record_that_another_thread_adds_during_a_flush_is_not_dropped",
            "tests/transactions/test_interrupted.py::test_of_a_commit_and_an_abort_at_the_same_time_the_first_one_counts",
        ),
        why="A record that another thread adds during a flush is dropped without an error, and the commit succeeds.",
    ),
)
