"""Evaluation of contenders: matches on fixed deals, panels, tournaments, forks and studies, with intervals."""
