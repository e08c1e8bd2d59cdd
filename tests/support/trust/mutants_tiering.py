"""Mutants of tiering: each takes out one step of the order in which records move to the archive, or are deleted from it."""

from __future__ import annotations

from typing import Final

from support.trust.mutant import Mutant

_TESTS: Final = "tests/objects/test_tiering.py::"
_MOVED: Final = "tests/objects/test_moved_to_a_tier.py::"
_RAISED: Final = _MOVED + "test_a_log_start_that_a_broker_raises_in_the_tier_is_that_of_the_next_call"
_DAMAGED: Final = "tests/objects/test_damaged_manifest.py::"
_NAMED: Final = _DAMAGED + "test_records_that_only_a_damaged_manifest_names_stay"
_LATE: Final = _DAMAGED + "test_a_manifest_that_a_store_lists_and_does_not_find_is_no_empty_partition"
_EPOCHS: Final = "tests/objects/test_tier_epochs.py::"

TIERING: Final[tuple[Mutant, ...]] = (
    Mutant(
        name="a_local_segment_is_deleted_if_its_size_is_archived",
        file="pylog/archive/tiering.py",
        text="        if mine is not None and known_digest(mine) not in (None, segment.digest):",
        replacement="        if False:",
        tests=("tests/objects/test_tiered_copies.py::test_a_copy_beside_its_original_loses_no_record[sc]",),
        why="A copy of a directory loses acknowledged records if its original has archived others of the same size.",
    ),
    Mutant(
        name="a_local_segment_is_deleted_without_a_check_of_its_object",
        file="pylog/archive/tiering.py",
        text="            if found is None or found.size != segment.size:\n",
        replacement="            if False:\n",
        tests=(_TESTS + "test_a_local_segment_stays_if_its_object_is_missing_or_short",),
        why="A segment leaves the disk although its object is not there.",
    ),
    Mutant(
        name="the_copy_of_the_manifest_decides_what_leaves_the_disk",
        file="pylog/archive/tiering.py",
        text="            newest, _ = self._tier.owned()\n            if newest is None:\n                return 0\n",
        replacement="            newest = manifest\n",
        tests=(_TESTS + "test_a_local_segment_stays_if_the_newest_manifest_does_not_name_it",),
        why="A segment leaves the disk that no manifest in the archive names.",
    ),
    Mutant(
        name="open_transactions_are_archived",
        file="pylog/log/reading/both_tiers.py",
        text="    limit, local = min(state.stable_offset, state.durable_offset), state.local or state\n",
        replacement="    limit, local = state.durable_offset, state.local or state\n",
        tests=(_TESTS + "test_an_open_transaction_keeps_its_segment_out_of_the_archive",),
        why="A segment with an open transaction is archived.",
    ),
    Mutant(
        name="delete_records_leaves_the_archive_as_it_is",
        file="pylog/archive/tiers.py",
        text="            if found is not None and found.start_offset < before:\n",
        replacement="            if False:\n",
        tests=(_TESTS + "test_delete_records_changes_nothing_if_the_archive_cannot_be_reached",),
        why="Deleted records stay in the archive.",
    ),
    Mutant(
        name="truncation_leaves_the_archive_as_it_is",
        file="pylog/archive/tiers.py",
        text="            if found is not None and found.end_offset > end:\n",
        replacement="            if False:\n",
        tests=(_TESTS + "test_truncation_takes_what_it_deletes_out_of_the_archive_first",),
        why="Truncated records come back from the archive.",
    ),
    Mutant(
        name="the_header_forgets_the_log_start_of_the_archive",
        file="pylog/log/writing/readying.py",
        text="        log_start_offset=state.whole_start,\n",
        replacement="        log_start_offset=state.start_offset,\n",
        tests=(_TESTS + "test_an_append_after_reopening_keeps_the_log_start_of_the_archive",),
        why="After an append the log begins with its first local segment.",
    ),
    Mutant(
        name="retention_counts_local_bytes_only",
        file="pylog/log/maintenance/log_tiers.py",
        text="planned(self._source, self._log.snapshot(committed=True, wait=True), now_ms",
        replacement="planned(self._source, self.local(), now_ms",
        tests=(_TESTS + "test_retention_counts_both_tiers",),
        why="Archived segments are never deleted by retention.",
    ),
    Mutant(
        name="a_segment_that_a_broker_moved_is_not_looked_for_again",
        file="pylog/objects/remote_files.py",
        text="        if found is None and self._has_moved(*parts):\n",
        replacement="        if False:\n",
        tests=(_MOVED + "test_a_segment_that_vanishes_between_the_look_and_its_opening_is_read_in_the_tier",),
        why="A read fails because a broker moves the segment to its tier meanwhile.",
    ),
    Mutant(
        name="a_missing_object_changes_nothing",
        file="pylog/objects/remote_files.py",
        text="            self._is_missing()\n",
        replacement="            pass\n",
        tests=("tests/objects/test_reading_by_url.py::test_a_log_whose_first_objects_are_deleted_begins_after_them",),
        why="A store that is open by a URL never learns that retention has deleted objects.",
    ),
    Mutant(
        name="remote_segments_are_looked_up_once",
        file="pylog/objects/remote_files.py",
        text="known[:2] != (local_start, log_start)",
        replacement="known[0] != local_start",
        tests=(_RAISED + "[before it deletes-before its checkpoint]",),
        why="An open store shows remote segments that the broker has deleted.",
    ),
    Mutant(
        name="an_open_log_keeps_the_log_start_of_a_broker",
        file="pylog/log/reading/follower.py",
        text="        return self.loaded.slot is None and self._source.log_start_line != self.loaded.recorded_start\n",
        replacement="        return False\n",
        tests=(
            "tests/log/test_offset_checkpoints.py::test_an_open_log_follows_a_start_that_a_broker_has_raised_within_a_segment",
        ),
        why="An open reader goes on to serve records that a broker has deleted.",
    ),
    Mutant(
        name="a_checkpoint_that_the_batches_contradict_leaves_segments_out",
        file="pylog/objects/tier_batches.py",
        text="        if written != column[LEADER_EPOCH] and",
        replacement="        if False and",
        tests=(
            _EPOCHS
            + "test_a_checkpoint_that_the_batches_contradict_hides_no_records[a later epoch from the start on-last segment]",
        ),
        why="Readers of a broker's tier get a shorter log, and no error.",
    ),
    Mutant(
        name="the_first_segment_of_a_tier_is_left_out_by_its_manifest_alone",
        file="pylog/objects/tier_files.py",
        text="        segments = _of_log(self._layout, found, lineage)\n",
        replacement="        segments = [each for each in found if on_lineage(each, lineage, limits.INT64_MAX)]\n",
        tests=(_EPOCHS + "test_the_first_segment_of_a_tier_with_an_earlier_epoch_than_its_batches_is_read",),
        why="Readers of a broker's tier get a log that begins later, and no error.",
    ),
    Mutant(
        name="a_manifest_by_which_a_log_ends_before_its_last_batch_is_believed",
        file="pylog/objects/tier_files.py",
        text="    if end > last.end_offset:\n",
        replacement="    if False:\n",
        tests=(
            _EPOCHS
            + "test_a_manifest_whose_offsets_or_epochs_cannot_be_is_an_error_and_no_shorter_log[ending before its last batch]",
        ),
        why="The last records of a broker's tier are not read, and no error says so.",
    ),
    Mutant(
        name="wrong_leader_epochs_are_no_finding_beside_a_gap",
        file="pylog/log/checking/log_watch.py",
        text="[*self._findings, *epochs])\n        gaps",
        replacement="self._findings)\n        gaps",
        tests=(_EPOCHS + "test_verify_names_a_brokers_checkpoint_that_contradicts_the_local_batches[other epoch]",),
        why="A verification says that sound objects are missing, and not that the checkpoint is wrong.",
    ),
    Mutant(
        name="a_damaged_manifest_makes_the_one_before_it_count",
        file="pylog/archive/tiers.py",
        text="        found = with_copy(self.versions().newest(), self.copy(), ",
        replacement="        found = with_copy(self.versions().newest(), None, ",
        tests=(
            _NAMED + "[tick-for one call]",
            _NAMED + "[delete_records-for ever]",
        ),
        why="The next manifest forgets segments that are no longer on the disk, and a sweep deletes them.",
    ),
    Mutant(
        name="an_archive_run_believes_the_manifest_before_a_damaged_one",
        file="pylog/archive/claiming.py",
        text="    return found if tier is None else with_copy(",
        replacement="    return found if True else with_copy(",
        tests=(_NAMED + "[archive-for ever]",),
        why="A run builds on a manifest that does not name all segments.",
    ),
    Mutant(
        name="a_manifest_that_is_listed_and_not_found_is_none",
        file="pylog/objects/versions.py",
        text="                if version == taken:  # a sweep",
        replacement="                if False:  # a sweep",
        tests=(_LATE,),
        why="A restore beside a store that is not consistent yet has no records of a partition, and says nothing.",
    ),
)
