"""Finds the worst patterns of unclear English in docs, docstrings, comments, help and messages.

tests/test_english.py demands that there are none. It finds regressions; it does not replace a reader.
"""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

MOST_WORDS: Final = 40  # of a sentence
FRAGMENT: Final = re.compile(r"(?m)^\s+\*{0,2}\w+(?:, \*{0,2}\w+)*: of \w+")  # in a list of arguments or attributes


PATTERNS: Final = {
    "a clause that begins with `who`": re.compile(
        r"(?:^|[.;:(]\s+)[Ww]ho(?:ever)?\s+(?!am\b|are you)\w+"
        r"|\b(?:for|by|of|to|and|or|than|as|because|if|when|that)\s+who(?:ever)?\s+\w+"
    ),
    "a clause that begins with `what`": re.compile(
        r"(?:^|[.;]\s+)What\s+(?:is|was|are|were|lies|comes|goes|has|had|stays|it|they|he|a|the|others|another)\b[^?]*$"
    ),
    "`amid`": re.compile(r"\b[Aa]mid\b"),
    "`be it`": re.compile(r"\bbe it\b"),
    "`anew`": re.compile(r"\banew\b"),
    "`for ever`": re.compile(r"\b[Ff]or ever\b"),
    "`whither`": re.compile(r"\bwhither\b"),
    "`behind` for after or past": re.compile(
        r"(?<!left )(?<!are )(?<!is )(?<!fall )(?<!falls )\b[Bb]ehind (?!(?:a )?symbolic links?\b)\w+"
    ),
    "`there are none such`": re.compile(r"\bnone such\b"),
    "`whoever`, or `nobody` for no process": re.compile(
        r"\b[Ww]ho(?:m)?ever\b|\b[Nn]obody (?:is|has|reads|finds|waits|knows|may|looks|writes|asks|uses)\b"
    ),
    "`what lies`, `what comes`, `what goes`": re.compile(r"\b[Ww]hat (?:lies|comes|goes)\b|\blies? (?:behind|beyond)\b"),
    "`is to be` for must or will": re.compile(
        r"\b(?:is|are|was|were) (?:not )?to (?:be|stay|go|have|get|read|end|come)\b(?! found)"
    ),
    "`a look` for a check": re.compile(r"\b(?:a|last|next|another|closer) looks?\b(?!-)|\blook(?:s|ed|ing)? (?:after|anew)\b"),
    "`told` for reported or given": re.compile(r"\b(?:is|are|was|were|been|be) told\b"),
    "`at work` for running": re.compile(r"\bat work\b"),
    "`handed out` for returned": re.compile(r"\bhand(?:s|ed|ing)? out\b"),
    "`asked for` for requested": re.compile(r"\b(?:is|are|was|were|been) asked for\b"),
    "`all the same` for anyway": re.compile(r"\ball the same\b"),
    "`says` of data": re.compile(
        r"\b(?:batch|wrapper|seal|header|entry|field|index|slot|segment|file|table|column) says\b"
        r"|\bsays? (?:the same|only its|it better)\b"
    ),
    "`vouch`": re.compile(r"\bvouch(?:es)?\b"),
    "`goes by`": re.compile(r"\b(?:goes|go|gone) by\b(?! rename)"),
}


class Hit(NamedTuple):
    """A pattern in a piece of prose."""

    line: int
    pattern: str
    text: str


def prose_of_python(source: str) -> Iterator[tuple[int, str]]:
    """Yields each docstring, comment and string of several words with its first line; neighbouring comments count as one."""
    tree = ast.parse(source)
    for node in ast.walk(tree):
        if (
            isinstance(node, ast.Constant)
            and isinstance(node.value, str)
            and node.value.count(" ") >= 2
            and _is_prose(node.value)
        ):
            yield node.lineno, node.value
    block: list[str] = []
    begun = last = 0
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type != tokenize.COMMENT:
            continue
        if block and token.start[0] != last + 1:
            yield begun, " ".join(block)
            block = []
        begun = begun if block else token.start[0]
        block.append(token.string.lstrip("# "))
        last = token.start[0]
    if block:
        yield begun, " ".join(block)


