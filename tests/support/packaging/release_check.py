"""`./dev release-check`: wheel and sdist as a stranger would install them, with the network, into environments that have nothing.

    ./dev release-check        # a few minutes, most of them downloads; says what the installation weighs and how long it takes

tests/test_packaging.py looks at the same without the network, in every run of the tests.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
import time
from pathlib import Path

from support.docs.pages import code
from support.packaging.built import PROJECT, Environment, build

# Run against what is installed, from a place without the sources: the engine, its kernels, and real brokers' directories.
TESTS = ("test_store.py", "test_config.py", "log/test_golden.py", "log/test_recovery.py", "record/test_decoder.py")
# Each extra by itself: a program that needs what it brings.
EXTRAS = {
    "cli": "import sys; from pylog.cli import main; sys.argv = ['pylog', '--help']; main()",
    "ui": "from pylog.ui.server import WindowServer; print(WindowServer.__name__)",
    "objects": (
        "import obstore, pylog; store = pylog.open('shop'); store.create_topic('t'); _ = store.log('t').append(b'x');"
        " print(store.archive('file:///' + __import__('os').getcwd().lstrip('/') + '/archive', include_active=True).url)"
    ),
    "spark": "import pyspark.sql.datasource, pylog.spark, pyspark_pylog; print(pyspark_pylog.DefaultSource.name())",
}
TEST_TOOLS = ("pytest>=9", "hypothesis>=6.140", "psutil>=7")
PIP = ("-m", "pip", "install", "--quiet", "--disable-pip-version-check")


def main() -> int:
    """Builds, installs, tries; raises where something is not as it should be."""
    with tempfile.TemporaryDirectory() as directory:
        work = Path(directory)
        wheel, sdist = build("wheel", work / "dist"), build("sdist", work / "dist")
        print(f"{wheel.name}: {_size(wheel)}; {sdist.name}: {_size(sdist)}", flush=True)
        _try_wheel(wheel, work)
        _try_sdist(sdist, work)
        for extra, program in EXTRAS.items():
            _try_extra(wheel, extra, program, work)
    print("all is well")
    return 0


def _try_wheel(wheel: Path, work: Path) -> None:
    environment = Environment(work / "wheel", with_pip=True)
    empty = _weight(environment.packages)
    begin = time.perf_counter()
    environment.run(*PIP, wheel, cwd=work)
    print(f"pip install: {time.perf_counter() - begin:.0f} s", flush=True)
    own = _weight(environment.packages / "pylog")
    print(f"on the disk: {own / 1e6:.1f} MB, and its dependencies {(_weight(environment.packages) - empty - own) / 1e6:.0f} MB")
    print(f"import pylog: {_import_ms(environment, work):.0f} ms, the start of Python left out")
    _try_quickstart(environment, work / "quickstart")
    environment.run(*PIP, f"{wheel}[cli]", cwd=work)
    print(environment.run("-m", "pylog", "topics", work / "quickstart" / "shop", cwd=work), flush=True)
    _run_tests(environment, work)


def _try_sdist(sdist: Path, work: Path) -> None:
    environment = Environment(work / "sdist", with_pip=True)
    environment.run(*PIP, sdist, cwd=work)
    _try_quickstart(environment, work / "from-sdist")


def _try_extra(wheel: Path, extra: str, program: str, work: Path) -> None:
    environment = Environment(work / f"only-{extra}", with_pip=True)
    environment.run(*PIP, f"{wheel}[{extra}]", cwd=work)
    print(f"only the extra {extra}: {environment.run('-c', program, cwd=work).splitlines()[0]}", flush=True)


def _try_quickstart(environment: Environment, directory: Path) -> None:
    directory.mkdir()
    quickstart = next(block for block in code("README.md") if block.heading == "Try it")
    printed = environment.run("-c", quickstart.source, cwd=directory)
    print(f"the README's example prints:\n{printed}", flush=True)


def _run_tests(environment: Environment, work: Path) -> None:
    shutil.copytree(PROJECT / "tests", work / "project" / "tests", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(PROJECT / "pyproject.toml", work / "project")
    environment.run(*PIP, *TEST_TOOLS, cwd=work)
    names = [f"tests/{name}" for name in TESTS]
    printed = environment.run("-m", "pytest", "-q", "--no-header", *names, cwd=work / "project")
    print(printed.strip().splitlines()[-1], flush=True)


def _import_ms(environment: Environment, work: Path) -> float:
    """The median of nine, less that of a program that does nothing."""
    return 1e3 * (_seconds(environment, "import pylog", work) - _seconds(environment, "pass", work))


def _seconds(environment: Environment, program: str, work: Path) -> float:
    taken = []
    for _ in range(9):
        begin = time.perf_counter()
        environment.run("-c", program, cwd=work)
        taken.append(time.perf_counter() - begin)
    return sorted(taken)[len(taken) // 2]


def _weight(directory: Path) -> int:
    """Bytes of its files; what Python compiles beside them is left out."""
    return sum(path.stat().st_size for path in directory.rglob("*") if path.is_file() and path.suffix != ".pyc")


def _size(path: Path) -> str:
    return f"{path.stat().st_size / 1e6:.2f} MB"


if __name__ == "__main__":
    sys.exit(main())
