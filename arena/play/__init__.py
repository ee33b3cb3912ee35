"""Matches: who sits where, what is played, and many at once."""
