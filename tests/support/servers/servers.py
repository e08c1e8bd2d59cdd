"""Starts object stores for tests: moto and S3Proxy speak S3, Azurite is Microsoft's emulator of Azure Blob Storage.

    with started("azurite", Path(".cache/servers"), tmp_path) as server:
        server.new_url()      # az://bucket-1f2e3d4c5b6a/some/prefix, in a new container
        server.options        # for `open_objects`
        server.environment    # the same credentials, as a process finds them in its environment

In tests/: `python3 -m support.servers.servers fetch DIRECTORY` fetches S3Proxy (57 MB, Maven) and Azurite (186 MB, npm).
"""

from __future__ import annotations

import base64
import contextlib
import fcntl
import hashlib
import hmac
import os
import re
import secrets
import shutil
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from email.utils import formatdate
from pathlib import Path
from typing import Any, Final

HERE: Final = Path(__file__).resolve().parent
AZURITE_VERSION: Final = "3.35.0"  # the last one for the Node.js of Debian 12
NAMES: Final = ("moto", "s3proxy", "azurite")
START_S: Final = 60.0

USER, SECRET = "tester", "s3cr3t-Ke1/of+tests"
ACCOUNT = "pylogtests"
ACCOUNT_KEY = base64.b64encode(b"s3cr3t of the account of pylog's tests").decode()
SECRETS: Final = (SECRET, ACCOUNT_KEY)  # that no text may have

_S3PROXY_SETTINGS: Final = f"""s3proxy.authorization=aws-v2-or-v4
s3proxy.identity={USER}
s3proxy.credential={SECRET}
s3proxy.endpoint=http://127.0.0.1:0
jclouds.provider=filesystem-nio2
jclouds.identity=unused
jclouds.credential=unused
jclouds.endpoint=http://127.0.0.1
"""
_S3PROXY_LOG: Final = """<configuration>
<appender name="out" class="ch.qos.logback.core.ConsoleAppender"><encoder><pattern>%level %msg%n</pattern></encoder></appender>
<root level="INFO"><appender-ref ref="out"/></root>
</configuration>
"""


class ServerError(Exception):
    """A server could not be fetched or started."""


@dataclass(frozen=True)
class ObjectServer:
    """A running object store.

    Attributes:
        name: one of `NAMES`.
        scheme: of its URLs.
        options: of `pylog.objects.open_objects`, with credentials.
        environment: the same credentials, as variables.
        make: makes a bucket.
    """

    name: str
    scheme: str
    options: Mapping[str, Any]
    environment: Mapping[str, str]
    make: Callable[[str], object]

    def new_url(self) -> str:
        """Returns the URL of an archive in a new bucket."""
        bucket = f"bucket-{secrets.token_hex(6)}"  # the servers of one process share their buckets: moto's are one table
        self.make(bucket)
        return f"{self.scheme}://{bucket}/some/prefix"


# ---- fetched once --------------------------------------------------------------------------------------------------------


