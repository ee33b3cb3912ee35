"""Training of reward models: examples from match logs and data sets, the loop, and its checkpoints."""
