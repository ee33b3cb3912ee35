"""Notebooks, each a jupytext pair: the .py is what people review, the .ipynb what Jupyter opens."""
