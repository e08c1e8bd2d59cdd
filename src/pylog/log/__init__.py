"""A partition's log: opening, recovery, appends, reads, retention and compaction."""
