"""Time that the studies of docs/claims.md take with today's code, by a rehearsal of each: two iterations of every arm.

    python benchmarks/suite.py           # all of them; over an hour
    python benchmarks/suite.py NAME ...  # these again; of the others what is kept stays

`arena study NAME --rehearse` tells how long a study's runs take, so many at a time as there are cores: what comes once
in a run, and its iterations. Nothing else should be running. Writes results/suite.json after each.
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


def studies() -> list[str]:
    """Names of all studies that the claims are made from."""
    return [file.stem.removeprefix("study-") for file in sorted(RESULTS.glob("study-*.json"))]


def rehearsed(name: str) -> dict[str, Any]:
    """Seconds of the whole study and of a run of each arm, by a rehearsal; SystemExit if one of its runs fails."""
    with TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "arena", "study", name, "--rehearse", "--json", "--out", f"{folder}/study"]
        load = os.getloadavg()[0]
        run = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    if run.returncode:
        raise SystemExit(f"{name}: its rehearsal failed (exit code {run.returncode})")
    told = json.loads(run.stdout)
    return {"whole": told["whole"], "arms": told["seconds"], "seeds": told["seeds"], "jobs": told["jobs"], "load": load}


def main() -> None:
    """Rehearse the studies named, else all, and write down what each says."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", default=studies())
    names = parser.parse_args().names
    if unknown := set(names) - set(studies()):
        parser.error(f"no result of a study is kept of {', '.join(sorted(unknown))}")
    before: dict[str, Any] = json.loads(FILE.read_text())["studies"] if FILE.exists() else {}
    kept = {name: found for name, found in before.items() if name in studies()}
    for name in names:
        kept[name] = rehearsed(name) | {"machine": describe_environment()}
        print(f"{name}: {kept[name]['whole'] / 60:.0f} minutes", flush=True)
        result = {"command": "python benchmarks/suite.py", "studies": dict(sorted(kept.items()))}
        FILE.write_text(json.dumps(result, indent=1) + "\n")
    print(f"{len(kept)} studies: {sum(study['whole'] for study in kept.values()) / 3600:.1f} hours")


if __name__ == "__main__":
    main()
