"""The run folder: match log, metrics and checkpoints, all of which stay valid if the process is killed."""
