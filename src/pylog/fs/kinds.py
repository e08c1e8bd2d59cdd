"""The door through which the content of a small file comes in: a bound of its bytes, its one parser, and one of two answers.

Each kind of file that pylog reads as a whole is one `FileKind`, made in the module that has its parser. Bytes that no module of
pylog just wrote reach a parser only through it:

* The size is compared with the bound of the kind before anything is read. The bound depends on what the file belongs to: an index
  has at most an entry for each batch of its segment.
* Whatever the parser raises is a `PylogError` outside of the door. A caller with a derived file treats it as missing, makes it
  again, and leaves a line in the log. A caller with a primary file passes the error on.

`tests/test_doors.py` compares the list of kinds with the generator of lying files, and finds modules that read files otherwise.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Concatenate, Generic, ParamSpec, TypeVar

from pylog.errors import CorruptionError, InvalidArgumentError, PylogError, StorageFailedError
from pylog.fs.derived import DerivedFile, MappedFile, map_derived, read_derived, read_start
from pylog.fs.protocols import Bytes, FileSystem

P = ParamSpec("P")
T = TypeVar("T")

_REASON_CHARACTERS = 200  # of a parser's own error: it may quote the file


@dataclass(frozen=True)
class FileKind(Generic[P, T]):
    """A kind of file that is read as a whole, or in pieces of a known size.

    Attributes:
        name: the kind's name with its article, for messages.
        parse: the kind's parser. It takes the bytes, the path for its errors, and what else it needs.
        bound: returns the most bytes of a file, from the size in bytes of what it belongs to; files that belong to nothing of a
            known size get 0.
        advice: what a user can do with a file that is refused.
    """

    name: str
    parse: Callable[Concatenate[Any, str, P], T]
    bound: Callable[[int], int]
    advice: str

    def parsed(self, data: bytes | Bytes, path: str, *more: P.args, **named: P.kwargs) -> T:
        """Returns what the bytes of a file hold.

        Args:
            data: the bytes.
            path: the file, for errors.
            more, named: what the parser needs besides.

        Raises:
            CorruptionError, UnsupportedFormatError: the parser refuses the bytes.
            StorageFailedError: the process does not have enough memory for them.
        """
        try:
            return self.parse(data, path, *more, **named)
        except PylogError:
            raise
        except MemoryError as error:
            raise _no_memory(path) from error
        except Exception as error:
            raise self._refusal(path, error) from error

    def fetch(self, fs: FileSystem, path: str, size: int = 0) -> bytes | None:
        """Returns the bytes of a primary file; None if it does not exist.

        Args:
            fs, path: the file.
            size: bytes of what it belongs to.

        Raises:
            StorageFailedError: it has more bytes than its kind can have, or cannot be read.
        """
        try:
            return fs.read(path, self.bound(size))
        except MemoryError as error:
            raise _no_memory(path) from error

    def fetch_derived(self, fs: FileSystem, path: str, size: int = 0) -> DerivedFile:
        """Returns the bytes of a derived file, or why they cannot be used. Arguments as for `fetch`.

        Raises:
            StorageFailedError: the process has too many open files, or no memory left.
        """
        try:
            return read_derived(fs, path, self.bound(size))
        except MemoryError as error:
            raise _no_memory(path) from error

    def fetch_start(self, fs: FileSystem, path: str, size: int) -> DerivedFile:
        """Returns the first `size` bytes of a derived file of any size. Otherwise like `fetch_derived`."""
        return read_start(fs, path, min(size, self.bound(0)))

    def map_derived(self, fs: FileSystem, path: str, size: int = 0) -> MappedFile:
        """Maps a derived file that never changes again. Otherwise like `fetch_derived`."""
        return map_derived(fs, path, self.bound(size))

    def checked(self, data: bytes, path: str, size: int = 0) -> bytes:
        """Returns the new content of a file, if no reader refuses it for its size.

        Args:
            data: the content.
            path: the file, for the error.
            size: bytes of what it belongs to.

        Raises:
            InvalidArgumentError: the content has more bytes than its kind can have. The caller has written nothing.
        """
        if len(data) > self.bound(size):
            message = f"{path} would have {len(data)} bytes, more than the {self.bound(size)} of {self.name}"
            raise InvalidArgumentError(f"{message}; use fewer or shorter names in one directory", path=path)
        return data

    def read(self, fs: FileSystem, path: str, *more: P.args, **named: P.kwargs) -> T | None:
        """Returns what a primary file holds; None if it does not exist. Raises as `fetch` and `parsed`."""
        data = self.fetch(fs, path)
        return None if data is None else self.parsed(data, path, *more, **named)

    def _refusal(self, path: str, error: Exception) -> CorruptionError:
        return CorruptionError(f"{path} is not {self.name}: {reason_of(error)}; {self.advice}", path=path, position=0)


def guarded(items: Iterable[T], path: str) -> Iterator[T]:
    """Yields what a decoder of a file yields. An error that is not pylog's own becomes a CorruptionError.

    Args:
        items: a generator that reads the file.
        path: the file.
    """
    try:
        yield from items
    except PylogError:
        raise
    except MemoryError as error:
        raise _no_memory(path) from error
    except Exception as error:
        message = f"{path} has bytes that do not decode ({reason_of(error)}); `pylog verify` locates them"
        raise CorruptionError(message, path=path, position=0) from error


def reason_of(error: Exception) -> str:
    r"""Returns the words of a decoder's own error, escaped and cut: they may quote the file.

    >>> reason_of(ValueError("a\n" * 200))[:8], reason_of(RecursionError())
    ('a\\na\\na\\', 'RecursionError')
    """
    return ascii((str(error) or type(error).__name__)[:_REASON_CHARACTERS])[1:-1]


def at_most(limit: int) -> Callable[[int], int]:
    """Returns the bound of a kind whose files belong to nothing of a known size.

    >>> at_most(4096)(1 << 30)
    4096
    """
    return lambda _size: limit


def _no_memory(path: str) -> StorageFailedError:
    message = f"the process does not have enough memory for {path}; close other programs, or raise its limit"
    return StorageFailedError(message, path=path, errno=errno.ENOMEM)
