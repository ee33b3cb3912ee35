"""Trackers: a run's figures and sample matches in TensorBoard, trackio or Weights & Biases."""
