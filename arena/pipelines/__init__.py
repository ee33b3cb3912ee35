"""Running of pipelines: checks before the first stage, and one stage after the other in its own run folder."""
