"""The packages of pylog's extras, for errors that say what is missing.

The errors name the packages, not the extra: `pip install` of an extra needs the path that pylog came from, a clone or a wheel.
"""

from __future__ import annotations

from typing import Final

EXTRAS: Final = {  # as in pyproject.toml
    "cli": ("cyclopts>=4.1", "rich>=14"),
    "objects": ("obstore>=0.12,<0.14", "cryptography>=45"),
    "spark": ("pyspark>=4.1",),
    "ui": ("starlette>=1.0", "uvicorn>=0.40", "htpy>=26.1"),
}


def install_command(extra: str) -> str:
    """Returns the command that installs the packages of an extra, whatever way pylog was installed.

    Args:
        extra: its name.

    Examples:
        >>> install_command("spark")
        "pip install 'pyspark>=4.1'"
    """
    return "pip install " + " ".join(f"'{package}'" for package in EXTRAS[extra])
