"""Docs, docstrings, comments, help and messages avoid the worst patterns of unclear English.

There is no list of exceptions: reword what is found. The patterns are in support/docs/english.py.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.docs.english import PATTERNS, hits_in, prose_of_markdown, prose_of_python, without_verb

ROOT = Path(__file__).resolve().parent.parent
UNCLEAR_IN_NAMES = re.compile(r"_(who|whom|whoever|nobody|somebody|anew|amid|for_ever|handed_out|hands_out)(?=_|$)")


def written() -> Iterator[Path]:
    """Yields the sources, and the pages that users and contributors read."""
    yield from sorted((ROOT / "src").rglob("*.py"))
    yield from sorted((ROOT / "docs").rglob("*.md"))
    yield from (ROOT / name for name in ("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md"))


@pytest.mark.slow
def test_no_text_has_one_of_the_worst_patterns():
    found = [f"{path.relative_to(ROOT)}:{hit.line} {hit.pattern}: {hit.text}" for path in written() for hit in hits_in(path)]
    assert found == []


@pytest.mark.parametrize(
    "text",
    [
        "Who reads beside it sees the old start.",
        "It is closed by whoever opened it.",
        "What was sent is in the log once.",
        "The offset behind the end.",
        "A call amid another one.",
        "It waits for ever.",
        "It begins anew.",
        "Kept, be it empty.",
        "The header is to be written first.",
        "It costs a look at each segment.",
        "The log was told to begin there.",
        "A broker is at work.",
        "Records are handed out again.",
        "It goes by its name.",
        "Nobody waits for it.",
        "Behind damage it continues.",
        "It opens a log where times are asked for.",
        "The record is sent all the same.",
        "A wrapper says only its last offset.",
        "The seal vouches for its headers.",
    ],
)
def test_each_of_the_worst_patterns_is_found(tmp_path: Path, text: str):
    (tmp_path / "a.md").write_text(text)
    (tmp_path / "a.py").write_text(f'"""{text}"""\n')
    (tmp_path / "b.py").write_text(f"count = 1\n# {text}\n")
    (tmp_path / "c.py").write_text(f'raise ValueError(f"{{count}} records. {text}")\n')
    for path in sorted(tmp_path.iterdir()):
        assert {hit.pattern for hit in hits_in(path)} <= set(PATTERNS)
        assert list(hits_in(path)), path.name


def test_a_sentence_of_more_than_forty_words_is_found(tmp_path: Path):
    (tmp_path / "long.md").write_text(" ".join(["word"] * 41) + ".")
    (tmp_path / "short.md").write_text(" ".join(["word"] * 40) + ". " + " ".join(["word"] * 40) + ".")
    assert [hit.pattern for hit in hits_in(tmp_path / "long.md")] == ["a sentence of 41 words"]
    assert not list(hits_in(tmp_path / "short.md"))


def test_a_description_without_its_noun_is_found(tmp_path: Path):
    described = "clock, fs: of the store.\n    size: the size of a page of text."
    (tmp_path / "a.py").write_text(f'"""Opens.\n\nArgs:\n    {described}\n"""\n')
    assert [hit.text for hit in hits_in(tmp_path / "a.py")] == ["clock, fs: of the"]


@pytest.mark.parametrize(
    "text",
    [
        "A group that is behind has a lag.",
        "Partitions behind symbolic links.",
        "Who are you?",
        "`who` and `told` are names.",
        ">>> told()",
    ],
)
def test_plain_sentences_and_code_are_left_alone(tmp_path: Path, text: str):
    (tmp_path / "a.py").write_text(f'"""{text}"""\n')
    assert not list(hits_in(tmp_path / "a.py"))


def test_a_style_sheet_is_not_prose():
    assert not list(prose_of_python("STYLE = ':root{--paper:#fff;--ink:#1c2430} body {margin: 0} a {color: red}'"))
    assert list(prose_of_markdown("# Title\n\nA page."))


def test_no_test_has_an_unclear_word_in_its_name():
    """A test's name says what it protects, so it has the words of the field: `record`, `group`, `thread`, `caller`, `member`."""
    files = sorted((ROOT / "tests").rglob("test_*.py"))
    names = {name for file in files for name in re.findall(r"^ *(?:async )?def (test_\w+)", file.read_text(), re.MULTILINE)}
    assert sorted(filter(UNCLEAR_IN_NAMES.search, names)) == []


@pytest.mark.slow
def test_the_docstring_of_a_function_begins_with_what_the_function_does():
    found = {path.relative_to(ROOT): list(without_verb(path.read_text())) for path in (ROOT / "src").rglob("*.py")}
    assert {path: lines for path, lines in found.items() if lines} == {}


@pytest.mark.parametrize(
    ("text", "is_plain"),
    [
        ("Returns the offset.", True),
        ("Called before a rebalance.", True),
        ("See `Log.read`.", True),
        ("The offset.", False),
        ("Whether it is open.", False),
        ("Records of kind 3.", False),
    ],
)
def test_a_docstring_without_a_verb_is_found(text: str, is_plain: bool):
    assert list(without_verb(f'def f():\n    """{text}"""')) == ([] if is_plain else [(2, text)])
    assert not list(without_verb(f'class A:\n    @property\n    def f(self):\n        """{text}"""'))
