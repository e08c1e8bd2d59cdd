"""What a log holds is shown, and never obeyed: no control character of a key, value, header or name reaches a terminal."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import pylog
from pylog.cli.output import json_line
from pylog.text import as_bytes, json_text, lines_text, printable, shown
from support.cli import call

HOSTILE = ["\x1b[2J", "\x9b31m", "\x07", "\r", "\n", "\t", "\b", "\x7f", "\u202e", "\u2028", "\u200b", "\x00", "\x1b]0;title\x07"]
hostile_text = st.text(st.one_of(st.sampled_from("".join(HOSTILE)), st.characters(codec="utf-8")), max_size=20)
hostile_bytes = st.one_of(hostile_text.map(str.encode), st.binary(max_size=20))


def harmless(text: str) -> bool:
    """Whether a terminal would only show it: lines of what is printable, or a space of some width."""
    return all(character.isprintable() or character == "\n" or (character.isspace() and character > "\x9f") for character in text)


# ---- escaping ----------------------------------------------------------------------------------------------------------------


@pytest.mark.slow
@given(hostile_bytes)
@example(b"\xc2\x9b")
@example(b"\x9b")
@example(b"\\x1b")
def test_shown_text_is_one_harmless_line_that_can_be_read_back(data: bytes) -> None:
    text = shown(data)
    assert harmless(text)
    assert "\n" not in text
    assert "\u2028" not in text
    assert as_bytes(text) == data


@pytest.mark.slow
@given(hostile_text)
def test_messages_and_json_are_harmless_too(text: str) -> None:
    assert harmless(printable(text))
    assert "\n" not in printable(text)
    assert harmless(lines_text(text))
    document = json_text(json.dumps(text, ensure_ascii=False))
    assert harmless(document)
    assert json.loads(document) == text


def test_usual_text_is_not_escaped() -> None:
    assert shown("Grüße, 世界 👍") == "Grüße, 世界 👍"
    assert shown("ideographic\u3000space") == "ideographic\u3000space"


def test_bytes_that_are_no_text_are_an_object_in_json() -> None:
    assert json.loads(json_line({"a": b"text", "b": [b"\xff", None]})) == {"a": "text", "b": [{"base64": "/w=="}, None]}


# ---- at a terminal -----------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[pylog.Store]:
    """A store that is written while commands look at it."""
    few = pylog.OffsetsConfig(topic_num_partitions=1)
    with pylog.open(tmp_path_factory.mktemp("store"), durability=pylog.Durability.OS, offsets=few) as opened:
        opened.create_topic("t")
        opened.offsets.commit("first", {("t", 0): 0})
        yield opened


@pytest.mark.slow
@settings(max_examples=30)
@given(key=st.none() | hostile_bytes, value=st.none() | hostile_bytes, name=hostile_text, header=st.none() | hostile_bytes)
@example(key=b"\x1b[31m", value=b"\x9b\xff", name="\x1b]0;x\x07", header=b"\x07")
@example(key=b"\xc2\x9b1m", value="\u202e\r\b".encode(), name="\x7f", header=None)
def test_no_control_character_of_a_record_reaches_a_terminal(
    key: bytes | None, value: bytes | None, name: str, header: bytes | None, store: pylog.Store
) -> None:
    offset = store.log("t").append(value, key=key, headers=[(name, header)])
    for form in ("text", "jsonl", "csv"):
        done = call("cat", store.path, "t", "--format", form, "--from", offset, terminal=True)
        assert harmless(done.text + done.complaints), form
        assert done.code == 0 or (form == "csv" and "is not UTF-8" in done.complaints)


@pytest.mark.slow
@settings(max_examples=20)
@given(group=hostile_text.filter(bool), metadata=hostile_text)
@example(group="\x1b[31m[red]", metadata="\x9b")
def test_no_control_character_of_a_group_or_an_argument_reaches_a_terminal(group: str, metadata: str, store: pylog.Store) -> None:
    store.offsets.commit(group, {("t", 0): pylog.OffsetAndMetadata(0, metadata)})
    right = [["list"], ["list", "--state"], ["export"], ["describe", "--json"], ["describe"], ["describe", "--state"]]
    for words in right:
        done = call("groups", words[0], store.path, *words[1:], terminal=True)
        assert done.code == 0
        assert harmless(done.text + done.complaints), words
    for wrong in (["describe", store.path, group], ["cat", store.path, "t", "--from", group], [group]):
        done = call(*wrong, terminal=True)
        assert harmless(done.text + done.complaints), wrong
    store.group(group).delete()


@pytest.fixture(autouse=True, scope="module")
def no_colours() -> Iterator[None]:
    """Escape sequences that rich writes itself are no finding; on a dumb terminal it writes none."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TERM", "dumb")
        yield


def test_markup_in_a_name_is_shown_and_not_obeyed(tmp_path: Path) -> None:
    with pylog.open(tmp_path) as store:
        store.create_topic("t", retention_group="[red]alert[/red]")
    assert "[red]alert[/red]" in call("config", tmp_path, "t", terminal=True).text
