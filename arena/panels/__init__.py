"""Panels that come with Arena: opponents that stand still, one YAML file each."""
