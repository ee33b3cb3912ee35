"""Estimated time of the studies of docs/claims.md with the current code, by rehearsals: two iterations of every arm.

    python benchmarks/suite.py           # all studies; over an hour
    python benchmarks/suite.py NAME ...  # only these; the other results are kept

`arena study NAME --rehearse` estimates the time of a study's runs, with one run per core, from the costs per run and
per iteration. Nothing else should be running. Writes results/suite.json after each study.
"""

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from arena.doctor import describe_environment

HERE = Path(__file__).resolve().parent
RESULTS = HERE / "results"
FILE = RESULTS / "suite.json"


def list_studies() -> list[str]:
    """Return the names of all studies with saved results."""
    return [file.stem.removeprefix("study-") for file in sorted(RESULTS.glob("study-*.json"))]


def rehearse(name: str) -> dict[str, Any]:
    """Rehearse a study. Returns the estimated seconds of the study and of each arm's run.

    Raises SystemExit if a run fails.
    """
    with TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "arena", "study", name, "--rehearse", "--json", "--out", f"{folder}/study"]
        load = os.getloadavg()[0]
        run = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    if run.returncode:
        raise SystemExit(f"{name}: its rehearsal failed (exit code {run.returncode})")
    report = json.loads(run.stdout)
    return {
        "whole": report["whole"],
        "arms": report["seconds"],
        "seeds": report["seeds"],
        "jobs": report["jobs"],
        "load": load,
    }


def main() -> None:
    """Rehearse the named studies, by default all, and write the results."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", default=list_studies())
    names = parser.parse_args().names
    if unknown := set(names) - set(list_studies()):
        parser.error(f"no saved results of the study {', '.join(sorted(unknown))}")
    saved: dict[str, Any] = json.loads(FILE.read_text())["studies"] if FILE.exists() else {}
    studies = {name: study for name, study in saved.items() if name in list_studies()}
    for name in names:
        studies[name] = rehearse(name) | {"machine": describe_environment()}
        print(f"{name}: {studies[name]['whole'] / 60:.0f} minutes", flush=True)
        result = {"command": "python benchmarks/suite.py", "studies": dict(sorted(studies.items()))}
        FILE.write_text(json.dumps(result, indent=1) + "\n")
    print(f"{len(studies)} studies: {sum(study['whole'] for study in studies.values()) / 3600:.1f} hours")


if __name__ == "__main__":
    main()
