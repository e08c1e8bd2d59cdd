"""Text that is safe to print on a terminal: keys, values, names and messages with escapes, sizes with units.

Every character that is not printable is escaped: control characters (a terminal obeys ESC and the C1 set), characters that change
the writing direction or have no width, and bytes that are not UTF-8. Backslashes are doubled, so that `as_bytes` can read escapes
back.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Mapping
from typing import Final

ESCAPES: Final = "pylog-escapes"  # the `errors=` handler for characters that an encoding lacks
_ESCAPES: Final = {"\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t"}
_NULL: Final = "null"
_OTHER_SPACES: Final = "\u00a0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a\u202f\u205f\u3000"
_UNITS: Final = ("B", "kB", "MB", "GB", "TB", "PB")
_SUSPECT: Final = re.compile(r"[^ -\[\]-~]")  # everything except plain ASCII without the backslash


def printable(text: str) -> str:
    """Returns a message with unprintable characters escaped. Backslashes are kept as they are.

    >>> printable("a topic named \\x1b[31m, caf\\u00e9")
    'a topic named \\\\x1b[31m, café'
    """
    return _SUSPECT.sub(lambda found: found[0] if found[0] == "\\" else _escaped(found[0]), text)


def lines_text(text: str) -> str:
    """Returns lines of text with escapes as by `printable`; line ends are kept."""
    return "\n".join(map(printable, text.split("\n")))


def shown(data: bytes | str | None) -> str:
    """Returns a key, value or name on one line. None is `null`, and the four bytes `null` are `\\\\x6eull`.

    >>> shown(b"caf\\xc3\\xa9 \\x1b[31m\\n\\xff"), shown(None)
    ('café \\\\x1b[31m\\\\n\\\\xff', 'null')
    """
    if data is None:
        return _NULL
    if data == _NULL.encode():
        return _in_ascii(_NULL[0]) + _NULL[1:]
    text = data.decode("utf-8", "surrogateescape") if isinstance(data, bytes) else data
    if text.isprintable() and "\\" not in text:
        return text
    return _SUSPECT.sub(lambda found: _escaped(found[0]), text)


def as_bytes(text: str) -> bytes:
    """Returns the bytes of a key or value from the text that `shown` returned.

    >>> as_bytes("caf\u00e9 \\\\x1b\\\\n\\\\xff \\\\\\\\x1b")
    b'caf\\xc3\\xa9 \\x1b\\n\\xff \\\\x1b'
    """
    return _ESCAPE.sub(_unescaped, text).encode("utf-8", "surrogateescape")


_ESCAPE: Final = re.compile(r"\\(x[0-9a-f]{2}|u[0-9a-f]{4}|U[0-9a-f]{8}|[nrt\\])")
_NAMED: Final = {escape[1:]: character for character, escape in _ESCAPES.items()}


def _unescaped(found: re.Match[str]) -> str:
    if found[1] in _NAMED:
        return _NAMED[found[1]]
    code = int(found[1][1:], 16)
    return chr(code + 0xDC00 if found[1][0] == "x" and code >= 0x80 else code)


def _escaped(character: str) -> str:
    if character in _ESCAPES:
        return _ESCAPES[character]
    if character.isprintable() or character in _OTHER_SPACES:
        return character
    return _in_ascii(character)


def _in_ascii(character: str) -> str:
    code = ord(character)
    if 0xDC80 <= code <= 0xDCFF:  # a byte that is not UTF-8, decoded by `surrogateescape`
        return f"\\x{code - 0xDC00:02x}"
    if code < 0x80:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def _not_encoded(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    return "".join(map(_in_ascii, error.object[error.start : error.end])), error.end


codecs.register_error(ESCAPES, _not_encoded)


def json_text(document: str) -> str:
    """Returns JSON with every unprintable character of its strings as `\\uXXXX`. JSON itself allows some of them unescaped.

    >>> json_text('"\\u009b\\x7f\\u202e"')
    '"\\\\u009b\\\\u007f\\\\u202e"'
    """
    return document if document.isprintable() else _NOT_ASCII.sub(_json_escape, document)


_NOT_ASCII: Final = re.compile(r"[^\n -~]")


def _json_escape(found: re.Match[str]) -> str:
    character = found[0]
    if character.isprintable():
        return character
    units = character.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[at] << 8 | units[at + 1]:04x}" for at in range(0, len(units), 2))


def counted(number: int, noun: str, form: str = "d") -> str:
    """Returns a number with its noun, in the singular or plural. `form` formats the number: "," separates its thousands.

    >>> counted(1, "batch"), counted(2, "batch"), counted(0, "entry"), counted(4812, "more offset", ",")
    ('1 batch', '2 batches', '0 entries', '4,812 more offsets')
    """
    if number != 1:
        noun = f"{noun[:-1]}ies" if noun.endswith("y") else f"{noun}es" if noun.endswith("ch") else f"{noun}s"
    return f"{number:{form}} {noun}"


def counts_text(counts: Mapping[str, int]) -> str:
    """Returns numbers with their nouns, from the numbers by noun.

    >>> counts_text({"segment": 1, "batch": 3})
    '1 segment, 3 batches'
    """
    return ", ".join(counted(number, noun) for noun, number in counts.items())


def size_text(size: float) -> str:
    """Returns a number of bytes with a unit, such as "1.2 MB".

    >>> size_text(1_234_567), size_text(999), size_text(1e30)
    ('1.2 MB', '999 B', '1000000000000000.0 PB')
    """
    unit = 0
    while size >= 1000 and unit < len(_UNITS) - 1:
        size, unit = size / 1000, unit + 1
    return f"{size:.1f} {_UNITS[unit]}" if unit else f"{size:.0f} B"
