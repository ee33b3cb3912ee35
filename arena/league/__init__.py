"""Ratings of who played."""
