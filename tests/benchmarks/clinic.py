"""How often the clinic's scripted doctors are right, by the number of questions and tests that they may make.

python tests/benchmarks/clinic.py [--patients 300] [--diseases 20] [--persona cooperative]
"""

import argparse
import time

import numpy as np

from simulators.clinic import Clinic
from simulators.conformance import play

DOCTORS = ("asker", "random_asker")


def main() -> None:
    """One line for each budget: accuracy in per cent with its 95 % interval, and the exact posterior's own estimate."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--patients", type=int, default=300)
    parser.add_argument("--diseases", type=int, default=20)
    parser.add_argument("--symptoms", type=int, default=44)
    parser.add_argument("--persona", default="cooperative")
    parser.add_argument("--budgets", type=int, nargs="+", default=[0, 2, 5, 10, 15, 20])
    options = parser.parse_args()
    print(f"{'questions':>10}" + "".join(f"{doctor:>26}" for doctor in DOCTORS))
    began, matches = time.perf_counter(), 0
    for budget in options.budgets:
        cells = ""
        for doctor in DOCTORS:
            game = Clinic(diseases=options.diseases, symptoms=options.symptoms, persona=options.persona, budget=budget)
            reports = [play(game, seed, doctor) for seed in range(options.patients)]
            matches += len(reports)
            right = np.mean([report["success"] for report in reports])
            believed = np.mean([float(report["posterior_best"]) for report in reports])
            error = 196 * np.sqrt(right * (1 - right) / len(reports))
            cells += f"{100 * right:14.1f} ±{error:4.1f} ({100 * believed:3.0f})"
        print(f"{budget:>10}{cells}")
    print(f"{matches / (time.perf_counter() - began):.0f} matches/s")


if __name__ == "__main__":
    main()
