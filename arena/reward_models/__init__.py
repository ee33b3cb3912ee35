"""Training of reward models: examples from match logs and data sets, and the training loop."""
