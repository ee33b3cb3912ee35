"""Grounding: train a policy with vision on a game's labelled images, so that image tokens stand for words."""
