"""Batches on their way into logs: files that many processes fill and one empties, and what it has decided to do with them."""
