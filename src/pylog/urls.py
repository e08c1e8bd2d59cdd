"""Recognises URLs of object stores."""

from __future__ import annotations

from typing import Final

CLOUDS: Final = ("s3", "gs", "az")


def is_url(path: object) -> bool:
    """Returns whether a text is the URL of an object store, and no path of the file system.

    >>> is_url("s3://logs/shop"), is_url("file:///backup"), is_url("/backup"), is_url("C:relative")
    (True, True, False, False)
    """
    scheme, colon, _ = path.partition("://") if isinstance(path, str) else ("", "", "")
    return bool(colon) and scheme in (*CLOUDS, "file")
