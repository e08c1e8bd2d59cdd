"""Mutants of tiering: each takes out one step of the order in which records move to the archive, or are deleted from it."""

from __future__ import annotations

from typing import Final

from support.trust.mutant import Mutant

_TESTS: Final = "tests/objects/test_tiering.py::"

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
        text="            newest, _ = self._tier.newest()\n            if newest is None:\n                return 0\n",
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
)
