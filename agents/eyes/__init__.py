"""Layouts of vision-language models: how each family cuts, counts, places and embeds images."""
