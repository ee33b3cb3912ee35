"""Memory of the flagship: where it goes, and whether it stays there. Linux only: the kernel's own high-water mark.

    python benchmarks/memory.py                     # imitation and 3 whole iterations, then 50 short ones; ten minutes
    python benchmarks/memory.py --before CHECKOUT   # an older checkout's imitation and 3 iterations beside them
    python benchmarks/memory.py --quick             # two short iterations: does it still work?

The mark is set back at the beginning of each phase, so that every phase has a peak of its own. Writes
results/memory.json.
"""

import argparse
import gc
import json
import os
import re
import subprocess
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any

from arena.cli.loop import wait

HERE = Path(__file__).resolve().parent
RESULTS = HERE / "results"
TARGET_GB = 3.0
SHORT = 50
PHASES = ("imitate", "play", "credit", "learn", "publish", "examine", "commit")


def resident() -> dict[str, float]:
    """GB (10^9 bytes) held now, of it pages of files (libraries, mapped weights), and the most since the last reset."""
    status = Path("/proc/self/status").read_text()
    names = {"now": "VmRSS", "files": "RssFile", "peak": "VmHWM"}
    return {k: int(re.search(rf"{v}:\s+(\d+) kB", status)[1]) * 1024 / 1e9 for k, v in names.items()}  # type: ignore[index]


def reset_peak() -> None:
    """From now on the peak is that of what comes."""
    Path("/proc/self/clear_refs").write_text("5")


def tensors(lab: Any) -> dict[str, float]:
    """GB of what the lab holds between iterations, each storage counted once, by what it is for."""
    import torch

    seen: set[int] = set()
    found: dict[str, float] = defaultdict(float)

    def count(kind: str, tensor: torch.Tensor | None) -> None:
        if tensor is not None and tensor.untyped_storage().data_ptr() not in seen:
            seen.add(tensor.untyped_storage().data_ptr())
            found[kind] += tensor.untyped_storage().nbytes() / 1e9

    for trainer in lab.trainers.values():
        for parameter in trainer.model.parameters():
            count("weights, float32", parameter)
            count("gradients", parameter.grad)
            for moment in trainer.optimiser.engine.optimizer.state.get(parameter, {}).values():
                count("moments of AdamW, float32", moment)
    for name, served in lab.engine._served.items():
        kind = "reference" if name.endswith("@reference") else "bfloat16 layers served"
        for parameter in served.model.parameters():
            count(kind, parameter)
        halved = (m for m in served.model.modules() if hasattr(m, "copy_weights"))  # not in older checkouts
        found[kind] += sum(m.weight.numel() * 2 for m in halved) / 1e9
        for store in (served.caches, served.prefixes):
            for kv in store._caches.values():
                count("attention caches", kv.data)
    for other in gc.get_objects():
        if isinstance(other, torch.Tensor) and other.layout == torch.strided:
            count("other tensors", other)
    return dict(found)


def measured(settings: list[str], iterations: int) -> dict[str, Any]:
    """The recipe's iterations in this process: what each phase takes at most, and what is held after each.

    Where more than a few follow each other, what is freed is given back first: it would hide slow growth.
    """
    from workload import experiment_for, open_lab

    from agents.heap import trim_memory
    from agents.weights import DEFAULT
    from arena.config.layers import compose, to_yaml
    from arena.config.sources import set_layer, text_layer
    from arena.evaluate.examination import examination

    start = resident()["now"]
    experiment = experiment_for(DEFAULT, False)
    layers = [text_layer("recipe", to_yaml(experiment)), *map(set_layer, [*settings, f"iterations={iterations}"])]
    rows: list[dict[str, Any]] = []
    reset_peak()
    with open_lab(compose(layers)) as lab:
        lab.examiner = examination(lab.run_folder, lab.experiment)
        found: dict[str, Any] = {"imports": start, "loaded": resident(), "held": []}
        peaks: dict[str, float] = {}

        def around(name: str) -> None:
            original = getattr(lab, name)

            async def phase(*given: Any) -> Any:
                reset_peak()
                result = await original(*given)
                peaks[name] = max(peaks.get(name, 0.0), resident()["peak"])
                return result

            setattr(lab, name, phase)

        for name in PHASES:
            around(name)
        wait(lab.imitate())
        wait(lab.examine(0))
        found["begun"] = {"peak": dict(peaks), "after": resident()["now"]}
        for k in range(1, iterations + 1):
            peaks.clear()
            row = wait(lab.iterate(k))
            if iterations == SHORT:
                trim_memory()
            rows.append({"iteration": k, "tokens": row["tokens"], "peak": dict(peaks), "after": resident()["now"]})
        found |= {"iterations": rows, "tensors after the last": tensors(lab), "peak": _peak(found, rows)}
    return found


