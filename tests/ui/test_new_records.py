"""A record is appended as another one is, or changed: the form has all of it as text, and nothing is written before its plan."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import nullcontext
from html import unescape
from typing import Any
from urllib.parse import quote, urlencode

import pytest
from hypothesis import given
from hypothesis import strategies as st

import pylog
from pylog import Store
from pylog.monitoring.measured import measures_of
from pylog.record.types import Record
from pylog.testing import MemoryFileSystem
from pylog.ui.app import made_application
from pylog.ui.record_changes import fields_of, new_record
from support.ui import Browser, form_token, posted

ODD = b"\xff\x00null\\x00 \r\n\t=</textarea>\xe2\x80\xae"
URL = "/change/append-record"


@pytest.fixture
def store() -> Iterator[Store]:
    with pylog.open("/s", fs=MemoryFileSystem()) as made:
        made.create_topic("orders", partition_count=2)
        made.create_topic("compact", cleanup_policy="compact")
        yield made


def writer_of(store: Store, **options: Any) -> Browser:
    return Browser(made_application(measures_of(store).watch(), token=None, writing=lambda: nullcontext(store), **options))


def fields_in(page: str) -> dict[str, str]:
    """The fields of the first form to change something, as a browser has them."""
    form = page[page.index('<form class="act"') :].partition("</form>")[0]
    inputs = re.findall(r'<input[^>]*name="(\w+)"[^>]*value="([^"]*)"', form)
    areas = re.findall(r'<textarea[^>]*name="(\w+)"[^>]*>\n(.*?)</textarea>', form, re.DOTALL)
    return {name: unescape(text) for name, text in [*inputs, *areas]}


def begun(writer: Browser, offset: int, partition: int = 0) -> dict[str, str]:
    """The form that begins with a record of `orders`."""
    return fields_in(writer.get(f"{URL}?{urlencode({'topic': 'orders', 'partition': partition, 'offset': offset})}").text)


def ends(store: Store) -> list[int]:
    return [store.log("orders", number).end_offset for number in range(2)]


def test_a_record_is_appended_again_with_each_of_its_bytes(store: Store) -> None:
    writer, headers = writer_of(store), [("a=b", ODD), ("none", None), ("empty", b""), ("é\n", b"null")]
    before = store.log("orders").append(ODD, key=b"null", headers=headers)
    page = writer.get(f"/topics/orders/0/{before}").text
    assert f'href="{URL}?topic=orders&amp;partition=0&amp;offset={before}">As a new record…</a>' in page
    form = begun(writer, before) | {"number": "1"}
    assert ends(store) == [1, 0]
    plan = posted(writer, URL, **form)
    assert (plan.status, ends(store)) == (200, [1, 0]), "a plan appends nothing"
    assert "appends a record to topic &#39;orders&#39;, in partition 1" in plan.text
    confirmed = plan.text[plan.text.index("Plan</h2>") :]
    answer = posted(writer, URL, **fields_in(confirmed))
    assert "The record is orders-1@0." in answer.text
    [found] = store.log("orders", 1).records()
    assert (found.key, found.value, list(found.headers)) == (b"null", ODD, headers)


texts = st.text(st.characters(codec="utf-8"), max_size=9)


@given(
    key=st.none() | st.binary(max_size=20),
    value=st.none() | st.binary(max_size=60),
    headers=st.lists(st.tuples(texts, st.none() | st.binary(max_size=9)).filter(lambda each: each != ("", None)), max_size=3),
)
def test_a_form_has_all_of_any_record(key: bytes | None, value: bytes | None, headers: list[Any]) -> None:
    form = fields_of(Record(topic="orders", partition=0, offset=0, timestamp=1, key=key, value=value, headers=tuple(headers)))
    crossed = {field: text.replace("\n", "\r\n") for field, text in form.items()}  # as browsers send the ends of lines
    assert new_record(crossed) == ("orders", None, key, value, headers)


def test_a_changed_record_is_appended_as_it_was_typed(store: Store) -> None:
    store.log("orders").append(b"before", key=b"k")
    writer = writer_of(store)
    form = begun(writer, 0) | {
        "value": "line one\r\nline two \\xff",
        "key": "null",
        "headers": "why=again\r\n\r\nflag",
        "number": "1",
    }
    posted(writer, URL, **{**form, "step": ""})
    [found] = store.log("orders", 1).records()
    assert (found.key, found.value) == (None, b"line one\nline two \xff")
    assert found.headers == (("why", b"again"), ("flag", None))


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"to": "no"}, "no"),
        ({"to": "__consumer_offsets"}, "own"),
        ({"number": "2"}, "no partition 2"),
        ({"number": "x"}, "whole number"),
        ({"headers": "\\xff=1"}, "UTF-8"),
    ],
)
def test_a_mistake_is_said_and_nothing_is_appended(store: Store, wrong: dict[str, str], said: str) -> None:
    store.log("orders").append(b"v")
    writer = writer_of(store)
    form = begun(writer, 0) | wrong
    for step in ("plan", ""):
        answer = posted(writer, URL, **{**form, "step": step})
        assert answer.status == 400
        assert said in answer.text
        assert "Do it" not in answer.text
    assert ends(store) == [1, 0]


def test_a_compacted_topic_refuses_a_record_without_a_key(store: Store) -> None:
    store.log("orders").append(b"v")
    writer = writer_of(store)
    answer = posted(writer, URL, **{**begun(writer, 0), "to": "compact", "step": ""})
    assert answer.status == 400
    assert "key" in answer.text
    assert store.log("compact").end_offset == 0


def test_a_form_begins_neither_with_hidden_values_nor_with_a_large_record_nor_with_one_that_is_gone(store: Store) -> None:
    store.log("orders").append(b"secret")
    store.log("orders").append(b"x" * (1 << 18), key=b"1")
    hiding = writer_of(store, hide_values=True)
    refused = hiding.get(f"{URL}?topic=orders&partition=0&offset=0")
    assert refused.status == 400
    assert "secret" not in refused.text
    assert "As a new record" not in hiding.get("/topics/orders/0/0").text
    large = writer_of(store).get(f"{URL}?topic=orders&partition=0&offset=1")
    assert (large.status, "pylog produce" in large.text) == (400, True)
    assert writer_of(store).get(f"{URL}?topic=orders&partition=0&offset=9").status == 400


def test_a_plan_is_only_for_pages_of_the_window(store: Store) -> None:
    store.log("orders").append(b"v")
    writer = writer_of(store)
    form = begun(writer, 0)
    del form["form_token"]
    assert posted(writer, URL, **form).status == 403
    reading = Browser(made_application(measures_of(store).watch(), token=None))
    assert posted(reading, URL, **form, form_token="x").status == 403
    assert "As a new record" not in reading.get("/topics/orders/0/0").text


def test_a_group_with_any_name_is_deleted_once_its_name_is_typed_as_it_is_shown(store: Store) -> None:
    name = " bill\ning\\n \u202e"
    store.offsets.commit(name, {("orders", 0): 0})
    writer = writer_of(store)
    page = writer.get(f"/groups/{quote(name, safe='')}").text
    assert writer.get(f"/groups/{quote(name, safe='')}.json").json["group"] == name
    link = re.search(r'href="(/change/delete-group[^"]*)"', page)
    assert link is not None
    plan = writer.get(unescape(link[1])).text
    label = re.search(r"Type (.*?) to confirm", plan, re.DOTALL)
    assert label is not None
    typed = unescape(label[1])
    assert "\n" not in typed
    hidden = fields_in(plan[plan.index("Plan</h2>") :])
    assert posted(writer, "/change/delete-group", **hidden, typed="x").status == 400
    assert name in store.groups()
    assert posted(writer, "/change/delete-group", **hidden | {"form_token": form_token(plan)}, typed=typed).status == 200
    assert name not in store.groups()
