"""The log directory itself: its locks, Kafka's checkpoint files, traces of a broker."""
