"""The orchestrator and the learner."""
