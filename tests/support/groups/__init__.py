"""Members of groups, and a model of a group."""
