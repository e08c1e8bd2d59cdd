"""Mutants, pairs of features, and what is crossed with what."""
