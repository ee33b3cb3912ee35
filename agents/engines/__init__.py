"""Engines: they serve tokens."""
