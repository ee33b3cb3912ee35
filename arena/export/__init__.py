"""Export of a run's matches in the formats of other programs (docs/export.md)."""
