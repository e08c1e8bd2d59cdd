"""Committed offsets of consumer groups, kept as Kafka keeps them: records of the compacted topic `__consumer_offsets`."""
