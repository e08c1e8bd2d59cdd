"""kafka-python's packages of the network and of record formats: the few modules below them that are there need them."""

from __future__ import annotations

from typing import Final, NoReturn

__path__: Final[list[str]] = []  # so that a missing module below is refused in words, too


def __getattr__(name: str) -> NoReturn:
    """Refuses all other names in words."""
    if name.startswith(("__", "pytest")):  # Python and pytest ask every module for such names
        raise AttributeError(name)
    raise ImportError(f"pylog.compat has no network and no record formats of kafka-python, so there is no {name}")
