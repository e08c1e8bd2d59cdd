"""A real Kafka broker, and Kafka's own tools."""
