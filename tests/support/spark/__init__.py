"""Spark clusters, a stream engine without Spark, and Kafka's connector."""
