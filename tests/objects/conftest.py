"""A real S3 server for the tests of object stores: moto's, in this process, on a free port."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest

from pylog.objects import ObjectStore, open_objects
from support.kafka_tiers import key, unpacked  # noqa: F401 - fixtures

SECRET = "s3cr3t-Ke1/of+tests"


@pytest.fixture(scope="session")
def s3_endpoint() -> Iterator[str]:
    """The URL of an S3 server."""
    from moto.moto_server.threaded_moto_server import ThreadedMotoServer

    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    yield f"http://{host}:{port}"
    server.stop()


def credentials() -> dict[str, Any]:
    return {"access_key_id": "tester", "secret_access_key": SECRET}


def options_of(endpoint: str) -> dict[str, Any]:
    return {"endpoint": endpoint, "region": "us-east-1", "credentials": credentials}


@pytest.fixture
def s3_options(s3_endpoint: str) -> dict[str, Any]:
    return options_of(s3_endpoint)


@pytest.fixture
def unreachable_options(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Options with the same credentials, of a server that is not there. A call is tried again once: five times take a second."""
    once = {"max_retries": 1, "retry_timeout": timedelta(seconds=60)}
    monkeypatch.setattr("pylog.objects.obstore_objects._RETRIES", once)
    return options_of("http://127.0.0.1:1")


@pytest.fixture
def s3_url(s3_endpoint: str) -> str:
    """The URL of an archive in a new bucket."""
    import urllib.request

    bucket = f"bucket-{secrets.token_hex(6)}"  # other tests of this process have buckets in the same table
    urllib.request.urlopen(urllib.request.Request(f"{s3_endpoint}/{bucket}", method="PUT")).read()
    return f"s3://{bucket}/some/prefix"


@pytest.fixture
def s3_objects(s3_url: str, s3_options: dict[str, Any]) -> Callable[[], ObjectStore]:
    return lambda: open_objects(s3_url, **s3_options)
