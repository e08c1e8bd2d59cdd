"""What the figures were measured on."""

from __future__ import annotations

import datetime as dt
import os
import platform
import shutil
import subprocess
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path

import psutil

PACKAGES = (
    "pylogdb",
    "numpy",
    "numba",
    "pyarrow",
    "cramjam",
    "msgspec",
    "aiokafka",
    "kafka-python",
    "confluent-kafka",
    "lmdb",
    "rocksdict",
    "diskcache",
    "persist-queue",
    "pyspark",
    "pandas",
)


def description(directory: str) -> Mapping[str, str]:
    """Names to values, in the order in which they are shown."""
    versions = ", ".join(f"{name} {version(name)}" for name in PACKAGES)
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return {
        "date": dt.datetime.now(dt.UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "processor": f"{_processor()}, {cores} cores",
        "memory": f"{psutil.virtual_memory().total / 2**30:.1f} GiB, {psutil.virtual_memory().available / 2**30:.1f} GiB free",
        "system": f"{platform.system()} {platform.release()}, {_file_system(directory)} for the logs",
        "load at the start": f"{os.getloadavg()[0]:.2f} (last minute)",
        "Python": platform.python_version(),
        "packages": versions,
        "Java": _java(),
    }


def _java() -> str:
    """The runtime's name and version, for what runs on it."""
    if shutil.which("java") is None:
        return "none"
    said = subprocess.run(["java", "-version"], stderr=subprocess.PIPE, text=True, check=True).stderr.splitlines()
    return said[1] if len(said) > 1 else said[0]


def _processor() -> str:
    """The model, as the system calls it."""
    information = Path("/proc/cpuinfo")
    if information.exists():
        for line in information.read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def _file_system(directory: str) -> str:
    """The type of the file system that a directory is on."""
    path = os.path.realpath(directory)
    mounts = [part for part in psutil.disk_partitions(all=True) if path.startswith(part.mountpoint)]
    return max(mounts, key=lambda part: len(part.mountpoint)).fstype if mounts else "unknown file system"
