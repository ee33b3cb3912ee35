"""Memory of the flagship by phase and by kind of tensor, and its growth over iterations. Linux only.

    python benchmarks/memory.py           # imitation and 3 full iterations, then 50 short ones; ten minutes
    python benchmarks/memory.py --quick   # two short iterations: does it still work?

Peaks are the kernel's high-water marks, reset at the beginning of each phase. Writes results/memory.json.
"""

import argparse
import gc
import json
from collections import defaultdict
from typing import Any

from processes import read_memory, reset_peak, run_script
from reporting import format_command, write_result

from arena.cli.loop import wait

TARGET_GB = 3.0
SHORT = 50
PHASES = ("imitate", "play", "credit", "learn", "publish", "examine", "commit")


def measure_tensors(lab: Any) -> dict[str, float]:
    """Return the GB of the lab's tensors by purpose, counting each storage once. Call it between iterations."""
    import torch

    seen: set[int] = set()
    sizes: dict[str, float] = defaultdict(float)

    def count(kind: str, tensor: torch.Tensor | None) -> None:
        if tensor is not None and tensor.untyped_storage().data_ptr() not in seen:
            seen.add(tensor.untyped_storage().data_ptr())
            sizes[kind] += tensor.untyped_storage().nbytes() / 1e9

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
        halved = (m for m in served.model.modules() if hasattr(m, "copy_weights"))
        sizes[kind] += sum(m.weight.numel() * 2 for m in halved) / 1e9
        for store in (served.caches, served.prefixes):
            for kv in store._caches.values():
                count("attention caches", kv.data)
    for other in gc.get_objects():
        if isinstance(other, torch.Tensor) and other.layout == torch.strided:
            count("other tensors", other)
    return dict(sizes)


def measure_phases(settings: list[str], iterations: int) -> dict[str, Any]:
    """Run the recipe in this process and return each phase's peak memory, and the memory after each iteration.

    In long runs, freed memory is returned to the system first, because it would hide slow growth.
    """
    from workload import make_experiment, open_lab

    from agents.heap import trim_memory
    from agents.weights import DEFAULT
    from arena.config.layers import compose, to_yaml
    from arena.config.sources import set_layer, text_layer
    from arena.evaluate.examination import make_examination

    start = read_memory()["now"]
    experiment = make_experiment(DEFAULT, False)
    layers = [text_layer("recipe", to_yaml(experiment)), *map(set_layer, [*settings, f"iterations={iterations}"])]
    rows: list[dict[str, Any]] = []
    reset_peak()
    with open_lab(compose(layers)) as lab:
        lab.examiner = make_examination(lab.run_folder, lab.experiment)
        result: dict[str, Any] = {"imports": start, "loaded": read_memory(), "held": []}
        peaks: dict[str, float] = {}

        def track_peak(name: str) -> None:
            original = getattr(lab, name)

            async def run_phase(*arguments: Any) -> Any:
                reset_peak()
                result = await original(*arguments)
                peaks[name] = max(peaks.get(name, 0.0), read_memory()["peak"])
                return result

            setattr(lab, name, run_phase)

        for name in PHASES:
            track_peak(name)
        wait(lab.imitate())
        wait(lab.examine(0))
        result["begun"] = {"peak": dict(peaks), "after": read_memory()["now"]}
        for k in range(1, iterations + 1):
            peaks.clear()
            row = wait(lab.iterate(k))
            if iterations == SHORT:
                trim_memory()
            rows.append({"iteration": k, "tokens": row["tokens"], "peak": dict(peaks), "after": read_memory()["now"]})
        result |= {"iterations": rows, "tensors after the last": measure_tensors(lab), "peak": _find_peak(result, rows)}
    return result


def _find_peak(result: dict[str, Any], rows: list[dict[str, Any]]) -> float:
    return float(max(result["loaded"]["peak"], *(max(part["peak"].values()) for part in (result["begun"], *rows))))


FEW = ["play.matches=8", "evaluate=null"]
MODES = {
    "whole": ([], 3),
    "short": ([*FEW, "checkpoint.every=25"], SHORT),
    "quick": (FEW, 2),
}


def measure_growth(rows: list[dict[str, Any]]) -> dict[str, float]:
    """Return the mean memory in the second and in the last fifth of the iterations, and the growth per iteration."""
    fifth = max(1, len(rows) // 5)
    early, late = (sum(r["after"] for r in part) / len(part) for part in (rows[fifth : 2 * fifth], rows[-fifth:]))
    return {
        "early_gb": early,
        "late_gb": late,
        "mb_per_iteration": (late - early) / max(1, len(rows) - 2 * fifth) * 1e3,
    }


def main() -> None:
    """Measure all modes and write the results."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--mode", choices=MODES, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.mode:
        print(json.dumps(measure_phases(*MODES[options.mode])))
        return
    from arena.doctor import describe_environment

    result: dict[str, Any] = {"command": format_command()}
    result |= {"machine": describe_environment(), "seed": 0}
    result["whole"] = run_script("memory.py", "--mode", "quick" if options.quick else "whole")
    if not options.quick:
        result["short"] = run_script("memory.py", "--mode", "short")
        result["flat"] = measure_growth(result["short"]["iterations"])
    peak = result["whole"]["peak"]
    result["verdict"] = {"peak_gb": peak, "target": TARGET_GB, "met": peak < TARGET_GB}
    write_result("memory", result, options.quick)
    whole = result["whole"]
    print("loaded", whole["loaded"], "peak", round(peak, 2))
    print("    begun", {name: round(gb, 2) for name, gb in whole["begun"]["peak"].items()})
    for row in whole["iterations"]:
        print("   ", row["iteration"], {name: round(gb, 2) for name, gb in row["peak"].items()})
    print("   ", {name: round(gb, 3) for name, gb in whole["tensors after the last"].items()})
    print(result.get("flat", ""), result["verdict"])


if __name__ == "__main__":
    main()
