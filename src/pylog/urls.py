"""Recognises URLs of object stores, and makes those of directories."""

from __future__ import annotations

from typing import Final

CLOUDS: Final = ("s3", "gs", "az")
_FILE: Final = "file://"


def is_url(path: object) -> bool:
    """Returns whether a text is the URL of an object store, and no path of the file system.

    >>> is_url("s3://logs/shop"), is_url("file:///backup"), is_url("/backup"), is_url("C:relative")
    (True, True, False, False)
    """
    scheme, colon, _ = path.partition("://") if isinstance(path, str) else ("", "", "")
    return bool(colon) and scheme in (*CLOUDS, "file")


def how_to_write(path: str) -> str:
    """Returns what to do to write to a store that is open for reading, as the end of an error's sentence.

    >>> how_to_write("/shop"), how_to_write("s3://logs/shop")
    ("open it with mode='rw'", 'an object store can only be read: restore the archive into a directory, and write there')
    """
    if is_url(path):
        return "an object store can only be read: restore the archive into a directory, and write there"
    return "open it with mode='rw'"


def directory_url(path: str) -> str:
    """Returns the URL of a directory. Opening it leads there again, whatever characters the path has.

    >>> directory_url("/a b/#1")
    'file:///a%20b/%231'
    """
    from urllib.parse import quote  # most stores have no archive

    return _FILE + quote(path, errors="surrogateescape")


def directory_of(url: str) -> str:
    """Returns the directory of a `file://` URL without a host, escaped or not.

    >>> directory_of("file:///a%20b"), directory_of("file:///a b")
    ('/a b', '/a b')
    """
    from urllib.parse import unquote  # as in `directory_url`

    return unquote(url.removeprefix(_FILE), errors="surrogateescape")


def escaped(url: str) -> str:
    """Returns a URL as an object store shows it. An earlier pylog kept that of a directory without escapes.

    >>> escaped("file:///a b"), escaped("s3://a b")
    ('file:///a%20b', 's3://a b')
    """
    return directory_url(directory_of(url)) if url.startswith(_FILE) else url
