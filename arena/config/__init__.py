"""Experiments: models of their settings, composition from recipes, files and overrides, and checks."""
