"""Facts about a directory, as `pylog doctor` reports them: its file system, room and locks, and errors of background work."""

from __future__ import annotations

from collections.abc import Iterator

from pylog.background_errors import read_background_errors
from pylog.directory.locks import KAFKA_LOCK, PYLOG_LOCK
from pylog.errors import PylogError
from pylog.fs import join
from pylog.fs.system_info import holders_of, mount_of, room_at
from pylog.log_manager import LogManager
from pylog.text import size_text
from pylog.times import time_text
from pylog.ui.observation import Observation
from pylog.urls import is_url


def facts_of(manager: LogManager, seen: Observation) -> list[tuple[str, str]]:
    """Returns the facts, each with its name. Cost: the open files of all processes, if something has the directory open."""
    return list(_facts(manager, seen))


def _facts(manager: LogManager, seen: Observation) -> Iterator[tuple[str, str]]:
    path = manager.path
    yield "Path", path
    if is_url(path):
        return
    mount = mount_of(path)
    if mount is not None:
        yield "File system", f"{mount.type} at {mount.point}{', read only' * mount.read_only}"
    room = room_at(path)
    if room is not None:
        yield "Room", f"{size_text(room[0])} free of {size_text(room[1])}"
    yield "Open for writing", _holders(manager, seen.holder)
    yield from (("Archive", said) for said in _archive(manager))
    try:
        noted = read_background_errors(manager.fs, path)
    except PylogError as error:
        yield "Background work", str(error)
    else:
        if noted is not None:
            when = f"the last at {time_text(noted.time_ms)} in process {noted.process}"
            yield "Background work", f"{noted.count} or more errors, {when}: {noted.message}"


def _archive(manager: LogManager) -> list[str]:
    """Returns sentences about deletions of topics that are not finished in the archive."""
    try:
        noted = manager.tiers.notes()
    except PylogError as error:
        return [str(error)]
    return [] if noted is None else [f"{found}; {advice}" for found, advice in noted.facts()]


def _holders(manager: LogManager, holder: str) -> str:
    """Returns what has the directory open. The system names only the owner of a broker's lock, so the open files are searched."""
    if not holder or manager.writable:
        return f"in {holder}" if holder else "by no process"
    file = KAFKA_LOCK if holder == "a broker" else PYLOG_LOCK
    names = ", ".join(f"{each.name} (process {each.pid})" for each in holders_of(join(manager.path, file)))
    return f"by {holder}: {names}" if names else f"by {holder} of another user"
