"""The fixtures of aiokafka's own tests, in place of their `conftest.py`, which starts a broker in a container."""

from __future__ import annotations

import asyncio
import datetime as dt
import gc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

_SECONDS = 30  # for each test
_PASSWORD = b"abcdefgh"  # that their tests give


def pytest_configure(config: pytest.Config) -> None:
    """Registers their mark."""
    config.addinivalue_line("markers", "ssl: needs TLS")


@pytest.fixture(scope="class")
def loop() -> Iterator[asyncio.AbstractEventLoop]:
    """An event loop for the tests of a class."""
    made = asyncio.new_event_loop()
    asyncio.set_event_loop(made)
    yield made
    if not made.is_closed():
        made.close()
    gc.collect()
    asyncio.set_event_loop(None)


@pytest.fixture(scope="class")
def setup_test_class_serverless(request: pytest.FixtureRequest, loop: asyncio.AbstractEventLoop) -> None:
    """Gives their test class the loop."""
    kind: Any = request.cls
    kind.loop = loop


@pytest.fixture(scope="class")
def setup_test_class(request: pytest.FixtureRequest, loop: asyncio.AbstractEventLoop, ssl_folder: Path) -> None:
    """Gives their test class what it knows of the broker: any address leads to the layer's store."""
    kind: Any = request.cls
    kind.loop, kind.ssl_folder, kind.TEST_TIMEOUT = loop, ssl_folder, _SECONDS
    kind.kafka_host, kind.kafka_port, kind.kafka_ssl_port, kind.hosts = "localhost", 9092, 9093, ["localhost:9092"]
    kind.kafka_version = "4.3.0"
    kind.acl_manager = kind.kerberos_utils = kind.kafka_config = None


@pytest.fixture(scope="session")
def ssl_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the certificate of an authority, which is a client's, too, and its key."""
    folder = tmp_path_factory.mktemp("certificates")
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localhost")])
    now = dt.datetime.now(dt.UTC)
    made = x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number(), now, now + dt.timedelta(1))
    signed = made.add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True).sign(key, hashes.SHA256())
    for file in ("ca.crt", "client.crt"):
        (folder / file).write_bytes(signed.public_bytes(serialization.Encoding.PEM))
    secret = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.BestAvailableEncryption(_PASSWORD)
    )
    (folder / "client.key").write_bytes(secret)
    return folder
