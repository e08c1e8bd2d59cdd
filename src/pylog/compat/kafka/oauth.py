"""The base class of token providers, which programs with SASL import. Nothing here asks for a token."""

from __future__ import annotations


class AbstractTokenProvider:
    """Kept so that subclasses can be defined.

    Args:
        config: ignored.
    """

    def __init__(self, **config: object) -> None:
        self.config = config

    def extensions(self) -> dict[str, str]:
        """Returns no extensions."""
        return {}