def fetch(cache: Path) -> None:
    """Fetches the servers that are programs of their own, unless they are there. One process does, the others wait.

    Raises:
        ServerError: Maven or npm is missing, or could not fetch it.
    """
    cache.mkdir(parents=True, exist_ok=True)
    with (cache / "lock").open("wb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (cache / "s3proxy" / "complete").exists():
            goal = [f"-DoutputDirectory={cache / 's3proxy'}", "dependency:copy-dependencies"]
            _run("S3Proxy", "Maven", ["mvn", "-q", "-B", "-f", str(HERE / "s3proxy.xml"), *goal])
            (cache / "s3proxy" / "complete").touch()
        if not (_azurite(cache) / "complete").exists():
            quiet = ["--silent", "--no-audit", "--no-fund", "--omit=optional"]
            _run("Azurite", "npm", ["npm", "install", *quiet, "--prefix", str(_azurite(cache)), f"azurite@{AZURITE_VERSION}"])
            (_azurite(cache) / "complete").touch()


def _azurite(cache: Path) -> Path:
    return cache / f"azurite-{AZURITE_VERSION}"


def _run(what: str, tool: str, command: list[str]) -> None:
    if shutil.which(command[0]) is None:
        raise ServerError(
            f"`{command[0]}` is not on PATH: {tool} fetches {what}, an object store for the tests (only the first time)"
        )
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise ServerError(f"{tool} could not fetch {what}: {(done.stderr or done.stdout).strip()[-500:]}")


# ---- started -------------------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def started(name: str, cache: Path, directory: Path) -> Iterator[ObjectServer]:
    """Starts a server with nothing in it, on a free port of this machine. It ends with the block.

    Args:
        name: one of `NAMES`.
        cache: what `fetch` has filled.
        directory: an empty one, for settings and logs.
    """
    with {"moto": _moto, "s3proxy": _s3proxy, "azurite": _running_azurite}[name](cache, directory) as server:
        yield server


@contextlib.contextmanager
def _moto(cache: Path, directory: Path) -> Iterator[ObjectServer]:
    from moto.moto_server.threaded_moto_server import ThreadedMotoServer

    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    yield _s3("moto", f"http://{host}:{port}")
    server.stop()


@contextlib.contextmanager
def _s3proxy(cache: Path, directory: Path) -> Iterator[ObjectServer]:
    (directory / "objects").mkdir()
    (directory / "s3proxy.conf").write_text(f"{_S3PROXY_SETTINGS}jclouds.filesystem.basedir={directory / 'objects'}\n")
    (directory / "logback.xml").write_text(_S3PROXY_LOG)
    java = str(Path(os.environ["JAVA_HOME"], "bin", "java")) if os.environ.get("JAVA_HOME") else "java"
    quick = ["-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xmx512m", "-Dlogback.configurationFile=logback.xml"]
    command = [java, *quick, "-cp", f"{cache / 's3proxy'}/*", "org.gaul.s3proxy.Main", "--properties", "s3proxy.conf"]
    with _process(command, directory, r"Started .*\{(127\.0\.0\.1:\d+)\}") as address:
        yield _s3("s3proxy", f"http://{address}")


@contextlib.contextmanager
def _running_azurite(cache: Path, directory: Path) -> Iterator[ObjectServer]:
    program = str(_azurite(cache) / "node_modules" / ".bin" / "azurite-blob")
    quiet = ["--silent", "--disableTelemetry", "--skipApiVersionCheck", "--inMemoryPersistence"]
    accounts = {"AZURITE_ACCOUNTS": f"{ACCOUNT}:{ACCOUNT_KEY}"}
    with _process([program, "--blobPort", "0", *quiet], directory, r"listens on http://(\S+:\d+)", accounts) as address:
        endpoint = f"http://{address}/{ACCOUNT}"
        options = {"endpoint": endpoint, "account": ACCOUNT, "credentials": lambda: {"access_key": ACCOUNT_KEY}}
        environment = {"AZURE_STORAGE_ACCOUNT_NAME": ACCOUNT, "AZURE_STORAGE_ACCOUNT_KEY": ACCOUNT_KEY}
        yield ObjectServer("azurite", "az", options, environment, lambda name: _make_container(endpoint, name))


@contextlib.contextmanager
def _process(command: list[str], directory: Path, listens: str, environment: Mapping[str, str] | None = None) -> Iterator[str]:
    """Runs a server, and gives the address that it says it listens on."""
    log = directory / "log"
    with log.open("wb") as out:
        process = subprocess.Popen(command, cwd=directory, stdout=out, stderr=out, env=os.environ | (environment or {}))
    try:
        yield _said(process, log, listens)
    finally:
        process.kill()
        process.wait()


def _said(process: subprocess.Popen[bytes], log: Path, words: str) -> str:
    deadline = time.monotonic() + START_S
    while (found := re.search(words, log.read_text(errors="replace"))) is None:
        if process.poll() is not None or time.monotonic() > deadline:
            raise ServerError(f"{process.args!r} did not start: {log.read_text(errors='replace')[-1000:]}")
        time.sleep(0.05)
    return found[1]


# ---- buckets and containers ----------------------------------------------------------------------------------------------


def _s3(name: str, endpoint: str) -> ObjectServer:
    keys = {"access_key_id": USER, "secret_access_key": SECRET}
    options = {"endpoint": endpoint, "region": "us-east-1", "credentials": lambda: keys}
    environment = {"AWS_ACCESS_KEY_ID": USER, "AWS_SECRET_ACCESS_KEY": SECRET}

    def make(bucket: str) -> None:
        import boto3

        given = {"aws_access_key_id": USER, "aws_secret_access_key": SECRET, "region_name": "us-east-1"}
        client = boto3.client("s3", endpoint_url=endpoint, **given)
        client.create_bucket(Bucket=bucket)
        client.close()

    return ObjectServer(name, "s3", options, environment, make)


def _make_container(endpoint: str, name: str) -> None:
    """Creates a container, which obstore cannot: a request signed with the account's key."""
    headers = {"x-ms-date": formatdate(usegmt=True), "x-ms-version": "2021-12-02"}
    named = "".join(f"{key}:{value}\n" for key, value in sorted(headers.items()))
    text = "PUT" + "\n" * 12 + f"{named}/{ACCOUNT}/{ACCOUNT}/{name}\nrestype:container"
    signature = base64.b64encode(hmac.digest(base64.b64decode(ACCOUNT_KEY), text.encode(), hashlib.sha256)).decode()
    headers |= {"Authorization": f"SharedKey {ACCOUNT}:{signature}", "Content-Length": "0"}
    request = urllib.request.Request(f"{endpoint}/{name}?restype=container", method="PUT", headers=headers)
    with urllib.request.urlopen(request):
        pass


if __name__ == "__main__":
    try:
        fetch(Path(sys.argv[2]).resolve())
    except ServerError as error:
        sys.exit(str(error))
