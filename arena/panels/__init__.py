"""Panels of opponents for evaluation: their settings, and those of the package, one YAML file each."""
