"""Serving: policies behind an OpenAI-compatible endpoint."""
