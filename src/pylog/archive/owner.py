"""Which directory an archive belongs to: the writer of its newest manifests. Every change of an archive is checked by it.

A copy of a directory is another writer, and so is a directory that was moved to another file system, or restored. The archive may
have the only copy of records of the directory that it belongs to.
"""

from __future__ import annotations

from datetime import UTC, datetime

from pylog.errors import ArchiveFencedError
from pylog.objects.manifest import Manifest, StoreManifest


def check_owner(known: Manifest | StoreManifest | None, writer: str, url: str, path: str) -> None:
    """Refuses to change an archive that another directory of the store has written last.

    Args:
        known: the newest version of a manifest, read now; None if there is none.
        writer: this directory's id.
        url: the archive's, for the message.
        path: this directory's, for the message.

    Raises:
        ArchiveFencedError: another directory has written it.
    """
    if known is None or known.writer == writer:
        return
    at = datetime.fromtimestamp(known.written_ms / 1000, UTC).isoformat(" ", "seconds")
    message = (
        f"{url} belongs to another directory of this store, which wrote to it at {at}; nothing was changed. If that directory is "
        "no longer used, take the archive over: store.archive(take_over=True), or pylog archive --take-over. If "
        f"{path} is a copy, give it an archive of its own: archive it to another URL with include_active=True, and restore that "
        "with hollow=True"
    )
    raise ArchiveFencedError(message, path=path)
