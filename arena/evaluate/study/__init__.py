"""Arms × seeds of a recipe: planned, run beside each other, summed up, judged by the rule stated beforehand."""
