"""The golden corpus: partition directories that real Kafka brokers wrote, and what Kafka's own client read from them.

    for partition in partitions():                  # 217 of them; made from index.json alone, cheap enough to parametrise with
        pylog.open(partition.log_directory, mode="r")
        partition.expected()                        # what a consumer got, record by record

The archives of `tests/golden/` are unpacked once per test session, by whichever worker asks first, into the directory that
`PYLOG_GOLDEN_DIR` names (the conftest makes and removes it). What lies there is shared: tests that write take a copy
(`GoldenPartition.copy`, `GoldenCase.copy`, `CorruptVariant.copy`), or `UncleanCase.crashed`, which is a fresh one.
"""

from __future__ import annotations

import atexit
import contextlib
import fcntl
import functools
import hashlib
import json
import lzma
import os
import shutil
import tarfile
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ARCHIVES = Path(__file__).resolve().parents[2] / "golden"
VERSIONS = ("2.8.2", "3.9.1", "4.3.0")

Json = dict[str, Any]


# ---- what there is -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class GoldenCase:
    """One case of one broker version: a few partitions that belong together. `entry` is its part of index.json."""

    version: str
    name: str
    entry: Json = field(repr=False, compare=False)

    @property
    def directory(self) -> Path:
        """Where the manifests lie (`transactions.json`, `groups.json`, `expected.json`, dumps …)."""
        return unpacked(self.version) / "manifests" / self.name

    @property
    def log_directory(self) -> Path:
        """A Kafka log directory with this case's partitions, and the checkpoint files where the case has them."""
        return unpacked(self.version) / "logs" / self.name

    def copy(self, target: Path) -> Path:
        """A copy of the log directory that a test may change, file times kept."""
        return shutil.copytree(self.log_directory, target)

    def json(self, name: str) -> Any:
        """One of the case's own manifests."""
        return json.loads((self.directory / name).read_bytes())

    def text(self, name: str) -> str:
        """A manifest as text, decompressed if its name says so."""
        data = (self.directory / name).read_bytes()
        return (lzma.decompress(data) if name.endswith(".xz") else data).decode("utf-8", "replace")

    @property
    def partitions(self) -> tuple[GoldenPartition, ...]:
        return tuple(GoldenPartition(self, entry["tp"], entry) for entry in self.entry.get("partitions", []))


@dataclass(frozen=True)
class GoldenPartition:
    """One partition as a broker left it, and what Kafka's client said of it just before."""

    of: GoldenCase
    tp: str
    entry: Json = field(repr=False, compare=False)

    @property
    def id(self) -> str:
        """A name for pytest's parameters."""
        return f"{self.version}/{self.case}/{self.tp}"

    @property
    def version(self) -> str:
        return self.of.version

    @property
    def case(self) -> str:
        return self.of.name

    @property
    def topic(self) -> str:
        return self.tp.rpartition("-")[0]

    @property
    def partition(self) -> int:
        return int(self.tp.rpartition("-")[2])

    @property
    def log_directory(self) -> Path:
        """What `pylog.open(mode="r")` is given: holds `<topic>-<partition>/` and the other partitions of the case."""
        return self.of.log_directory

    @property
    def directory(self) -> Path:
        """The partition's own directory."""
        return self.log_directory / self.tp

    def copy(self, target: Path) -> Path:
        """A log directory at `target` with just this partition, that a test may change; file times are kept."""
        shutil.copytree(self.directory, target / self.tp)
        return target

    def expected(self) -> list[Json]:
        """What a read_uncommitted consumer got from the log start offset on, in the corpus' own notation (base64)."""
        return self._lines(self.entry["expected"])

    def expected_committed(self) -> list[Json]:
        """The same for read_committed."""
        return self._lines(self.entry.get("expectedCommitted", self.entry["expected"]))

    def _lines(self, name: str) -> list[Json]:
        return [json.loads(line) for line in self.of.text(name).splitlines()]

    @property
    def meta(self) -> Json:
        """Offsets, answers to searches by time, the topic's configuration (`tests/golden/README.md`)."""
        found: Json = self.of.json(self.entry["meta"])
        return found


@dataclass(frozen=True)
class CorruptVariant:
    """A damaged copy of a golden partition. `done` says what was done to `file`, not what should follow."""

    version: str
    base: str
    variant: str
    file: str
    done: str
    pristine: GoldenPartition = field(repr=False)

    @property
    def id(self) -> str:
        return f"{self.version}/{self.base}/{self.variant}"

    @property
    def log_directory(self) -> Path:
        return unpacked(self.version) / "variants" / self.base / self.variant

    @property
    def directory(self) -> Path:
        return self.log_directory / self.pristine.tp

    def copy(self, target: Path) -> Path:
        """A copy of the log directory that a test may change or repair."""
        return shutil.copytree(self.log_directory, target)


@dataclass(frozen=True)
class UncleanCase:
    """The log directory of a killed broker, some of its partitions changed afterwards.

    `after` is what the broker made of it when it was started again: the case's own partitions.
    """

    after: GoldenCase

    @property
    def version(self) -> str:
        return self.after.version

    @property
    def mutations(self) -> Json:
        """`changedAfterTheKill`: partition to what was done; `ackedAtLeast`: topic to a bound of what producers were told."""
        found: Json = self.after.json(self.after.entry["mutations"])
        return found

    def crashed(self, target: Path) -> Path:
        """Unpacks the directory as the kill left it below `target` and returns it; tests may write to it."""
        _extract(self.after.directory / self.after.entry["crashed"], target)
        (log_directory,) = target.iterdir()
        return log_directory


