"""Kafka's index files: sparse tables from an offset or a timestamp to a position, rebuilt from `.log` files if necessary."""
