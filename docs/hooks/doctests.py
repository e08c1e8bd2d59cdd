"""An extension of griffe: the examples in docstrings, which doctest runs, are shown as code."""

from __future__ import annotations

import re
from typing import Any, Final

from griffe import Extension, Object

_EXAMPLE: Final = re.compile(r"(?:^|\n\n)(>>> .*?)(?=\n\n|\Z)", re.DOTALL)


class Doctests(Extension):
    """Puts a fence around each."""

    def on_object(self, *, obj: Object, **_: Any) -> None:
        """Called for every module, class, function and attribute, when it has been read."""
        if obj.docstring:
            obj.docstring.value = _EXAMPLE.sub(r"\n\n```pycon\n\1\n```", obj.docstring.value)
