"""What several tests of logs share."""
