"""Accuracy of `mars_sql-nano` on unseen databases, with one turn or several, and with rules to select among answers.

    arena run selfplay --recipe mars_sql-nano --out runs/sql
    python benchmarks/sql_selection.py runs/sql

Each deal is played eight times by the run's grounder and writer, and its judge scores the answers. A second evaluation
plays other deals once, before and after learning from reward. Writes results/sql-selection.json.
"""

import argparse
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from arena.doctor import describe_environment
from arena.statistics import rate_ci

RESULT = Path(__file__).parent / "results" / "sql-selection.json"
BEST_OF, DEALS, MATCHES = 8, 60, 128
RULES = "majority,p_yes,oracle"
TURNS = (1, 3)
"""Maximum acts of the writer: only the solution, or up to two queries before it."""
FIGURES = ("success", "link_f1", "link_precision", "link_recall", "judge_right", "queries", "had_error", "repaired")


def evaluate(*words: str) -> dict[str, Any]:
    """Return the parsed JSON output of `arena eval` with these arguments."""
    done = subprocess.run(
        [sys.executable, "-m", "arena", "eval", *words, "--game", "sql", "--json"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def compare_rules(run: str, turns: int, deals: int) -> dict[str, Any]:
    """Return each selection rule's success on the same deals, with 95 % intervals, and success by number of matches."""
    seats = ["--against", f"{run}:grounder", "--judge", f"{run}:judge"]
    words = ["--best-of", str(BEST_OF), "--by", RULES, "--deals", str(deals), "--option", f"turns={turns}"]
    found = evaluate(f"{run}:writer", *seats, *words)
    rows = {row["by"]: row for row in found["rows"]}
    return {
        "turns": turns, "deals": found["deals"], "by_matches": found["success_by_matches"],
        "success": {name: row["success"] for name, row in rows.items()},
        "against_mean": {name: row["against_mean"]["success"] for name, row in rows.items()},
        "tokens": {name: row["tokens"] for name, row in rows.items()},
    }  # fmt: skip


def evaluate_once(run: str, matches: int) -> list[dict[str, Any]]:
    """Return the figures of deals played once, before and after learning, and the share repaired after an error."""
    found = evaluate(run, "--option", "team=true", "--matches", str(matches), "--before")
    rows = []
    for moment in ("before", "results"):
        (row,) = found[moment]
        figures = {name: row["figures"][name] for name in FIGURES}
        failed, repaired = (round(figures[name][0] * row["matches"]) for name in ("had_error", "repaired"))
        share = list(rate_ci(repaired, failed)) if failed else None
        rows.append({"when": moment, "matches": row["matches"], **figures, "repaired_after_error": share})
    return rows


def main() -> None:
    """Run both evaluations, print the tables and write the results."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", help="folder of a run of mars_sql-nano")
    parser.add_argument("--deals", type=int, default=DEALS)
    parser.add_argument("--matches", type=int, default=MATCHES)
    options = parser.parse_args()
    tables = [compare_rules(options.run, turns, options.deals) for turns in TURNS]
    rows = evaluate_once(options.run, options.matches)
    for part in (*tables, *rows):
        print(json.dumps(part))
    result = {"command": "python benchmarks/sql_selection.py RUN", "machine": describe_environment()}
    RESULT.write_text(json.dumps({**result, "selection": tables, "once": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
