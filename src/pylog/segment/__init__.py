"""Files: one segment of a log, its names on disk, its bytes and its indexes."""
