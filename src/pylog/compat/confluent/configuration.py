"""The options of confluent-kafka's clients, with their dotted names."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any, Final

from pylog.compat.confluent.errors import KafkaError, failed

LOGGER: Final = logging.getLogger("pylog.compat")
_SERVERS: Final = ("bootstrap.servers", "metadata.broker.list")


class Given:
    """The options that a program gave to a client.

    Args:
        config: the options as a mapping.
        more: the same, as keyword arguments.
    """

    def __init__(self, config: Mapping[str, Any] | None, more: Mapping[str, Any]) -> None:
        self._left = {**(config or {}), **more}

    @property
    def servers(self) -> Any:
        """What stands for the address of a broker."""
        return next((self._left.pop(name) for name in _SERVERS if name in self._left), None)

    def take(self, *names: str, default: Any = None) -> Any:
        """Returns the value of an option, under any of its names."""
        found = [self._left.pop(name) for name in names if name in self._left]
        return found[0] if found else default

    def number(self, name: str, default: int) -> int:
        """Returns an option that is a whole number."""
        given = self.take(name, default=default)
        try:
            return int(given)
        except (TypeError, ValueError):
            raise failed(KafkaError._INVALID_ARG, f"{name}={given!r} is not a whole number") from None

    def flag(self, name: str, *, default: bool) -> bool:
        """Returns an option that is true or false."""
        given = self.take(name, default=default)
        return given.strip().lower() in ("true", "t", "1") if isinstance(given, str) else bool(given)

    def end(self, client: str) -> None:
        """Logs the options that have no effect here, in one line."""
        if self._left:
            LOGGER.info("options of the %s that have no effect without a broker: %s", client, ", ".join(sorted(self._left)))
