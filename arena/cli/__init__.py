"""The `arena` commands and their output."""
