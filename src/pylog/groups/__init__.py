"""Consumer groups without a coordinator: who is a member and who reads what are records of `__consumer_offsets`."""
