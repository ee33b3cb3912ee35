"""Training from Python: `arena.run` and `arena.resume`, what they return, and how a run is followed."""
