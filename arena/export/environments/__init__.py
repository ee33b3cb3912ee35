"""Games as environments of other libraries (docs/export-env.md)."""
