"""Base classes and building blocks shared by games of one kind."""
