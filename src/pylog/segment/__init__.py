"""One segment of a log: its file names, its bytes and its indexes."""
