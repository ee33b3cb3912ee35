"""Theorem proving simulator: equations by rewriting, or lemmas in Coq."""

from simulators.prover.prover import Prover

__all__ = ["Prover"]
