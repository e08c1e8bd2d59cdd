"""Results of benchmarks for tests of the report."""
