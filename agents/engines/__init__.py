"""What serves tokens."""
