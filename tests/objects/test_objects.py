"""The seven requests of an object store: the same answers from a directory, from S3, and from the tests' own store."""

from __future__ import annotations

import math
import pickle
import threading
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import pylog
from pylog.objects import ObjectStore, open_objects
from pylog.objects.objects import Data
from support.objects import MemoryObjects, every_url

SECRET = "s3cr3t-Ke1/of+tests"


@pytest.fixture(params=["directory", "memory", "s3"])
def objects(request: pytest.FixtureRequest, tmp_path: Path) -> ObjectStore:
    if request.param == "directory":
        return open_objects((tmp_path / "archive").as_uri())
    if request.param == "memory":
        return MemoryObjects()
    opened: Callable[[], ObjectStore] = request.getfixturevalue("s3_objects")
    return opened()


def test_objects_are_read_whole_and_in_ranges(objects: ObjectStore) -> None:
    objects.put_new("a/b.log", b"0123456789")
    assert bytes(objects.get("a/b.log")[0]) == b"0123456789"
    assert bytes(objects.get_range("a/b.log", 2, 5)) == b"234"
    assert bytes(objects.get_range("a/b.log", 0, 10)) == b"0123456789"
    found = objects.head("a/b.log")
    assert found is not None
    assert (found.key, found.size) == ("a/b.log", 10)
    assert objects.head("a/other") is None


def test_a_range_past_the_end_is_an_error_and_not_fewer_bytes(objects: ObjectStore) -> None:
    objects.put_new("a", b"0123456789")
    for start, end in ((5, 11), (10, 12), (20, 30), (0, 1 << 62)):
        with pytest.raises(pylog.ObjectStoreError):
            objects.get_range("a", start, end)


def test_a_missing_object_is_named_with_url_and_key(objects: ObjectStore) -> None:
    for read in (lambda: objects.get("x/y"), lambda: objects.get_range("x/y", 0, 1)):
        with pytest.raises(pylog.ObjectNotFoundError) as caught:
            read()
        assert (caught.value.url, caught.value.key) == (objects.url, "x/y")
        assert f"{objects.url}/x/y" in str(caught.value)
        assert isinstance(pickle.loads(pickle.dumps(caught.value)), pylog.ObjectNotFoundError)


def test_put_new_never_replaces_an_object(objects: ObjectStore) -> None:
    objects.put_new("a", b"first")
    with pytest.raises(pylog.ObjectExistsError):
        objects.put_new("a", b"second")
    assert bytes(objects.get("a")[0]) == b"first"


