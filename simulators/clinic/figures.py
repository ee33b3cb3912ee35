"""An ended match of the clinic in figures."""

from __future__ import annotations

from simulators.clinic.acts import code
from simulators.clinic.posterior import entropy
from simulators.clinic.visit import Visit


def figures(game: Visit) -> dict[str, float | bool | str]:
    """Return what was found, at what cost, and what could be known by then; posteriors are exact.

    `score` is 1 for the right disease less what questions, tests, repetitions and illegal acts cost, whatever the
    option `reward` pays; at least 0. `posterior` is the chance of the true disease given the doctor's chart,
    `posterior_named` that of the one that was named, `posterior_best` the highest and `regret` what it exceeds the
    named one's by; `entropy` in bits. `letter`, in terse mode, is what a doctor writes after D for the right disease.
    """
    record, names, fees = game.patient.record, game.table.names, game.outcome
    chances = game.solver.posterior(game.chart, game.budget)
    success = game.named == record.disease
    posterior_named = 0.0 if game.named is None else float(chances[game.named])
    costs = fees.question * game.questions + fees.test * game.tests + fees.repeat * (game.repeated + game.invalid)
    return {
        "score": max(0.0, success + costs),
        "success": success,
        "answer": names[record.disease],
        **({"letter": code("d")[record.disease]} if game.terse else {}),
        "diagnosis": "" if game.named is None else names[game.named],
        "budget": game.budget,
        "questions": game.questions,
        "tests": game.tests,
        "repeated": game.repeated,
        "posterior": float(chances[record.disease]),
        "posterior_named": posterior_named,
        "posterior_best": float(chances.max()),
        "regret": float(chances.max()) - posterior_named,
        "entropy": entropy(chances),
        "patient": record.persona,
        "patient_left": game.chart.gone,
        **game.patient.figures(),
    }
