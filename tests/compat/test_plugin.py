"""The pytest plug-in, in pytest processes of its own; and `python -m pylog.compat`."""

from __future__ import annotations

import importlib.metadata
import os
import re
import subprocess
import sys
import textwrap
import threading
from pathlib import Path

import pytest

from pylog.compat.fixture import kafka_for_test
from support import warm

PROJECT = Path(__file__).resolve().parents[2]
PROGRAM = """
    from kafka import KafkaConsumer, KafkaProducer
    from kafka.errors import KafkaTimeoutError

    def produce(count):
        with KafkaProducer(bootstrap_servers="broker:9092") as producer:
            for number in range(count):
                producer.send("orders", b"%d" % number)

    def consume():
        options = {"group_id": "billing", "auto_offset_reset": "earliest", "consumer_timeout_ms": 0}
        with KafkaConsumer("orders", bootstrap_servers="broker:9092", **options) as consumer:
            return [message.value for message in consumer]
"""
TESTS = """
    import shop

    def test_a_program_that_imported_the_real_package_uses_this_tests_kafka(kafka):
        kafka.topic("orders")
        shop.produce(2)
        assert shop.consume() == [b"0", b"1"]
        assert kafka.values("orders") == [b"0", b"1"]
        assert list(kafka.committed("billing").values()) == [2]

    def test_each_test_has_a_kafka_of_its_own(kafka):
        assert kafka.values("orders") == []
        assert kafka.send("orders", "text", key="k") == 0
        assert shop.consume() == [b"text"]
        assert kafka.bootstrap_servers.startswith("pylog+memory://")
"""


def run(tmp_path: Path, *arguments: str, tests: str = TESTS, **environment: str) -> subprocess.CompletedProcess[str]:
    (tmp_path / "shop.py").write_text(textwrap.dedent(PROGRAM))
    (tmp_path / "test_shop.py").write_text(textwrap.dedent(tests))
    known = {each.value for each in importlib.metadata.entry_points(group="pytest11")}
    plugin = [] if "pylog.testing.plugin" in known else ["-p", "pylog.testing.plugin"]
    command = ["-m", "pytest", "-q", "-p", "no:cacheprovider", *plugin, *arguments, "test_shop.py"]
    return started(command, tmp_path, **environment)


