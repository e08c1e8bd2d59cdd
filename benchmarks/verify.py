"""`pylog verify`: everything is read again, against a bare checksum over the mapped file and against memory's own speed."""

from __future__ import annotations

from pathlib import Path

from benchmarks.data import RECORD_BYTES, fill
from benchmarks.files import prepared_store
from benchmarks.measure import NO_WRITES, Settings, at_least, race, seconds
from pylog import limits
from pylog.fs import OsFileSystem
from pylog.record import kernels
from pylog.tools.verify import verify

SEGMENT_BYTES = 256 << 20
HASHED = 128 << 10  # bytes of one checksum, like a batch


def run(settings: Settings) -> None:
    """Reports the row of `verify`, warm: all bytes are in the page cache."""
    directory = Path(settings.directory) / "verify"
    size = settings.scaled(1 << 30, 256 << 20)
    with prepared_store(directory) as store:
        store.create_topic("events", segment_bytes=SEGMENT_BYTES)
        fill(store.log("events"), int(size / RECORD_BYTES))
    paths = sorted(str(path) for path in (directory / "events-0").glob("*.log"))
    read = sum(Path(path).stat().st_size for path in paths)
    found = race(
        {
            "verify": lambda: read / seconds(lambda: _verify(directory)) / 1e9,
            "crc": lambda: read / seconds(lambda: _hash(paths)) / 1e9,
            "pread": lambda: read / seconds(lambda: _read(paths)) / 1e9,
        },
        settings.rounds,
    )
    for name, rival in (
        ("crc", "CRC-32C of the mapped files, 128 KiB at a time"),
        ("pread", "pread of the files, 2 MiB at a time (page cache)"),
    ):
        settings.report_ratio(
            "tools",
            f"verify {read >> 20:,} MiB in {len(paths)} segments",
            "GB/s",
            found["verify"],
            rival,
            found[name],
            durability=NO_WRITES,
            target=at_least(3) if name == "crc" else None,
        )


def _verify(directory: Path) -> None:
    assert verify(str(directory)).ok


def _hash(paths: list[str]) -> None:
    for path in paths:
        mapped = OsFileSystem().map(path)
        for position in range(0, mapped.size, HASHED):
            kernels.checksum(mapped, position, min(position + HASHED, mapped.size))


def _read(paths: list[str]) -> None:
    buffer = memoryview(bytearray(limits.READ_CHUNK_BYTES))
    for path in paths:
        file, position = OsFileSystem().open(path), 0
        while got := file.read_into(buffer, position):
            position += got
        file.close()