def _is_prose(text: str) -> bool:
    """Whether most words of a string are plain words: a style sheet or a page of HTML is not prose."""
    words = text.split()
    if text.count(" ") < 2:
        return False
    return 2 * sum(re.fullmatch(r"[(`'\"*]*[A-Za-z'`-]+[)`'\"*,.;:?!]*", word) is not None for word in words) >= len(words)


def prose_of_markdown(source: str) -> Iterator[tuple[int, str]]:
    """Yields the paragraphs, list items and cells of a page, code blocks left out, with their lines."""
    block: list[str] = []
    begun = 0
    in_code = False
    for number, line in enumerate(source.splitlines(), 1):
        if line.lstrip().startswith("```"):
            in_code = not in_code
        starts = re.match(r"\s*(?:[*+-]|\d+\.|#+|\||>)\s*", line)
        if block and (in_code or not line.strip() or starts):
            yield begun, " ".join(block)
            block = []
        if in_code or not line.strip() or line.lstrip().startswith(("```", "<!--")):
            continue
        if line.lstrip().startswith("|"):
            yield from ((number, cell.strip()) for cell in line.split("|") if cell.strip())
            continue
        begun = begun if block else number
        block.append(line[starts.end() :] if starts else line.strip())
    if block:
        yield begun, " ".join(block)


def hits_in(path: Path) -> Iterator[Hit]:
    """Yields what the patterns find in a file of Python or Markdown."""
    source = path.read_text()
    for line, text in prose_of_python(source) if path.suffix == ".py" else prose_of_markdown(source):
        for found in FRAGMENT.finditer(text):
            yield Hit(line, "a description that begins with `of`, without its noun", found[0].strip())
        for name, pattern in PATTERNS.items():
            for found in pattern.finditer(_without_code(text)):
                yield Hit(line, name, found[0].strip())
        for sentence in sentences(text):
            if len(sentence.split()) > MOST_WORDS:
                yield Hit(line, f"a sentence of {len(sentence.split())} words", sentence[:60])


def _without_code(text: str) -> str:
    """Returns a text in one line, without its examples and without names in backticks."""
    text = re.sub(r"(?m)^\s*(?:>>>|\.\.\.).*$", "", text)
    return re.sub(r"\s+", " ", re.sub(r"`[^`]*`", "``", text)).strip()


def sentences(text: str) -> Iterator[str]:
    """Yields the sentences of a text: paragraphs, list items and code examples end one too."""
    text = re.sub(r"(?m)^\s*(?:>>>|\.\.\.).*$", "\n\n", text)
    for paragraph in re.split(r"\n\s*\n|\n\s*(?:[*-]|\w[\w, ]*:)\s", text):
        yield from re.split(r"(?<=[.!?:;])\s+|\s+→\s+", paragraph.strip())


VERB: Final = re.compile(
    r"(?:Also )?(?!(?:As|Its|This|Those|Batches|Bytes|Fields|Files|Keys|Members|Names|Numbers|Offsets|Partitions"
    r"|Records|Rows|Segments|Times|Topics|Values)\b)[A-Z][a-z]*s\b|Called\b|See `"
)


def without_verb(source: str) -> Iterator[tuple[int, str]]:
    """Yields the docstrings of functions that do not begin with what the function does, as "Returns the offset of ...".

    Those of properties name a value. "Called when ..." is for callbacks, "See `Log.read`" for the engine under a public method.
    """
    lines, is_function = source.split("\n"), False
    for number, line in enumerate(map(str.lstrip, lines)):
        if line.startswith(("def ", "async def ", "class ")):
            is_function = not line.startswith("class ") and "property" not in lines[number - 1]
        elif is_function and line.startswith('"""') and lines[number - 1].endswith(":") and not VERB.match(line[3:]):
            yield number + 1, line.strip('"')
