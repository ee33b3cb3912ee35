"""Factories of models, samples, matches, labs, run folders, commands and servers for tests."""
