"""Object stores in processes of their own. What they need is fetched by `./dev setup`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from support.kafka_tiers import key, unpacked  # noqa: F401 - fixtures
from support.servers.servers import NAMES, ObjectServer, ServerError, fetch, started

CACHE = Path(__file__).resolve().parents[2] / ".cache" / "servers"


@pytest.fixture(scope="session")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, ObjectServer]]:
    """All servers by name. The absence of one is a failure: pylog promises to work on each of them."""
    with ExitStack() as stack:
        try:
            fetch(CACHE)
            yield {name: stack.enter_context(started(name, CACHE, tmp_path_factory.mktemp(name))) for name in NAMES}
        except ServerError as error:
            pytest.fail(f"{error}\nRun `./dev setup`: it installs Maven and Node.js and fetches the servers.", pytrace=False)


@pytest.fixture(params=NAMES)
def server(request: pytest.FixtureRequest, servers: dict[str, ObjectServer]) -> ObjectServer:
    return servers[request.param]
