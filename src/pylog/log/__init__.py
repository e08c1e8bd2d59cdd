"""A partition: its segments in order, its ends, how it is opened, read and written."""
