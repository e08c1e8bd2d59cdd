"""Keys, values and headers in the forms that a reader chooses: on the list of records, and on the page of one."""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator
from html import unescape

import pytest

import pylog
from pylog import Store
from pylog.monitoring.measured import measures_of
from pylog.testing import MemoryFileSystem
from pylog.ui.app import made_application
from pylog.ui.decoding import FORMS, decoded
from support.ui import Browser

LONG_AGO = 1_700_000_000_000
AVRO = b"\x00\x00\x00\x00\x2a\x02payload"


@pytest.fixture
def store() -> Iterator[Store]:
    with pylog.open("/s", fs=MemoryFileSystem()) as made:
        made.create_topic("t")
        made.log("t").append(
            b'{"total": 1.10, "total": 1e400}', key=struct.pack(">q", 1042), headers=[("n", b"\x00\x07"), ("nil", None)]
        )
        made.log("t").append(AVRO, key=b"key")
        yield made


def browser_of(store: Store, *, hide_values: bool = False) -> Browser:
    return Browser(made_application(measures_of(store).watch(), token=None, hide_values=hide_values))


@pytest.mark.parametrize(
    ("data", "form", "text"),
    [
        (b"\xff\xfe", "integer", "-2"),
        (struct.pack(">d", 0.1), "float", "0.1"),
        (struct.pack(">f", -2.5), "float", "-2.5"),
        (b"abc", "float", None),
        (b"", "integer", None),
        (b"\x00\xffz", "base64", "AP96"),
        (b'["\\u00e9", 12345678901234567890.10]', "json", '[\n  "\\u00e9",\n  12345678901234567890.10\n]'),
        (b"[" * 100_000 + b"]" * 100_000, "json", None),
        (b'["\xff"]', "json", None),
        ('["\u202e"]'.encode(), "json", '[\n  "\\u202e"\n]'),
        (AVRO, "schema", "schema 42, 8 bytes: \\x02payload"),
        (b"\x01\x00\x00\x00\x2a", "schema", None),
        (b"\x00\x00", "schema", None),
        (b"a\n\x1b[31m", "text", "a\n\\x1b[31m"),
    ],
)
def test_bytes_have_these_texts(data: bytes, form: str, text: str | None) -> None:
    assert decoded(data, form) == text


def rows_of(page: str) -> list[str]:
    """The text of the rows of a table."""
    return [
        re.sub(r"\s+", " ", unescape(re.sub("<[^>]+>", " ", row)))
        for row in re.findall(r"<tbody>(.*)</tbody>", page, re.DOTALL)[0].split("</tr>")
    ]


def test_a_list_of_records_has_keys_and_values_in_the_chosen_forms_and_says_which_are_not(store: Store) -> None:
    page = browser_of(store).get("/topics/t?direction=forth&key_as=integer&value_as=schema").text
    first, second, _ = rows_of(page)
    assert "1042 not schema id: {" in first
    assert "not integer: key schema 42, 8 bytes:" in second
    assert 'href="/topics/t/0/1?key_as=integer&amp;value_as=schema"' in page
    assert "key_as=integer" in browser_of(store).get("/topics/t/live?key_as=integer").text, "also of newer records"


def test_a_record_is_shown_in_each_form_that_it_has_and_its_neighbours_in_the_same(store: Store) -> None:
    browser = browser_of(store)
    page = browser.get("/topics/t/0/0?key_as=integer&headers_as=integer").text
    assert '<pre class="mono" tabindex="0">1042</pre>' in page
    assert '<td class="mono value">7</td>' in page
    assert "1.10,\n  &#34;total&#34;: 1e400" in page, "as it is written: no name and no digit is lost"
    assert (
        'rel="next" href="/topics/t/0/1?' in page
        or 'href="/topics/t/0/1?key_as=integer&amp;headers_as=integer" rel="next"' in page
    )
    offered = re.findall(r'aria-label="Key as">(.*?)</nav>', page)[0]
    assert [name for name in FORMS.values() if f">{name}</a>" in offered] == [
        "automatic",
        "text",
        "hex",
        "base64",
        "integer",
        "float",
        "schema id",
    ]
    other = browser.get("/topics/t/0/1?key_as=integer&value_as=hex").text
    assert "This is not integer, so it is shown as text." in other
    assert ">00 00 00 00 2a 02 70" in other


def test_a_page_says_what_it_leaves_out_of_a_large_value(store: Store) -> None:
    store.create_topic("large", max_message_bytes=8 << 20)
    store.log("large").append(b"v" * (3 << 20))
    page = browser_of(store).get("/topics/large/0/0").text
    assert page.count("v" * 1000) < 1100
    assert "The page has the first 1.0 MB; the download has all." in page
    assert "Bytes: the first 65,536 bytes" in page


@pytest.mark.parametrize("page", ["/topics/t", "/topics/t/live", "/topics/t/0/0"])
def test_an_unknown_form_is_refused_with_the_known_ones(store: Store, page: str) -> None:
    answer = browser_of(store).get(f"{page}?key_as=%3Cb%3E")
    assert answer.status == 400
    assert "is not one of text, json, hex" in answer.text
    assert "<b>" not in answer.text.replace("<b></b>", "")


def test_hidden_values_have_no_form(store: Store) -> None:
    browser = browser_of(store, hide_values=True)
    page = browser.get("/topics/t?value_as=hex&key_as=hex").text
    assert "hidden: 13 bytes" in page
    assert ">6b 65 79<" in page, "a key is shown"
    assert "Value as" not in page
    record = browser.get("/topics/t/0/0?value_as=hex&headers_as=hex").text
    assert "hidden: 2 bytes" in record
    assert "Headers as" not in record
