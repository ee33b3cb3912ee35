"""Rewards, advantage estimators and normalisation: from what happened to what it was worth."""
