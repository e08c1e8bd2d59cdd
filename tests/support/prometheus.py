"""Prometheus and promtool: where they are, what promtool says, and a server that scrapes until a block ends."""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

PROJECT: Final = Path(__file__).resolve().parents[2]
UNPACKED: Final = PROJECT / ".cache" / "prometheus" / "usr" / "bin"  # `./dev setup` unpacks the package there
STARTS_WITHIN_S: Final = 30.0
_INSTALL: Final = "Run `./dev setup`: it fetches the package prometheus. On Fedora and macOS install it yourself."


def tool(name: str) -> str:
    """The path of `prometheus` or `promtool`. Its absence is a failure."""
    found = shutil.which(name) or shutil.which(name, path=str(UNPACKED))
    if found is None:
        raise FileNotFoundError(f"{name} is not there. {_INSTALL}")
    return found


def promtool(*arguments: str | Path, text: str = "") -> tuple[int, str]:
    """Runs promtool. Returns its exit code, and what it printed."""
    done = subprocess.run(
        [tool("promtool"), *map(str, arguments)], input=text, capture_output=True, text=True, timeout=60, check=False
    )
    return done.returncode, done.stdout + done.stderr


class Prometheus:
    """A Prometheus that runs.

    Args:
        url: of its HTTP interface.
    """

    def __init__(self, url: str) -> None:
        self._url = url

    def query(self, expression: str) -> list[dict[str, Any]]:
        """The samples that an expression gives now."""
        answer = self._get("query", query=expression)
        return list(answer["data"]["result"])

    def alerts(self) -> set[str]:
        """The names of the alerts that fire."""
        return {each["labels"]["alertname"] for each in self._get("alerts")["data"]["alerts"] if each["state"] == "firing"}

    def targets(self) -> list[dict[str, Any]]:
        """The targets that it scrapes."""
        return list(self._get("targets")["data"]["activeTargets"])

    def _get(self, name: str, **parameters: str) -> dict[str, Any]:
        with urllib.request.urlopen(f"{self._url}/api/v1/{name}?{urllib.parse.urlencode(parameters)}", timeout=10) as answer:
            found = json.load(answer)
        assert found["status"] == "success", found
        return dict(found)


@contextmanager
def running(directory: Path, target: str, rules: Path, labels: str) -> Iterator[Prometheus]:
    """Runs Prometheus, which scrapes a target each second.

    Args:
        directory: for its configuration and data.
        target: host and port.
        rules: a file of rules.
        labels: that it adds to each sample, as YAML writes them.
    """
    port = _free_port()
    config = directory / "prometheus.yml"
    config.write_text(
        "global: {scrape_interval: 1s, evaluation_interval: 1s}\n"
        f"rule_files: ['{rules}']\n"
        "scrape_configs:\n"
        f"- job_name: pylog\n  static_configs: [{{targets: ['{target}'], labels: {{{labels}}}}}]\n"
    )
    command = [
        tool("prometheus"),
        f"--config.file={config}",
        f"--storage.tsdb.path={directory / 'data'}",
        f"--web.listen-address=127.0.0.1:{port}",
        "--log.level=error",
    ]
    with (directory / "prometheus.txt").open("wb") as output:
        process = subprocess.Popen(command, stdout=output, stderr=output)
    try:
        url = f"http://127.0.0.1:{port}"
        _wait_for(url, process, directory / "prometheus.txt")
        yield Prometheus(url)
    finally:
        process.terminate()
        process.wait(30)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _wait_for(url: str, process: subprocess.Popen[bytes], output: Path) -> None:
    deadline = time.monotonic() + STARTS_WITHIN_S
    while time.monotonic() < deadline:
        if process.poll() is not None:
            break
        try:
            with urllib.request.urlopen(f"{url}/-/ready", timeout=1):
                return
        except (urllib.error.URLError, OSError):
            time.sleep(0.1)
    raise RuntimeError(f"Prometheus does not start: {output.read_text()}")
