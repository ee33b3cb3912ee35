"""Layouts of vision-language models: how each family cuts, counts, places and embeds images.

A layout is one file here and one line in the table of `agents.layouts`.
"""
