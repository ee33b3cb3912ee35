"""Files of the benchmarks' results."""

import json
import sys
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).resolve().parent / "results"


def format_command() -> str:
    """Return this script's command line, such as "python benchmarks/memory.py --quick"."""
    return " ".join(["python", f"benchmarks/{Path(sys.argv[0]).name}", *sys.argv[1:]])


def write_result(name: str, result: Any, quick: bool = False) -> None:
    """Write a result to results/NAME.json, or to results/NAME-quick.json, which git ignores."""
    (RESULTS / f"{name}{'-quick' * quick}.json").write_text(json.dumps(result, indent=1) + "\n")
