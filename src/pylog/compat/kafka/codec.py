"""kafka-python's questions about compression codecs. pylog always has all four."""

from __future__ import annotations


def has_gzip() -> bool:
    """Returns True."""
    return True


def has_snappy() -> bool:
    """Returns True."""
    return True


def has_lz4() -> bool:
    """Returns True."""
    return True


def has_zstd() -> bool:
    """Returns True."""
    return True
