"""Opening a partition: loading, torn tails, clean shutdown."""
