"""Studies of a recipe: every arm with every seed is planned, run, summarised and judged by a rule stated beforehand."""
