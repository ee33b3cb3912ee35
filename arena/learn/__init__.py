"""Losses, update plans and the DeepSpeed trainer."""
