"""Trackers: send a run's metrics and sample matches to TensorBoard, trackio or Weights & Biases."""
