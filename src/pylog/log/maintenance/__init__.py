"""Retention, truncation and compaction of a partition."""
