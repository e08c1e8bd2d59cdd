"""Metrics of a store: taking the samples, the names of other exporters, and serving them."""