def started(command: list[str], tmp_path: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    return warm.run(command, cwd=tmp_path, env=environment_with(**environment), timeout=600)


def environment_with(*first: str, **environment: str) -> dict[str, str]:
    """This process's, and variables; Python finds these folders first, and then those of pylog."""
    paths = os.pathsep.join([*first, str(PROJECT / "src"), os.environ.get("PYTHONPATH", "")])
    return os.environ | {"PYTHONPATH": paths} | environment


@pytest.mark.sampled(3)
@pytest.mark.parametrize("arguments", [(), ("--pylog-kafka",), ("-o", "pylog_kafka=true")])
def test_the_fixture_replaces_the_real_package_or_is_installed_before_it(arguments: tuple[str, ...], tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text("import shop\n")  # which imports kafka-python, long before the collection
    done = run(tmp_path, *arguments)
    assert "2 passed" in done.stdout, done.stdout + done.stderr
    made = {each.name for each in tmp_path.iterdir()} - {"__pycache__"}
    assert made == {"conftest.py", "shop.py", "test_shop.py"}


@pytest.mark.slow
def test_the_real_names_are_back_after_the_test_and_marks_choose_a_directory_and_a_clock(tmp_path: Path) -> None:
    tests = """
        import kafka as module
        import pytest
        import shop

        real = [shop.KafkaProducer]  # in a list: the fixture replaces names of modules

        def test_replaced(kafka):
            import kafka.errors
            assert shop.KafkaProducer is not real[0]
            assert shop.KafkaTimeoutError is kafka.errors.KafkaTimeoutError
            assert module.KafkaProducer is not real[0]

        def test_back():
            import kafka
            assert shop.KafkaProducer is real[0] is kafka.KafkaProducer

        @pytest.mark.pylog_kafka(directory=True)
        def test_directory(kafka, tmp_path):
            kafka.send("orders", b"x")
            assert (tmp_path / "kafka" / "orders-0").is_dir()

        @pytest.mark.pylog_kafka(clock=True)
        def test_clock(kafka):
            before = kafka.clock.now_ms()
            kafka.clock.advance(1000)
            kafka.send("orders", b"x")
            assert next(kafka.store.log("orders").records()).timestamp == before + 1000

        def test_store(pylog_store):
            pylog_store.create_topic("orders")
            assert shop.KafkaProducer is real[0]
    """
    done = run(tmp_path, tests=tests)
    assert "5 passed" in done.stdout, done.stdout + done.stderr


@pytest.mark.slow
def test_clients_that_a_test_leaves_open_are_closed_with_a_warning_and_no_thread_remains(tmp_path: Path) -> None:
    tests = """
        import threading
        import shop

        left = []

        def test_leaves(kafka):
            left.append(shop.KafkaProducer())
            left.append(shop.KafkaConsumer("orders", group_id="g"))
            left[0].send("orders", b"x").get(60)
            left[1].poll()

        def test_nothing_remains():
            assert all(client._closed for client in left)
            assert not [thread for thread in threading.enumerate() if thread.name.startswith("pylog")]
    """
    done = run(tmp_path, tests=tests)
    assert "2 passed" in done.stdout, done.stdout + done.stderr
    assert len(set(re.findall(r"ResourceWarning: (\w+) '", done.stdout))) == 2, done.stdout
    hidden = run(tmp_path, "-W", "ignore::ResourceWarning", tests=tests)
    assert "2 passed" in hidden.stdout, hidden.stdout + hidden.stderr
    assert "ResourceWarning" not in hidden.stdout


def test_a_thread_that_another_one_is_starting_at_the_end_of_a_test_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """A client that a program drops is closed by such a thread. `threading.enumerate` lists it before it can be joined."""
    threads, starting = threading.enumerate, threading.Thread(name="pylog-dropped")
    seen: list[int] = []

    def with_one_that_starts() -> list[threading.Thread]:
        seen.append(len(seen))
        return [*threads(), starting] if 1 < len(seen) < 5 else threads()  # the first look is that of the beginning

    monkeypatch.setattr(threading, "enumerate", with_one_that_starts)
    with kafka_for_test(replace=False):
        pass
    assert len(seen) >= 5


@pytest.mark.slow
def test_clients_that_are_left_open_are_closed_if_warnings_are_errors_and_if_closing_one_fails(tmp_path: Path) -> None:
    tests = """
        import shop

        left = []

        class Serializer:
            def serialize(self, topic, headers, data):
                return data

            def close(self):
                raise ZeroDivisionError

        def test_leaves(kafka):
            left.append(shop.KafkaProducer(value_serializer=Serializer()))
            left.append(shop.KafkaConsumer("orders", group_id="g"))
            left[1].poll()

        def test_nothing_remains():
            assert all(client._closed for client in left)

        def test_the_store_alone_is_that_of_the_kafka(kafka, pylog_store):
            shop.produce(1)
            assert pylog_store is kafka.store
            assert list(pylog_store.topics()) == ["orders"]
    """
    done = run(tmp_path, "-W", "error::ResourceWarning", tests=tests)
    assert "3 passed, " in done.stdout, done.stdout + done.stderr
    assert re.search(r"ERROR test_shop.py::test_leaves - ResourceWarning: Kafka\w+ '", done.stdout), done.stdout


@pytest.mark.slow
def test_a_hundred_tests_with_a_topic_five_sends_and_a_group_take_three_seconds_of_cpu_at_most(tmp_path: Path) -> None:
    """A thousand took 12 s of CPU. They leave nothing: as many threads and descriptors as before, and no file."""
    tests = """
        import os
        import threading
        import time
        from pathlib import Path
        import pytest
        import shop

        def held():
            files = {path for path in Path().rglob("*") if not {"__pycache__", ".pytest_cache"} & set(path.parts)}
            return threading.active_count(), len(os.listdir("/dev/fd")), files

        def use(kafka):
            kafka.topic("orders")
            shop.produce(5)
            assert len(shop.consume()) == 5

        @pytest.mark.parametrize("number", range(5))
        def test_first(kafka, number):  # they import and compile
            use(kafka)

        begun = []

        def test_begin():
            begun.extend([held(), time.process_time()])

        @pytest.mark.parametrize("number", range(100))
        def test_one(kafka, number):
            use(kafka)

        def test_end():
            assert time.process_time() - begun[1] <= 1.5 * 3.0
            assert held() == begun[0]
    """
    done = run(tmp_path, tests=tests)
    assert "107 passed" in done.stdout, done.stdout + done.stderr


# ---- python -m pylog.compat ------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_program_or_a_module_runs_unmodified_with_its_arguments(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    program = tmp_path / "sub" / "main.py"
    program.write_text("import sys, shop\nshop.produce(3)\nprint(sys.argv[1:], len(shop.consume()))\n")
    (tmp_path / "sub" / "shop.py").write_text(textwrap.dedent(PROGRAM))
    layer = ["-m", "pylog.compat"]
    done = started([*layer, "--directory", "store", str(program), "-x", "--memory"], tmp_path)
    assert done.stdout == "['-x', '--memory'] 3\n", done.stderr
    done = started([*layer, "--memory", "-m", "main", "-q", "--path", "y"], tmp_path / "sub")
    assert done.stdout == "['-q', '--path', 'y'] 3\n", done.stderr
    assert started(layer, tmp_path).returncode == 2
    assert (tmp_path / "store" / "orders-0").is_dir()


@pytest.mark.slow
def test_the_environment_alone_reaches_a_program_and_the_processes_that_it_starts(tmp_path: Path) -> None:
    path = started(["-m", "pylog.compat", "--path"], tmp_path).stdout.strip()
    (tmp_path / "shop.py").write_text(textwrap.dedent(PROGRAM))
    (tmp_path / "main.py").write_text(
        textwrap.dedent("""
            import multiprocessing, shop
            if __name__ == "__main__":
                process = multiprocessing.get_context("spawn").Process(target=shop.produce, args=(4,))
                process.start()
                process.join()
                print(len(shop.consume()))
        """)
    )
    environment = environment_with(path, PYLOG_KAFKA=str(tmp_path / "store"))
    done = subprocess.run([sys.executable, "main.py"], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.stdout == "4\n", done.stderr
