"""The clinic's posterior by brute force: summing over all cases of each sign."""

import itertools

from simulators.person import PERSONAS


def compute_posterior_by_hand(game, chart, persona):
    """Return the weights of all diseases, summing over whether each sign is present, forgotten, wrong, volunteered."""
    persona_traits, table = PERSONAS[persona], game.table
    slip = game.slip * persona_traits.slips
    weights = table.prior.copy()
    for disease in range(len(weights)):
        for n, sign in enumerate(table.signs):
            likelihood = 0.0
            for has, forgot, slipped, tells in itertools.product((True, False), repeat=4):
                weight = table.symptoms[disease, n] if has else 1 - table.symptoms[disease, n]
                weight *= persona_traits.forgets if forgot else 1 - persona_traits.forgets
                weight *= slip if slipped else 1 - slip
                weight *= persona_traits.volunteers if tells else 1 - persona_traits.volunteers
                is_volunteered = tells and has and not forgot and not sign.secret
                answer = "unknown" if forgot else "inform" if has != slipped else "deny"
                is_consistent = is_volunteered == (n in chart.complaint) and (
                    is_volunteered or chart.answers.get(n, answer) == answer
                )
                likelihood += weight * is_consistent
            weights[disease] *= likelihood
        for finding, is_present in chart.findings.items():
            rate = table.findings[disease, finding]
            weights[disease] *= rate if is_present else 1 - rate
    return weights
