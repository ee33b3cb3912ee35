"""Base classes and building blocks of games of one kind."""
