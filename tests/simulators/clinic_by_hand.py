"""The clinic's posterior the long way: by summing over all that may be true of each sign."""

import itertools

from simulators.person import PERSONAS


def by_hand(game, chart, persona):
    """Weights of all diseases: over whether each sign is there, forgotten, wrong, told."""
    kind, known = PERSONAS[persona], game.table
    slip = game.slip * kind.slips
    weights = known.prior.copy()
    for disease in range(len(weights)):
        for n, sign in enumerate(known.signs):
            chance = 0.0
            for has, forgot, slipped, tells in itertools.product((True, False), repeat=4):
                share = known.symptoms[disease, n] if has else 1 - known.symptoms[disease, n]
                share *= kind.forgets if forgot else 1 - kind.forgets
                share *= slip if slipped else 1 - slip
                share *= kind.volunteers if tells else 1 - kind.volunteers
                told = tells and has and not forgot and not sign.secret
                says = "unknown" if forgot else "inform" if has != slipped else "deny"
                seen = told == (n in chart.complaint) and (told or chart.answers.get(n, says) == says)
                chance += share * seen
            weights[disease] *= chance
        for finding, there in chart.findings.items():
            rate = known.findings[disease, finding]
            weights[disease] *= rate if there else 1 - rate
    return weights