def test_of_several_writers_of_a_new_object_one_wins(objects: ObjectStore) -> None:
    winners: list[int] = []

    def write(number: int) -> None:
        try:
            objects.put_new("manifest/1", b"%d" % number)
        except pylog.ObjectExistsError:
            return
        winners.append(number)

    threads = [threading.Thread(target=write, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [b"%d" % number for number in winners] == [bytes(objects.get("manifest/1")[0])]


def test_put_if_replaces_only_the_content_that_was_read(objects: ObjectStore) -> None:
    objects.put_if("head", b"1", None)
    _, first = objects.get("head")
    assert first is not None
    objects.put_if("head", b"22", first)
    with pytest.raises(pylog.ObjectConflictError):
        objects.put_if("head", b"333", first)
    assert bytes(objects.get("head")[0]) == b"22"
    objects.put_if("head", b"4444", None)
    assert bytes(objects.get("head")[0]) == b"4444"


def test_lists_and_deletes(objects: ObjectStore) -> None:
    for key in ("p/a", "p/b/c", "q/a", "p2/a"):
        objects.put_new(key, b"x")
    assert sorted(each.key for each in objects.list("p/")) == ["p/a", "p/b/c"]
    assert sorted(each.key for each in objects.list("")) == ["p/a", "p/b/c", "p2/a", "q/a"]
    objects.delete(["p/a", "p/b/c", "not/there"])
    assert sorted(each.key for each in objects.list("")) == ["p2/a", "q/a"]


class ReplacingObjects(MemoryObjects):
    """A store that ignores `If-None-Match`."""

    def put_new(self, key: str, data: Data) -> None:
        self.put_if(key, data, None)


def test_a_store_that_replaces_objects_gets_no_archive(tmp_path: Path) -> None:
    objects = ReplacingObjects()
    with pylog.open(tmp_path, archive=objects) as store:
        store.create_topic("t", remote_storage_enable=True, local_retention_bytes=0, retention_ms=-1, segment_bytes=300)
        store.log("t").append_many([bytes(90)] * 20)
        for _ in range(3):
            store.tick()
            assert store.log("t").local_start_offset == 0
    with every_url(objects), pylog.open(tmp_path / "other") as store:
        for _ in range(2):
            with pytest.raises(pylog.ObjectStoreError, match=r"replaces it: it ignores If-None-Match"):
                store.archive("s3://any")
    assert not [key for key in objects.objects if key.startswith("pylog/store/")]


# ---- directories ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("key", ["../x", "a/../../x", "/etc/passwd", "a//b", "", "a/./b", "a\\b"])
def test_no_key_leads_out_of_the_directory(tmp_path: Path, key: str) -> None:
    objects = open_objects(str(tmp_path / "archive"))
    for call in (lambda: objects.put_new(key, b""), lambda: objects.get(key), lambda: objects.delete([key])):
        with pytest.raises(pylog.InvalidArgumentError):
            call()
    assert not (tmp_path / "x").exists()


def test_an_unfinished_file_is_no_object(tmp_path: Path) -> None:
    objects = open_objects(str(tmp_path))
    objects.put_new("a/b", b"")
    (tmp_path / "a" / "c.1234.tmp").write_bytes(b"half")
    assert [each.key for each in objects.list("")] == ["a/b"]


def test_a_directory_without_hard_links_creates_objects_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_links(*_: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr("os.link", no_links)
    objects = open_objects(str(tmp_path))
    objects.put_new("a", b"first")
    with pytest.raises(pylog.ObjectExistsError):
        objects.put_new("a", b"second")
    assert bytes(objects.get("a")[0]) == b"first"
    assert [each.key for each in objects.list("")] == ["a"]


# ---- URLs and options ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("http://host/x", "must begin with"),
        ("s3://", "has no bucket"),
        ("s3://key:pass-word@bucket/x", "no user, password"),
        ("s3://bucket/x?X-Amz-Signature=pass-word", "no user, password"),
        ("file://host/x", "three slashes"),
        ("", "is not a path"),
        ("a\0b", "is not a path"),
        ("file:///a%00b", "is not a path"),
    ],
)
def test_a_wrong_url_is_refused_without_its_secrets(url: str, expected: str) -> None:
    with pytest.raises(pylog.InvalidArgumentError, match=expected) as caught:
        open_objects(url)
    assert "pass-word" not in str(caught.value)


def test_plain_http_is_for_this_machine_only() -> None:
    with pytest.raises(pylog.InvalidArgumentError, match="without TLS"):
        open_objects("s3://bucket/x", endpoint="http://storage.example.com", region="us-east-1")
    open_objects("s3://bucket/x", endpoint="http://storage.example.com", region="us-east-1", allow_http=True)
    open_objects("s3://bucket/x", endpoint="http://127.0.0.1:1", region="us-east-1")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("timeout_seconds", "5"),
        ("timeout_seconds", 0),
        ("timeout_seconds", math.nan),
        ("endpoint", 5),
        ("account", 4),
        ("allow_http", "no"),
    ],
)
def test_a_wrong_option_is_named_before_anything_is_opened(name: str, value: object) -> None:
    with pytest.raises(pylog.InvalidArgumentError, match=rf"^{name}="):
        open_objects("s3://bucket/x", **{name: value})


def test_an_unknown_option_is_refused() -> None:
    with pytest.raises(pylog.InvalidArgumentError, match="regoin"):
        open_objects("s3://bucket/x", regoin="us-east-1")


def test_without_the_extra_an_error_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "obstore", None)
    monkeypatch.delitem(__import__("sys").modules, "pylog.objects.obstore_objects", raising=False)
    monkeypatch.delattr("pylog.objects.obstore_objects", raising=False)
    with pytest.raises(pylog.IllegalStateError, match="pip install 'obstore>="):
        open_objects("s3://bucket/x")


def test_other_schemes_are_opened_without_a_request() -> None:
    assert open_objects("gs://bucket/x", anonymous=True).url == "gs://bucket/x"
    given = {"account": "someone", "anonymous": True}
    assert open_objects("az://container/x/", **given).url == "az://container/x"


def test_a_store_that_cannot_be_opened_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AZURE_STORAGE_ACCOUNT_NAME", raising=False)
    with pytest.raises(pylog.InvalidArgumentError, match="Account must be specified"):
        open_objects("az://container/x")


# ---- secrets -------------------------------------------------------------------------------------------------------------


def _texts(objects: ObjectStore) -> Iterator[str]:
    """All that a program may print of a store and its errors."""
    yield repr(objects)
    yield str(vars(objects))
    for call in (
        lambda: objects.get("a"),
        lambda: objects.put_new("a", b""),
        lambda: list(objects.list("")),
        lambda: objects.head("a"),
    ):
        try:
            call()
        except pylog.PylogError as error:
            yield "".join(traceback.format_exception(error))
            yield str(vars(error))


@pytest.mark.parametrize(
    "fixture",
    [pytest.param("unreachable_options", id="unreachable"), pytest.param("s3_options", id="no bucket", marks=pytest.mark.slow)],
)
def test_no_text_has_a_credential(fixture: str, request: pytest.FixtureRequest) -> None:
    options: dict[str, Any] = request.getfixturevalue(fixture)
    texts = list(_texts(open_objects("s3://not-there/x", **options)))
    assert len(texts) > 2
    assert not [text for text in texts if SECRET in text or "tester" in text]


@pytest.mark.slow
def test_a_store_of_a_bucket_cannot_be_pickled(s3_objects: Callable[[], ObjectStore]) -> None:
    with pytest.raises(TypeError, match="holds credentials"):
        pickle.dumps(s3_objects())
