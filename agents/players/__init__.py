"""Model-backed and scripted players."""
