"""Adapters that wrap games of other libraries as text games."""
