"""The service desk: an agent with tools serves a simulated customer within a policy."""

from simulators.desk.desk import Desk
from simulators.desk.outcome import pass_hat_k

__all__ = ["Desk", "pass_hat_k"]
