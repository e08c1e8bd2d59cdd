"""The log directory itself: its locks, Kafka's checkpoint files, and the detection of a broker."""
