"""Export of a run's matches to the formats of other programs (docs/export.md)."""
