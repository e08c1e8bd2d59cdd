"""Mutants of archives in an object store."""

from __future__ import annotations

from typing import Final

from support.trust.mutant import Mutant

ARCHIVE: Final[tuple[Mutant, ...]] = (
    Mutant(
        name="a_damaged_segment_is_archived",
        file="pylog/archive/uploader.py",
        text="        if walked.damage is not None:\n            return walked.damage\n",
        replacement="",
        tests=("tests/objects/test_archive.py::test_a_damaged_segment_is_reported_and_not_archived",),
        why="Damage becomes part of the backup, and its sound copy may be deleted.",
    ),
    Mutant(
        name="the_url_of_a_directory_has_no_escapes",
        file="pylog/urls.py",
        text='    return _FILE + quote(path, errors="surrogateescape")\n',
        replacement="    return _FILE + path\n",
        tests=("tests/objects/test_archive_places.py::test_an_archive_in_a_directory_of_any_name_is_found_again['a#b']",),
        why="After the next opening, records that are only in the archive cannot be read.",
    ),
    Mutant(
        name="an_archive_takes_any_store",
        file="pylog/archive/archiving.py",
        text="newest.document.store_id != self._settings.store_id",
        replacement="False",
        tests=("tests/objects/test_archive.py::test_a_prefix_has_one_store",),
        why="Two stores share one archive, and a restore mixes them.",
    ),
    Mutant(
        name="a_restore_does_not_compare_checksums",
        file="pylog/restoring.py",
        text="if checksum != segment.log_crc32c:",
        replacement="if False:",
        tests=("tests/objects/test_archive.py::test_a_damaged_object_is_named_and_never_restored",),
        why="Damaged bytes of an archive become a store.",
    ),
    Mutant(
        name="an_unfinished_restore_is_opened",
        file="pylog/archive/settings.py",
        text="    if is_unfinished:",
        replacement="    if False:",
        tests=("tests/objects/test_archive.py::test_a_damaged_object_is_named_and_never_restored",),
        why="A directory with a part of the records passes for a whole one, and is written to.",
    ),
    Mutant(
        name="a_suspended_upload_is_named_after_a_sweep",
        file="pylog/archive/tiering.py",
        text="    if manifest.swept > since:\n",
        replacement="    if False:\n",
        tests=("tests/objects/test_sweep.py::test_a_sweep_beside_tiering_never_takes_what_a_tick_is_about_to_name",),
        why="A manifest names a segment whose objects a sweep has deleted, and the local one may go next.",
    ),
    Mutant(
        name="a_swept_version_is_created_again",
        file="pylog/objects/versions.py",
        text="        return self._follows(version)\n",
        replacement="        return True\n",
        tests=(
            "tests/objects/test_sweep.py::test_a_writer_that_paused_until_its_version_was_swept_writes_nothing_anybody_reads",
        ),
        why="An old manifest becomes the newest: what was archived since is no longer there.",
    ),
    Mutant(
        name="a_sweep_deletes_versions_at_once",
        file="pylog/archive/sweeping.py",
        text="        for each in found:\n            self._delete([each], VERSION)\n",
        replacement="        self._delete(found[::-1], VERSION)\n",
        tests=("tests/objects/test_sweep.py::test_old_versions_go_oldest_first_and_the_newest_stays_however_old",),
        why="A sweep that dies leaves a gap, and readers that come from an old hint stop before it.",
    ),
    Mutant(
        name="a_sweep_trusts_its_own_clock",
        file="pylog/archive/sweeping.py",
        text="    return min(clock.now_ms(), found.modified_ms)\n",
        replacement="    return clock.now_ms()\n",
        tests=("tests/objects/test_sweep.py::test_a_clock_that_is_ahead_deletes_nothing_early",),
        why="A clock that is a month ahead deletes what is being uploaded.",
    ),
    Mutant(
        name="a_sweep_reads_the_manifest_before_the_damaged_one",
        file="pylog/archive/sweeping.py",
        text="        if not _is_whole(newest):\n",
        replacement="        if False:\n",
        tests=("tests/objects/test_sweep.py::test_the_objects_of_a_damaged_manifest_stay",),
        why="Segments that only a damaged manifest names are deleted.",
    ),
)
