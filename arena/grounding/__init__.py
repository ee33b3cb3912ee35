"""Grounding of images in words: lessons of a game as tokens with labels, the losses, and the training loop."""
