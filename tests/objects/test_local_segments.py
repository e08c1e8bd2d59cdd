"""Segments that are deleted while an archive is compared with its log."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

import pylog
from pylog.archive import archiving
from pylog.archive.local_segments import known_digest
from pylog.fs import OsFileSystem
from support.engines import engine_of


def _store(path: Path) -> pylog.Store:
    store = pylog.open(path)
    store.create_topic("t", segment_bytes=200)
    for number in range(10):
        store.log("t").append(b"%d" % number)
    return store


def test_an_archive_run_goes_on_if_segments_are_deleted_before_it_compares_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with _store(tmp_path / "store") as store:
        known = archiving.newest_manifest
        deleted: list[int] = []

        def newest_manifest(*given: Any) -> Any:
            if not deleted:  # the run has taken the state of the log, and not read its segments
                deleted.append(store.log("t").delete_records(6))
                for segment in [each for each in os.listdir(tmp_path / "store" / "t-0") if each < "00000000000000000005"]:
                    (tmp_path / "store" / "t-0" / segment).unlink()
            return known(*given)

        monkeypatch.setattr(archiving, "newest_manifest", newest_manifest)
        (report,) = store.archive((tmp_path / "archive").as_uri(), include_active=True).partitions
    assert (report.start_offset, report.archived_end_offset) == (6, 10)


@pytest.mark.damaged("a segment is removed")
def test_a_segment_that_is_gone_has_no_digest_and_one_that_cannot_be_read_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with _store(tmp_path), pylog.open(tmp_path, "r") as reader:
        segment = next(iter(engine_of(reader.log("t")).snapshot().segments))[1]
        for name in ("00000000000000000000.log", "00000000000000000000.seal"):
            (tmp_path / "t-0" / name).unlink(missing_ok=True)
        assert known_digest(segment) is None

        def refused(_: OsFileSystem, path: str, **__: object) -> None:
            raise pylog.StorageFailedError(f"cannot open {path}: no permission", path=path)

        monkeypatch.setattr(OsFileSystem, "map", refused)
        monkeypatch.setattr(OsFileSystem, "open", refused)
        with pytest.raises(pylog.StorageFailedError, match="no permission"):
            known_digest(segment)
