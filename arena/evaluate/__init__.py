"""How strong contenders are: what commands need, and no run does."""
