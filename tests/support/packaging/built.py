"""pylog as its users get it: wheel and sdist, and empty environments to install them into."""

from __future__ import annotations

import subprocess
import sys
import sysconfig
import tarfile
import venv
from pathlib import Path

PROJECT = Path(__file__).resolve().parents[3]


def build(kind: str, target: Path, source: Path = PROJECT) -> Path:
    """Builds a `wheel` or an `sdist` of a source tree into a directory, without the network."""
    target.mkdir(parents=True, exist_ok=True)
    before = set(target.iterdir())
    command = [sys.executable, "-m", "hatchling", "build", "-t", kind, "-d", target]
    subprocess.run(command, cwd=source, check=True, capture_output=True)
    (made,) = set(target.iterdir()) - before
    return made


def unpacked(sdist: Path, target: Path) -> Path:
    """The directory in an sdist, as an installer unpacks it."""
    with tarfile.open(sdist) as archive:
        archive.extractall(target, filter="data")
    (root,) = target.iterdir()
    return root


class Environment:
    """A Python environment of its own. Programs run isolated: neither PYTHONPATH nor the working directory is searched."""

    def __init__(self, directory: Path, *, with_pip: bool) -> None:
        self.directory = directory
        venv.create(directory, with_pip=with_pip)
        self.python = directory / "bin" / "python"
        (self.packages,) = directory.glob("lib/python*/site-packages")

    def borrow_dependencies(self) -> None:
        """Finds what is not here in the environment that runs the tests; its editable pylog is not found by this."""
        (self.packages / "borrowed.pth").write_text(f"{sysconfig.get_path('purelib')}\n")

    def install_alone(self, wheel: Path) -> None:
        """Installs a wheel, without its dependencies and without the network."""
        pip = [sys.executable, "-m", "pip", "--python", self.python, "install", "--quiet"]
        subprocess.run([*pip, "--no-deps", "--no-index", wheel], check=True, capture_output=True)

    def run(self, *arguments: object, cwd: Path) -> str:
        """Runs Python; returns what it prints.

        Raises:
            AssertionError: it ended with an error; the message has what it said.
        """
        ended = subprocess.run([self.python, "-I", *map(str, arguments)], cwd=cwd, capture_output=True, text=True, check=False)
        assert ended.returncode == 0, ended.stdout + ended.stderr
        return ended.stdout
