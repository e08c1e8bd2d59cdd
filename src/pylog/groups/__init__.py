"""Consumer groups without a coordinator: members and assignments are records of `__consumer_offsets`."""
