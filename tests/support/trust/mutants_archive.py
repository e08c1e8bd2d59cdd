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
        name="an_archive_takes_any_store",
        file="pylog/archive/archiving.py",
        text="newest.document.store_id != self._settings.store_id",
        replacement="False",
        tests=("tests/objects/test_archive.py::test_a_prefix_has_one_store",),
        why="Two stores share one archive, and a restore mixes them.",
    ),
    Mutant(
        name="a_copy_continues_an_archive_that_has_other_records",
        file="pylog/archive/archiving.py",
        text="            self._check_continues(newest.document)\n",
        replacement="            pass\n",
        tests=("tests/objects/test_archive.py::test_an_old_copy_does_not_shorten_the_archive",),
        why="An old copy of a directory retires what the original has archived since.",
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
        text="if fs.exists(join(root, RESTORING)):",
        replacement="if False:",
        tests=("tests/objects/test_archive.py::test_a_damaged_object_is_named_and_never_restored",),
        why="A directory with a part of the records passes for a whole one, and is written to.",
    ),
    Mutant(
        name="a_changed_log_is_committed_as_it_was",
        file="pylog/archive/archiving.py",
        text="version != before.version and not self._still(work, before, contents):",
        replacement="version != before.version and False:",
        tests=(
            "tests/objects/test_archive.py::test_a_change_of_the_log_during_an_upload_is_archived_as_it_is_afterwards[truncate]",
        ),
        why="Records that were truncated during the upload are in the archive.",
    ),
)
