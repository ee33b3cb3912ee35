"""Panels: what judges a run from outside, and those that come with the package, one YAML file each."""
