"""The orchestrator and the learner."""

import logging

from arena.process import prepare

prepare()
logging.getLogger(__name__).addHandler(logging.NullHandler())  # what is logged is for who asks, never for the terminal
