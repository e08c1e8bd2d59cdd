"""Finds compiled kernels in numba's cache on disk without importing numba, which takes as long as many thousand records.

numba searches three directories, and so does this module. If a later numba names its files otherwise, kernels count as not
cached: their compiled forms are then used later, and nothing else changes.
"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Iterator

from pylog.fs import base_name, environment_variable, join, names_in, parent_of, user_cache_directory


def cache_directories(file: str) -> Iterator[str]:
    """Yields the directories where numba may have cached the functions of a source file, in numba's order."""
    directory = parent_of(file)
    hashed = hashlib.sha1(directory.encode(), usedforsecurity=False).hexdigest()
    chosen = environment_variable("NUMBA_CACHE_DIR")
    if chosen:
        yield join(chosen, f"{base_name(directory)}_{hashed}")
        return
    yield join(directory, "__pycache__")
    yield join(user_cache_directory("numba"), f"{base_name(directory)}_{hashed}")


def cache_of(file: str, name: str, digest: str) -> str | None:
    """Returns the directory where a kernel is cached, for this version of Python; None if it is not. Cost: about 0.2 ms.

    Args:
        file: the source file of the kernel.
        name: the name of its function.
        digest: the digest of the kernels' sources.
    """
    beginning = f"{base_name(file).removesuffix('.py')}.{name}.{digest}-"
    version = f".py{sys.version_info.major}{sys.version_info.minor}"
    for directory in cache_directories(file):
        if any(each.startswith(beginning) and version in each and each.endswith(".nbi") for each in names_in(directory)):
            return directory
    return None
