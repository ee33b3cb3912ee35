"""Who plays: roles, policies, players and the engines behind them."""
