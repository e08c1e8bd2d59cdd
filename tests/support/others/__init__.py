"""Tests that other people wrote for kafka-python, run against `pylog.compat.kafka`. They are fetched, never kept here."""
