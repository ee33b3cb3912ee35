"""The run folder: match log, metrics and checkpoints, each valid at every moment a process may be killed."""