@functools.cache
def cases(version: str | None = None) -> tuple[GoldenCase, ...]:
    """Every case of one version, or of all."""
    if version is None:
        return tuple(case for each in VERSIONS for case in cases(each))
    index = _lists(version)[f"{version}/index.json"]
    return tuple(GoldenCase(version, entry["case"], entry) for entry in index["cases"])


@functools.cache
def _lists(version: str) -> dict[str, Any]:
    """The lists of cases and of damaged copies, by their names in the archive.

    They are read in one pass. To find a member by its name, or to go back to one, decompresses the archive once more.
    """
    with tarfile.open(_archive(version)) as archive:
        return {
            member.name: json.load(archive.extractfile(member))  # type: ignore[arg-type]
            for member in archive
            if member.name.endswith(("/index.json", "/variants.json"))
        }


def case(version: str, name: str) -> GoldenCase:
    """One case by its name."""
    return next(case for case in cases(version) if case.name == name)


@functools.cache
def partitions(version: str | None = None) -> tuple[GoldenPartition, ...]:
    """Every partition of every case."""
    return tuple(partition for case in cases(version) for partition in case.partitions)


@functools.cache
def corrupt_variants() -> tuple[CorruptVariant, ...]:
    """Every damaged copy."""
    return tuple(variant for case in cases() if "variants" in case.entry for variant in _variants_of(case))


def _variants_of(of: GoldenCase) -> Iterator[CorruptVariant]:
    for note in _lists(of.version)[f"{of.version}/{of.name}/{of.entry['variants']}"]:
        (pristine,) = case(of.version, note["base"]).partitions
        yield CorruptVariant(of.version, note["base"], note["variant"], note["file"], note["done"], pristine)


@functools.cache
def unclean_cases() -> tuple[UncleanCase, ...]:
    """Every directory of a killed broker."""
    return tuple(UncleanCase(case) for case in cases() if "crashed" in case.entry)


@functools.cache
def tool_output(name: str) -> str:
    """What DumpLogSegments of Kafka 4.3 printed, on stdout and then on stderr, file by file (`tests/golden/README.md`).

    `2.8.2/<case>/<partition>.deep`, with `+` for the `/` of a case; `options/…`; `corrupt/<base>/<variant>.deep`.
    """
    return (_tool_outputs() / name).read_bytes().decode()


@functools.cache
def _tool_outputs() -> Path:
    target = _root() / "dumps"
    with _lock(_root() / "dumps.lock"):
        if not target.exists():
            building = _root() / "dumps.building"
            shutil.rmtree(building, ignore_errors=True)
            _extract(ARCHIVES / "dumps.tar.xz", building)
            (building / "dumps").rename(target)
    return target


# ---- unpacking -----------------------------------------------------------------------------------------------------------


def _archive(version: str) -> Path:
    return ARCHIVES / f"kafka-{version}.tar.xz"


@functools.cache
def _root() -> Path:
    """The session's directory. Outside of pytest it lives as long as the process."""
    given = os.environ.get("PYLOG_GOLDEN_DIR")
    if given:
        return Path(given)
    made = tempfile.mkdtemp(prefix="pylog-golden-")
    atexit.register(shutil.rmtree, made, ignore_errors=True)
    return Path(made)


@functools.cache
def unpacked(version: str) -> Path:
    """The directory with `manifests/`, `logs/` and `variants/` of one version; the first of all workers to ask makes it."""
    digest = hashlib.sha256(_archive(version).read_bytes()).hexdigest()[:16]
    target = _root() / f"{version}-{digest}"
    with _lock(_root() / f"{version}.lock"):
        if not target.exists():
            building = target.with_name(target.name + ".building")
            shutil.rmtree(building, ignore_errors=True)
            _build(version, building)
            building.rename(target)
    return target


@contextlib.contextmanager
def _lock(path: Path) -> Iterator[None]:
    with path.open("wb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _extract(archive: Path, target: Path) -> None:
    with tarfile.open(archive) as opened:
        opened.extractall(target, filter="data")


def _build(version: str, root: Path) -> None:
    _extract(_archive(version), root)
    (root / version).rename(root / "manifests")
    for case in cases(version):
        _build_logs(case, root / "manifests" / case.name, root / "logs" / case.name)
        if "variants" in case.entry:
            _build_variants(root / "manifests" / case.name / case.entry["tar"], version, root / "variants")


def _build_logs(case: GoldenCase, manifests: Path, logs: Path) -> None:
    """Makes a log directory of a case: the broker's own where the case has it, else one put together."""
    logs.parent.mkdir(parents=True, exist_ok=True)
    if "logdir" in case.entry:
        (manifests / case.entry["logdir"]).rename(logs)
    else:
        logs.mkdir()
        for checkpoint in manifests.glob("*-checkpoint"):
            shutil.copy2(checkpoint, logs)
    for entry in case.entry.get("partitions", []):
        if "tar" in entry:
            _extract(manifests / entry["tar"], logs)
        elif "logdir" not in case.entry:
            (manifests / entry["dir"]).rename(logs / entry["tp"])
        _set_times(logs / entry["tp"], entry.get("logMtimes", {}))  # the inner archives have the times themselves


def _build_variants(archive: Path, version: str, target: Path) -> None:
    _extract(archive, target)
    for variant in corrupt_variants():
        if variant.version == version:
            directory = target / variant.base / variant.variant / variant.pristine.tp
            _set_times(directory, variant.pristine.entry.get("logMtimes", {}))


def _set_times(directory: Path, mtimes: dict[str, int]) -> None:
    """Gives the `.log` files the times they had at the broker: a search by timestamp falls back to them."""
    for name, mtime_ms in mtimes.items():
        if (directory / name).exists():
            os.utime(directory / name, ns=(mtime_ms * 1_000_000, mtime_ms * 1_000_000))
