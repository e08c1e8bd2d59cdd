"""Says which records of a topic are deleted, and when."""

from __future__ import annotations

from pylog.config import TopicConfig
from pylog.times import duration_text


def retention_text(config: TopicConfig) -> str:
    """Returns which records of a topic are deleted, and when, for messages.

    >>> retention_text(TopicConfig()), retention_text(TopicConfig(retention_ms=-1, retention_bytes=4096))
    ('records are deleted after 7 days', 'records are deleted beyond 4096 bytes a partition')
    >>> retention_text(TopicConfig(cleanup_policy="compact")), retention_text(TopicConfig(retention_ms=-1))
    ('compaction keeps the last record of each key', 'all records are kept')
    """
    found = ["compaction keeps the last record of each key"] if config.is_compacted else []
    if "delete" in config.cleanup_policy.split(","):
        limits_set = [f"after {duration_text(config.retention_ms)}"] if config.retention_ms >= 0 else []
        limits_set += [f"beyond {config.retention_bytes} bytes a partition"] if config.retention_bytes >= 0 else []
        found += [f"records are deleted {' and '.join(limits_set)}"] if limits_set else []
    return "; ".join(found) or "all records are kept"
