"""A prover of theorems: rewriting of equations."""

from simulators.prover.prover import Prover

__all__ = ["Prover"]
