"""How S3 encrypts new objects: the options reach each request that creates one, and what would be ignored is refused."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from pylog.cli.buckets import Bucket
from pylog.errors import InvalidArgumentError
from pylog.objects import open_objects

_PREFIX = "x-amz-server-side-encryption"
KEY = "arn:aws:kms:eu-central-1:111122223333:key/abcd"


class _Bucket(BaseHTTPRequestHandler):
    """Answers each PUT, and keeps its headers."""

    puts: list[dict[str, str]] = []  # noqa: RUF012 - one for a server, see `bucket`

    def do_PUT(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.puts.append({name.lower(): value for name, value in self.headers.items() if name.lower().startswith(_PREFIX)})
        self.send_response(200)
        self.send_header("ETag", '"1"')
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Logs nothing."""


@pytest.fixture
def bucket() -> Iterator[tuple[str, list[dict[str, str]]]]:
    """A server, and the headers of encryption in each PUT."""
    puts: list[dict[str, str]] = []
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("_Own", (_Bucket,), {"puts": puts}))
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}", puts
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, {}),
        ({"sse": "AES256"}, {"": "AES256"}),
        ({"sse": "aws:kms"}, {"": "aws:kms"}),
        (
            {"sse": "aws:kms", "sse_kms_key_id": KEY, "sse_bucket_key": True},
            {"": "aws:kms", "-aws-kms-key-id": KEY, "-bucket-key-enabled": "true"},
        ),
        ({"sse": "aws:kms:dsse", "sse_kms_key_id": KEY}, {"": "aws:kms:dsse", "-aws-kms-key-id": KEY}),
    ],
    ids=["none", "S3", "KMS", "KMS with a key", "twice"],
)
def test_each_request_that_creates_an_object_says_how_it_is_encrypted(
    bucket: tuple[str, list[dict[str, str]]], options: dict[str, object], expected: dict[str, str]
) -> None:
    endpoint, puts = bucket
    objects = open_objects("s3://logs/shop", endpoint=endpoint, region="eu-central-1", anonymous=True, **options)
    objects.put_new("a", b"1")
    objects.put_if("b", b"2", None)
    assert puts == [{_PREFIX + name: value for name, value in expected.items()}] * 2
    assert KEY not in repr(objects)


def test_the_environment_says_how_objects_are_encrypted_and_options_count_before_it(
    bucket: tuple[str, list[dict[str, str]]], monkeypatch: pytest.MonkeyPatch
) -> None:
    endpoint, puts = bucket
    monkeypatch.setenv("AWS_SERVER_SIDE_ENCRYPTION", "aws:kms")
    monkeypatch.setenv("AWS_SSE_KMS_KEY_ID", KEY)
    for options in ({}, {"sse": "AES256"}):
        objects = open_objects("s3://logs/shop", endpoint=endpoint, region="eu-central-1", anonymous=True, **options)
        objects.put_new("a", b"1")
    assert [put[_PREFIX] for put in puts] == ["aws:kms", "AES256"]
    assert puts[0][_PREFIX + "-aws-kms-key-id"] == KEY


@pytest.mark.parametrize(
    ("url", "options", "words"),
    [
        ("s3://logs", {"sse": "aws:KMS"}, "is not one of AES256, aws:kms"),
        ("s3://logs", {"sse": 256}, "sse"),
        ("s3://logs", {"sse_bucket_key": "yes"}, "sse_bucket_key"),
        ("s3://logs", {"sse_kms_key_id": KEY}, "sse_kms_key_id requires sse='aws:kms'"),
        ("s3://logs", {"sse": "AES256", "sse_kms_key_id": KEY}, "sse_kms_key_id requires sse='aws:kms'"),
        ("s3://logs", {"sse": "AES256", "sse_bucket_key": True}, "sse_bucket_key requires sse='aws:kms'"),
        ("gs://logs", {"sse": "AES256"}, "sse applies to s3:// only"),
        ("file:///logs", {"sse": "AES256"}, "sse applies to s3:// only"),
        ("/logs", {"sse": "AES256"}, "sse applies to s3:// only"),
        ("az://logs", {"sse_kms_key_id": KEY}, "sse_kms_key_id applies to s3:// only"),
    ],
)
def test_an_option_that_would_be_ignored_is_refused(url: str, options: dict[str, object], words: str) -> None:
    with pytest.raises(InvalidArgumentError, match=words) as caught:
        open_objects(url, **options)
    assert KEY not in str(caught.value)


def test_a_command_passes_the_options_on() -> None:
    assert Bucket(sse="aws:kms", sse_kms_key_id=KEY).access() == {"sse": "aws:kms", "sse_kms_key_id": KEY}
