"""What is built is what users get: both packages, the type marker, the licence, nothing else; and it works where it is installed.

Nothing here needs the network: the empty environment borrows the dependencies from the one that runs the tests. That they
can be installed too is what `./dev release-check` tries.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

import pylog
from pylog import extras
from support.docs.pages import code
from support.packaging.built import PROJECT, Environment, build, unpacked
from support.packaging.release_check import EXTRAS

DISTRIBUTION = f"pylogdb-{pylog.__version__}.dist-info"


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build("wheel", tmp_path_factory.mktemp("dist"))


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Environment:
    """An environment with the wheel in it."""
    environment = Environment(tmp_path_factory.mktemp("empty") / "venv", with_pip=False)
    environment.borrow_dependencies()
    environment.install_alone(wheel)
    return environment


def contents(wheel: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(wheel) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


@pytest.mark.slow
def test_the_wheel_ships_pylog_and_its_spark_door_with_their_types_and_licence(wheel: Path) -> None:
    names = contents(wheel).keys()
    assert {name.split("/")[0] for name in names} == {"pylog", "pyspark_pylog", DISTRIBUTION}
    assert "pylog/py.typed" in names
    assert f"{DISTRIBUTION}/licenses/LICENSE" in names
    in_sources = {path.relative_to(PROJECT / "src").as_posix() for path in (PROJECT / "src").rglob("*.py")}
    assert {name for name in names if name.endswith(".py")} == in_sources


@pytest.mark.slow
def test_the_wheel_brings_the_program(wheel: Path) -> None:
    assert contents(wheel)[f"{DISTRIBUTION}/entry_points.txt"].decode().split("\n")[:2] == [
        "[console_scripts]",
        "pylog = pylog.cli:main",
    ]


def test_the_wheel_asks_for_no_more_than_it_needs(wheel: Path) -> None:
    metadata = contents(wheel)[f"{DISTRIBUTION}/METADATA"].decode()
    needed = {
        line.split()[1].split(">")[0]
        for line in metadata.splitlines()
        if line.startswith("Requires-Dist") and "extra ==" not in line
    }
    assert needed == {"numpy", "numba", "pyarrow", "sortedcontainers", "msgspec", "google-crc32c", "cramjam"}


def test_the_program_asks_for_a_cyclopts_that_puts_examples_below_the_options() -> None:
    declared = tomllib.loads((PROJECT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    asked = {name: next(line for line in declared[name] if line.startswith("cyclopts")) for name in ("cli", "test")}
    assert asked == {"cli": "cyclopts>=4.1", "test": "cyclopts>=4.1"}  # 4.0 has no help_epilogue: every command died


def test_each_extra_of_users_is_installed_by_itself_by_the_release_check() -> None:
    declared = tomllib.loads((PROJECT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert set(EXTRAS) == set(declared) - {"test", "bench", "docs"}  # those are for work on pylog itself


def test_errors_name_the_packages_of_the_extras_that_are_declared() -> None:
    declared = tomllib.loads((PROJECT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert {name: list(packages) for name, packages in extras.EXTRAS.items()} == {name: declared[name] for name in EXTRAS}


def test_nothing_tells_users_to_install_pylog_from_a_package_index() -> None:
    """It is on none: the name may be taken by somebody else."""
    places = [PROJECT / "README.md", *(PROJECT / "docs").rglob("*.md"), *(PROJECT / "src").rglob("*.py")]
    assert not [place for place in places if re.search(r"pip install ['\"]?pylog", place.read_text())]


def test_spark_s_package_says_what_to_install() -> None:
    program = "import sys; sys.modules['pyspark'] = None; import pyspark_pylog"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert "pylog.spark requires PySpark 4.1 or newer; install it: pip install 'pyspark>=4.1'" in done.stderr


@pytest.mark.slow
def test_the_sdist_builds_the_same_wheel(wheel: Path, tmp_path: Path) -> None:
    source = unpacked(build("sdist", tmp_path / "dist"), tmp_path / "unpacked")
    assert not [name for name in (".cache", ".venv", ".git", "site") if (source / name).exists()]
    assert contents(build("wheel", tmp_path / "again", source)) == contents(wheel)


@pytest.mark.slow
def test_the_installed_package_runs_and_does_as_the_readme_shows(installed: Environment, tmp_path: Path) -> None:
    where = "import importlib.metadata as m, pylog; print(pylog.__file__, pylog.__version__, m.version('pylogdb'))"
    path, *versions = installed.run("-c", where, cwd=tmp_path).split()
    assert Path(path).is_relative_to(installed.directory)
    assert versions == [pylog.__version__] * 2
    quickstart = next(block for block in code("README.md") if block.heading == "Try it")
    printed = installed.run("-c", quickstart.source, cwd=tmp_path)
    assert printed == quickstart.expected


@pytest.mark.slow
def test_spark_finds_the_data_source_that_is_installed(installed: Environment, tmp_path: Path) -> None:
    asked = "import pyspark_pylog; print(pyspark_pylog.DefaultSource.name(), pyspark_pylog.__file__)"
    name, path = installed.run("-W", "ignore", "-c", asked, cwd=tmp_path).split()
    assert name == "pylog"
    assert Path(path).is_relative_to(installed.directory)


@pytest.mark.slow
def test_every_command_that_the_project_names_is_installed_and_answers(installed: Environment, tmp_path: Path) -> None:
    scripts = tomllib.loads((PROJECT / "pyproject.toml").read_text())["project"].get("scripts", {})
    for name in scripts:
        ended = subprocess.run(
            [installed.python.parent / name, "--version"], cwd=tmp_path, capture_output=True, text=True, check=True
        )
        assert ended.stdout.strip() == pylog.__version__


def test_the_version_is_the_same_everywhere_and_in_the_change_log() -> None:
    project = tomllib.loads((PROJECT / "pyproject.toml").read_text())["project"]
    newest = re.search(r"^## \[(.+?)\]", (PROJECT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert newest is not None
    assert "version" not in project  # hatchling takes it from the package: it is written once
    assert newest[1] == pylog.__version__


def test_the_lock_names_no_registry_and_pins_by_hash() -> None:
    lock = (PROJECT / "requirements.lock").read_text()
    assert "://" not in lock
    assert all("==" in line for line in lock.splitlines() if line and not line.startswith((" ", "#")))
    assert lock.count("--hash=sha256:") > lock.count("==")


def test_free_threaded_python_is_refused_in_words() -> None:
    program = "import sys; sys._is_gil_enabled = lambda: False; import pylog"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "pylog does not support free-threaded Python" in done.stderr
    assert "PYTHON_GIL=1" in done.stderr
