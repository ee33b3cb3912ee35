"""The orchestrator and the learner."""

from arena.process import prepare

prepare()
