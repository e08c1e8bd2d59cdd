"""The pytest plug-in that comes with pylog: the fixtures `kafka` and `pylog_store`.

    def test_a_paid_order_is_shipped(kafka):
        kafka.send("orders", b"paid")
        my_program.run_once()  # uses kafka-python
        assert kafka.values("shipments") == [b"shipped"]

Each test has a Kafka of its own in memory. `@pytest.mark.pylog_kafka(directory=True)` puts it into `tmp_path`, and
`@pytest.mark.pylog_kafka(clock=True)` gives it a clock that the test moves: `kafka.clock`.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from typing import Any

import pytest

_OPTION = "pylog_kafka"
_LEFT_OPEN = "always:.* was not closed by the test:ResourceWarning"  # which Python hides by default


def pytest_addoption(parser: pytest.Parser) -> None:
    """Adds `--pylog-kafka` and the option `pylog_kafka` of the configuration file."""
    help_text = "make `import kafka` mean pylog's layer before the tests are collected"
    parser.addoption("--pylog-kafka", action="store_true", help=help_text)
    parser.addini(_OPTION, help_text, type="bool", default=False)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_load_initial_conftests(early_config: pytest.Config) -> Generator[None, object, object]:
    """Installs the layer, if that is requested, before the first `conftest.py` can import kafka-python."""
    _install_if_asked(early_config, bool(early_config.known_args_namespace.pylog_kafka))
    return (yield)


def pytest_configure(config: pytest.Config) -> None:
    """Registers the mark, and installs the layer if that is requested and a `conftest.py` has named this plug-in.

    A client that a test leaves open is shown, unless the project's own filters of warnings say otherwise.
    """
    config.getini("filterwarnings").insert(0, _LEFT_OPEN)  # later filters win
    config.addinivalue_line("markers", "pylog_kafka(directory=False, clock=False): how the test's Kafka is made")
    _install_if_asked(config, bool(config.getoption("--pylog-kafka")))


def _install_if_asked(config: pytest.Config, is_asked: bool) -> None:
    if not (is_asked or config.getini(_OPTION)):
        return
    from pylog.compat import install
    from pylog.compat.installing import installed

    if not installed():
        install("memory:")


@pytest.fixture
def kafka(request: pytest.FixtureRequest) -> Iterator[Any]:
    """Provides a fresh Kafka. kafka-python's names mean pylog's layer during the test, also in modules that imported them."""
    from pylog.compat.fixture import kafka_for_test

    with kafka_for_test(*_how(request)) as made:
        yield made


@pytest.fixture
def pylog_store(request: pytest.FixtureRequest) -> Iterator[Any]:
    """Provides a fresh pylog store for a test, without kafka-python's names. With `kafka` in the same test, it is its store."""
    from pylog.compat.fixture import KafkaForTests, kafka_for_test

    if "kafka" in request.fixturenames and isinstance(used := request.getfixturevalue("kafka"), KafkaForTests):
        yield used.store
        return
    with kafka_for_test(*_how(request), replace=False) as made:
        yield made.store


def _how(request: pytest.FixtureRequest) -> tuple[str | None, Any]:
    """Returns the directory and the clock of the test's mark."""
    from pylog.clock import ManualClock, SystemClock

    mark = request.node.get_closest_marker("pylog_kafka")
    given = {} if mark is None else mark.kwargs
    directory = str(request.getfixturevalue("tmp_path") / "kafka") if given.get("directory") else None
    return directory, ManualClock(SystemClock().now_ms()) if given.get("clock") else None
