"""The names of staging files, and the removal of abandoned ones.

They are plain files in the store's root: a broker ignores unknown files there, and fails on unknown directories (interop 1.2). A
name holds the job and the process that the job dies with, so that the next process that opens the store finds the files of a dead
job. Files that an intent still needs are kept (`intents`).
"""

from __future__ import annotations

import re
import secrets
from typing import Final, NamedTuple

from pylog import limits, trace
from pylog.errors import PylogError, StorageFailedError
from pylog.fs import NAMES_ONLY, FileSystem, ProcessName, join
from pylog.staging.intents import needed_names

PREFIX: Final = "pylog-staging"
SUFFIX: Final = ".batches"
_NAME: Final = re.compile(rf"{PREFIX}\.([0-9a-f-]+)\.([0-9]+)\.([0-9a-f-]+)\.[0-9a-f]+\{SUFFIX}")


class StagingName(NamedTuple):
    """The parts of a staging file's name.

    Attributes:
        job: the id of a batch job or a streaming query.
        batch: the number of the query's micro-batch; 0 of a batch job.
        owner: the process that the job dies with.
    """

    job: str
    batch: int
    owner: ProcessName

    def new(self) -> str:
        """Returns a new, unique file name of this job."""
        return f"{PREFIX}.{self.job}.{self.batch}.{self.owner}.{secrets.token_hex(8)}{SUFFIX}"

    @classmethod
    def parse(cls, name: str) -> StagingName | None:
        """Parses a file name; None if it is not a staging file's.

        >>> StagingName.parse(StagingName("ab-1", 7, ProcessName("a", "b", 0, 1, 2)).new()).batch
        7
        """
        found = _NAME.fullmatch(name)
        owner = None if found is None else ProcessName.parse(found[3])
        return None if found is None or owner is None else cls(found[1], int(found[2]), owner)


def staged_names(fs: FileSystem, root: str) -> dict[str, StagingName]:
    """Returns the staging files of a store, by file name. Cost: one listing of the root."""
    parsed = {entry.name: StagingName.parse(entry.name) for entry in fs.list(root) if entry.name.endswith(SUFFIX)}
    return {name: staged for name, staged in parsed.items() if staged is not None}


def remove_staged(fs: FileSystem, root: str, job: str, up_to: int = 0) -> None:
    """Removes a job's files, of a query's those of its batches so far. What cannot be removed stays: it is never read again.

    Args:
        fs, root: the store's.
        job: whose.
        up_to: the last batch that is done.
    """
    for name, staged in staged_names(fs, root).items():
        if staged.job == job and staged.batch <= up_to:
            _remove(fs, join(root, name))


def sweep(fs: FileSystem, root: str, now_ms: int) -> list[str]:
    """Removes files of dead jobs, and files too old to be of a living one that cannot be seen from here.

    Args:
        fs, root: the store's.
        now_ms: the wall clock, in milliseconds.

    Returns:
        The names of the files that went.

    Cost: a listing of the root, and another one with times if it has such files.
    """
    if not any(entry.name.endswith(SUFFIX) for entry in fs.list(root, sizes=NAMES_ONLY)):
        return []
    entries = {entry.name: entry for entry in fs.list(root, sizes=SUFFIX) if entry.name.endswith(SUFFIX)}
    given_up = []
    for name, entry in entries.items():
        staged = StagingName.parse(name)
        if staged is not None:
            alive = staged.owner.is_alive(fs.boot_id())
            if alive is False or (alive is None and now_ms - entry.mtime_ms > limits.STAGING_UNSEEN_MS):
                given_up.append(name)
    needed = _needed(fs, root) if given_up else set()  # after the look at the owners: the dead decide nothing more
    swept = [] if needed is None else [name for name in given_up if name not in needed]
    for name in swept:
        _remove(fs, join(root, name))
    if swept:
        trace.later(
            trace.STAGING_REMOVED, path=root, files=swept, reason="their job is dead, and no decided micro-batch needs them"
        )
    return swept


def _needed(fs: FileSystem, root: str) -> set[str] | None:
    try:
        return needed_names(fs, root)
    except PylogError as error:  # an intent that cannot be read may need any of them
        trace.later(trace.STAGING_KEPT, path=root, error=str(error))
        return None


def _remove(fs: FileSystem, path: str) -> None:
    try:
        fs.remove(path)
    except StorageFailedError:
        return  # another process was faster, or the next sweep is luckier
