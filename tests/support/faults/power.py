"""Disks of memory that lose power, for the tools that work on whole directories: what any moment of a recording may leave.

As tests/support/campaign/explorer.py for the engine: of what no sync covers any part may have reached the disk.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

from pylog.testing import Crash, Moment, Recording
from pylog.testing.disk import ROOT, Image


def image_of(directory: Path, name: str) -> Image:
    """A disk that has a copy of a directory below its root."""
    image = Image({}, {ROOT: {name: ROOT + 1}}, ROOT + 1)
    return image._replace(last_number=_copied(image, directory, ROOT + 1))


def _copied(image: Image, directory: Path, number: int) -> int:
    """Puts what a directory has into an image; returns the last number that it took."""
    names, last = image.directories.setdefault(number, {}), number
    for path in sorted(directory.iterdir()):
        names[path.name] = last = last + 1
        if path.is_dir():
            last = _copied(image, path, last)
        else:
            image.files[last] = path.read_bytes()
    return last


def files_below(image: Image, name: str) -> dict[str, bytes]:
    """The files of a directory of the root, by their paths below it."""
    found: dict[str, bytes] = {}
    waiting = [("", image.directories[ROOT].get(name))]
    while waiting:
        path, number = waiting.pop()
        if number in image.files:
            found[path] = image.files[number]
        else:
            waiting += [(f"{path}/{each}".lstrip("/"), of) for each, of in image.directories.get(number, {}).items()]
    return found


def losses(recording: Recording, seed: str, subsets: int, cuts: int) -> Iterator[tuple[Crash, Image]]:
    """Each state once that a loss of power can leave before the last operation; see `Moment.crashes`."""
    rng, moment, seen = random.Random(seed), Moment(recording), set()
    while moment.after < len(recording):
        for crash in moment.crashes(rng, subsets, cuts):
            digest, image = moment.state(crash)
            if digest not in seen:
                seen.add(digest)
                yield crash, image
        moment.advance()


def losses_behind(recording: Recording) -> Iterator[tuple[Crash, Image]]:
    """Those that it can leave when all is done."""
    moment = Moment.of(recording, len(recording))
    for crash in moment.crashes(random.Random(0)):
        yield crash, moment.state(crash)[1]
