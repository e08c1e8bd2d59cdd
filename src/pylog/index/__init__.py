"""Sparse tables that lead from an offset or a time to a position. All of it is derived from `.log` files and can be rebuilt."""
