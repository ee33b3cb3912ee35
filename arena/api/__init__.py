"""Training from Python: `arena.run` and `arena.resume`, their results, and the progress of a run."""
