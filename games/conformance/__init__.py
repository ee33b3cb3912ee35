"""Conformance checks that any text game can run."""
