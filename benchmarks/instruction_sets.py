"""Studies repeated on another instruction set: do their effects agree with the published ones?

    python benchmarks/instruction_sets.py inspo-nano epo_entropy-nano  # run or resume them, then compare
    python benchmarks/instruction_sets.py                              # compare the repeats that are stored

A repeat makes torch and oneDNN compute as a processor without AVX does. Rounding differs, so each run takes another
course from its first step. An effect is the seed-paired difference of the mechanism's arm and a control. Two effects
agree if the interval of each contains the estimate of the other. Stores each repeat as results/sse41-STUDY.json and
writes results/instruction_sets.json.
"""

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from reporting import RESULTS, format_command, write_result

INSTRUCTION_SET = {"ATEN_CPU_CAPABILITY": "default", "ONEDNN_MAX_CPU_ISA": "SSE41"}
PREFIX = "sse41"


def repeat_study(name: str, folder: Path) -> None:
    """Run a study on the other instruction set in `folder`, or resume it there, and store its record."""
    command = [sys.executable, "-m", "arena", "study", name, "--jobs", "2", "--out", name]
    folder.mkdir(parents=True, exist_ok=True)
    subprocess.run(command, cwd=folder, env=os.environ | INSTRUCTION_SET, check=True)
    (RESULTS / f"{PREFIX}-{name}.json").write_text((folder / name / "study.json").read_text())


def compare_effects(published: dict[str, Any], repeated: dict[str, Any]) -> list[dict[str, Any]]:
    """Return a row per control: both effects with their intervals, and whether they agree."""
    rows = []
    for control, summary in published["summary"].items():
        ours, theirs = summary["first_arm_minus"], repeated["summary"].get(control, {}).get("first_arm_minus")
        if ours is None or theirs is None:  # the mechanism's own arm, or a control that one of them lacks
            continue
        agrees = is_within(ours["estimate"], theirs) and is_within(theirs["estimate"], ours)
        rows.append({"control": control, "published": ours, "repeated": theirs, "agrees": agrees})
    return rows


def is_within(value: float, interval: dict[str, float]) -> bool:
    """Return True if the interval contains the value."""
    return interval["low"] <= value <= interval["high"]


def main() -> None:
    """Run the named studies, then compare all stored repeats with the published studies."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("studies", nargs="*", metavar="STUDY")
    parser.add_argument("--runs", type=Path, default=Path("runs/instruction_sets"), help="folder of the runs")
    args = parser.parse_args()
    for name in args.studies:
        repeat_study(name, args.runs)
    studies = []
    for path in sorted(RESULTS.glob(f"{PREFIX}-*.json")):
        repeated = json.loads(path.read_text())
        published = json.loads((RESULTS / f"study-{repeated['name']}.json").read_text())
        rows = compare_effects(published, repeated)
        verdicts = {"published": published["verdict"]["verdict"], "repeated": repeated["verdict"]["verdict"]}
        studies.append({"study": repeated["name"], "effects": rows, "verdicts": verdicts})
        for row in rows:
            texts = [
                f"{effect['estimate']:+.3f} [{effect['low']:+.3f}, {effect['high']:+.3f}]"
                for effect in (row["published"], row["repeated"])
            ]
            print(f"{repeated['name']:24} against {row['control']:14} {texts[0]}  {texts[1]}  agrees: {row['agrees']}")
    write_result("instruction_sets", {"command": format_command(), "set": INSTRUCTION_SET, "studies": studies})


if __name__ == "__main__":
    main()
