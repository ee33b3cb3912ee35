"""Experiments: settings models, composition from recipes, files and overrides, and checks."""
