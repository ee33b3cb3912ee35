"""Estimates of the memory that play and learning need, and comparison with the memory of a machine."""
