"""Clinic simulator: a doctor asks, tests and diagnoses a simulated patient."""

from simulators.clinic.clinic import Clinic

__all__ = ["Clinic"]
