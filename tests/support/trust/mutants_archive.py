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
)
