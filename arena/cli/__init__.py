"""The commands, and what they show."""
