"""Inference engines: they sample replies and score streams."""
