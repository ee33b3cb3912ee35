"""Data sets: rows of files and folders, their validation, their random order, and their encoding as samples."""
