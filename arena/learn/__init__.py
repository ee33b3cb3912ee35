"""Losses and the DeepSpeed trainer: from advantages to new weights."""
