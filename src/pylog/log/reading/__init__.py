"""Reads of a partition: scans, lookups by offset and by time, following, planning."""
