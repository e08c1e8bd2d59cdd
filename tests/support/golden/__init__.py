"""Directories that real brokers wrote."""
