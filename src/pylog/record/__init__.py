"""Bytes: Kafka's record formats. Nothing here knows of files."""
