"""Structural checks, verification and their reports."""
