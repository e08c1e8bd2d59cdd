"""The consumer: reads topics, alone or as a member of a group, and says how far it has come."""
