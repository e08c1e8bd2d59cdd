"""Kafka's record formats as bytes. This package does not use files."""