def _peak(found: dict[str, Any], rows: list[dict[str, Any]]) -> float:
    return float(max(found["loaded"]["peak"], *(max(part["peak"].values()) for part in (found["begun"], *rows))))


def child(mode: str, checkout: Path | None = None) -> dict[str, Any]:
    """A measurement in a process of its own."""
    root = checkout or HERE.parent
    settings = {**os.environ, "PYTHONPATH": os.pathsep.join([str(root), str(HERE)])}
    done = subprocess.run(
        [sys.executable, str(HERE / "memory.py"), "--mode", mode], cwd=root, env=settings, stdout=subprocess.PIPE,
        text=True, check=True,
    )  # fmt: skip
    return dict(json.loads(done.stdout.splitlines()[-1]))


FEW = ["play.matches=8", "evaluate=null"]
MODES = {
    "whole": ([], 3),
    "short": ([*FEW, "checkpoint.every=25"], SHORT),
    "quick": (FEW, 2),
}


def flat(rows: list[dict[str, Any]]) -> dict[str, float]:
    """Return the memory held after iterations: of the second fifth, of the last fifth, and the slope between them."""
    fifth = max(1, len(rows) // 5)
    early, late = (sum(r["after"] for r in part) / len(part) for part in (rows[fifth : 2 * fifth], rows[-fifth:]))
    return {
        "early_gb": early,
        "late_gb": late,
        "mb_per_iteration": (late - early) / max(1, len(rows) - 2 * fifth) * 1e3,
    }


def main() -> None:
    """Measure everything and write it down."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--before", type=Path)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--mode", choices=MODES, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.mode:
        print(json.dumps(measured(*MODES[options.mode])))
        return
    from arena.doctor import environment

    result: dict[str, Any] = {"command": " ".join(["python", "benchmarks/memory.py", *sys.argv[1:]])}
    result |= {"machine": environment(), "seed": 0}
    result["whole"] = child("quick" if options.quick else "whole")
    if options.before:
        result["before"] = child("whole", options.before.resolve())
    if not options.quick:
        result["short"] = child("short")
        result["flat"] = flat(result["short"]["iterations"])
    peak = result["whole"]["peak"]
    result["verdict"] = {"peak_gb": peak, "target": TARGET_GB, "met": peak < TARGET_GB}
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / f"memory{'-quick' if options.quick else ''}.json").write_text(json.dumps(result, indent=1) + "\n")
    for part in ("before", "whole"):
        if part in result:
            print(part, "loaded", result[part]["loaded"], "peak", round(result[part]["peak"], 2))
            print("    begun", {name: round(gb, 2) for name, gb in result[part]["begun"]["peak"].items()})
            for row in result[part]["iterations"]:
                print("   ", row["iteration"], {name: round(gb, 2) for name, gb in row["peak"].items()})
            print("   ", {name: round(gb, 3) for name, gb in result[part]["tensors after the last"].items()})
    print(result.get("flat", ""), result["verdict"])


if __name__ == "__main__":
    main()
