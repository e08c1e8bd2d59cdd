"""The consumer: reads topics, alone or as a member of a consumer group, and commits its positions."""
