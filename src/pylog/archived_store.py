"""Archives of a store in an object store: the method of `Store` for them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from pylog.log.checking.verification import Progress
from pylog.log_manager import LogManager

if TYPE_CHECKING:  # opening a store loads no archive
    from pylog.archive.report import ArchiveReport


class ArchivedStore:
    """The part of a `Store` that archives it."""

    _manager: LogManager

    def archive(
        self,
        url: str | None = None,
        *,
        topics: Iterable[str] | None = None,
        include_active: bool = False,
        verify_uploads: bool = False,
        take_over: bool = False,
        rate_limit: float | None = None,
        progress: Progress | None = None,
        **access: Any,
    ) -> ArchiveReport:
        """Uploads to an object store what an archive lacks: sealed segments, committed offsets, the topics' options.

        Each call uploads only what is new. A segment is archived if it is sealed, durable, sound, and no transaction is open in
        it. A crash leaves the archive as it was, or with more segments; the next call continues. `pylog.restore` makes a
        directory from an archive.

        An archive belongs to one directory. A moved or restored directory can take it over if it has all that the archive has. If
        topics are tiered, that needs `take_over`.

        Args:
            url: `s3://bucket/prefix`, `gs://bucket/prefix`, `az://container/prefix`, `file:///directory`, or the path of a
                directory. By default the URL of the first call, which the store keeps, without credentials.
            topics: names of the topics to archive; by default all.
            include_active: true to seal the active segments first, so that all records are archived.
            verify_uploads: true to read each object again and compare it.
            take_over: true to take over the archive of a directory that is no longer used. That one can change it no more.
            rate_limit: the largest average rate, in bytes a second; None for no limit.
            progress: called after each segment with (bytes done, bytes in total, path). No lock is held.
            access: how to reach a bucket: `region`, `account`, `endpoint`, `anonymous`, `allow_http`, `timeout_seconds`, and
                `credentials`, a function that returns them. Without it they come from the environment, as for the provider's
                own tools. For S3 also `sse`, `sse_kms_key_id` and `sse_bucket_key`: how it encrypts new objects.

        Returns:
            An `ArchiveReport`: what was uploaded, what is not archived yet, and damage for which a segment was left out.

        Raises:
            InvalidArgumentError: no URL is known, or an argument is wrong.
            ArchiveFencedError: the archive belongs to another directory of this store. Nothing was changed.
            IllegalStateError: the archive belongs to another store, or a copy of this one has continued it.
            ObjectStoreError: a request failed; segments that were committed before stay archived.
            ReadOnlyError: the store is open for reading.

        Cost: reads each new segment twice, and sends it once; three requests a segment, and a few for each partition.

        >>> import pylog, tempfile
        >>> with pylog.open(tempfile.mkdtemp()) as store:
        ...     _ = store.create_topic("orders")
        ...     _ = store.log("orders").append(b"paid")
        ...     store.archive(tempfile.mkdtemp(), include_active=True).segments
        1
        """
        from pylog.archive.archiving import ArchiveOptions, archive_store, url_to_use
        from pylog.objects.opening import open_objects

        manager = self._manager
        manager.gate.check()
        options = ArchiveOptions(topics, include_active, verify_uploads, rate_limit, progress, take_over)
        return archive_store(manager, open_objects(url_to_use(manager, url), **access), options)
