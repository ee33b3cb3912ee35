"""Data sets: rows of files and folders, validated one by one, in a random order of their own for each pass."""
