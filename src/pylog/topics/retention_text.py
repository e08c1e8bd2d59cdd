"""Says which records of a topic are deleted, and when."""

from __future__ import annotations

from pylog.config import TopicConfig
from pylog.text import counted
from pylog.times import duration_text


def retention_text(config: TopicConfig) -> str:
    """Returns which records of a topic are deleted, and when, for messages.

    >>> retention_text(TopicConfig()), retention_text(TopicConfig(retention_ms=-1, retention_bytes=4096))
    ('records are deleted after 7 days', 'records are deleted beyond 4096 bytes a partition')
    >>> retention_text(TopicConfig(cleanup_policy="compact")), retention_text(TopicConfig(retention_ms=-1))
    ('compaction keeps the last record of each key', 'all records are kept')
    >>> retention_text(TopicConfig(remote_storage_enable=True, retention_ms=-1, local_retention_ms=3_600_000))
    'all records are kept; archived segments are deleted locally after 1 hour'
    """
    found = ["compaction keeps the last record of each key"] if config.is_compacted else []
    if limits_set := _limits(config, "after ", "beyond ", " a partition"):
        found.append(f"records are deleted {' and '.join(limits_set)}")
    found = found or ["all records are kept"]
    local = _limits(config, "after ", "beyond ", " a partition", *config.local_retention) if config.remote_storage_enable else []
    return "; ".join([*found, f"archived segments are deleted locally {' and '.join(local)}"] if local else found)


def retention_limits(config: TopicConfig) -> str:
    """Returns the limits of a topic's retention, for a column of a table.

    >>> [retention_limits(each) for each in (TopicConfig(), TopicConfig(retention_ms=-1), TopicConfig(retention_bytes=4096))]
    ['7 days', 'unlimited', '7 days, 4096 bytes']
    """
    return ", ".join(_limits(config)) or "unlimited"


def _limits(
    config: TopicConfig,
    before_time: str = "",
    before_size: str = "",
    after_size: str = "",
    ms: int | None = None,
    size: int | None = None,
) -> list[str]:
    if "delete" not in config.cleanup_policy.split(","):
        return []
    ms, size = config.retention_ms if ms is None else ms, config.retention_bytes if size is None else size
    found = [f"{before_time}{duration_text(ms)}"] if ms >= 0 else []
    return found + ([f"{before_size}{counted(size, 'byte')}{after_size}"] if size >= 0 else [])
