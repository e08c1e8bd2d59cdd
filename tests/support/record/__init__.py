"""Inputs for the kernels of records."""
