"""How a member takes part in its group."""

from __future__ import annotations

from dataclasses import dataclass

from pylog import limits
from pylog.arguments import checked_int
from pylog.errors import InvalidArgumentError
from pylog.groups.assignors import ASSIGNORS


@dataclass(frozen=True, kw_only=True)
class MemberOptions:
    """How a member takes part in its group, under the names of kafka-python's consumer options. Times in milliseconds.

    Attributes:
        client_id: shown by tools.
        group_instance_id: makes it a static member, which keeps its partitions for `session_timeout_ms` after its process ends.
        session_timeout_ms: a process that stands still for this long loses its partitions. A dead process loses them at once.
        max_poll_interval_ms: a member that does not poll for this long loses its partitions.
        heartbeat_interval_ms: time between heartbeats, and between checks for new topics; less than half of the session timeout.
        assignors: names of `ASSIGNORS`, the preferred one first. The group uses one that all of its members have.
        commits_new_partitions: commit offset 0 for a partition that is created while the group has members, so that whichever
            member gets it begins at its first record.

    Raises:
        InvalidArgumentError: a value is out of its range, or an assignor does not exist.
    """

    client_id: str = "pylog"
    group_instance_id: str | None = None
    session_timeout_ms: int = 45_000
    max_poll_interval_ms: int = 300_000
    heartbeat_interval_ms: int = 3_000
    assignors: tuple[str, ...] = ("range", "cooperative-sticky")
    commits_new_partitions: bool = False

    def __post_init__(self) -> None:
        for name in ("session_timeout_ms", "max_poll_interval_ms", "heartbeat_interval_ms"):
            object.__setattr__(self, name, checked_int(name, getattr(self, name), 1, limits.INT32_MAX))
        if 2 * self.heartbeat_interval_ms >= self.session_timeout_ms:
            raise InvalidArgumentError(
                f"heartbeat_interval_ms={self.heartbeat_interval_ms} is not less than half of "
                f"session_timeout_ms={self.session_timeout_ms}"
            )
        if not self.assignors or not set(self.assignors) <= ASSIGNORS.keys():
            raise InvalidArgumentError(f"assignors={self.assignors!r} are not some of {', '.join(ASSIGNORS)}")
        for name in ("client_id", "group_instance_id"):
            checked_text(name, getattr(self, name), optional=name == "group_instance_id")


def checked_text(name: str, value: object, *, optional: bool) -> None:
    """Raises InvalidArgumentError unless the value is text that fits a record."""
    if value is None and optional:
        return
    if (
        not isinstance(value, str)
        or (optional and not value)
        or len(value) > limits.MAX_CLIENT_TEXT_CHARACTERS
        or not value.isprintable()
    ):
        raise InvalidArgumentError(
            f"{name}={value!r} is not text of up to {limits.MAX_CLIENT_TEXT_CHARACTERS} printable characters"
        )
