"""Appends to a partition: group commit, the writer, the active segment, rolls."""
