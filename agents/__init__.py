"""Players and what they are made of: roles, policies and the engines behind them."""
