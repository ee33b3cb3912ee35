"""Training loops of stages that learn without play, and their optimiser."""
