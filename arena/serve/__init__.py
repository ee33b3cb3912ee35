"""Serve policies through an OpenAI-compatible API."""
