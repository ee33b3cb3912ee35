"""Evaluation of contenders: what commands need, and no run does."""
