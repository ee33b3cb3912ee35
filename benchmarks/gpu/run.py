"""Correctness and speed of Arena on this GPU, compared with a CPU. Takes at most 10 minutes per call.

    python benchmarks/gpu/run.py                 # on the GPU if there is one, else small on the CPU
    python benchmarks/gpu/run.py --resume benchmarks/results/gpu-nvidia-h100.json    # the missing or incomplete parts
    python benchmarks/gpu/run.py --device cpu    # minutes on two cores: does it still work?
    python benchmarks/gpu/run.py speed-qwen2-0.5b machine    # these parts only

Needs torch, transformers, pydantic, pandas and pyarrow. Parts that need other packages are skipped if those are
missing. Needs no network: SmolLM2's own weights are used if they are in ARENA_HOME, else random weights of the same
shape. Each part runs in its own process with its own time limit. Writes results/gpu-DEVICE.json after every part, and
prints a table. The exit code is 1 if a claim does not hold.
"""

import argparse
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from sheet import make_row, write_json
from size import SIZES

HERE = Path(__file__).parent
RESULTS = HERE.parent / "results"
ROOT = HERE.parent.parent
LIMIT = 570.0
"""Time limit of all parts together on a GPU, in seconds."""
SECONDS = {
    "machine": 45,
    "agreement": 75,
    "repeat": 75,
    "resume": 45,
    "speed-smollm2-135m": 75,
    "speed-qwen2-0.5b": 75,
    "speed-qwen2-1.5b": 90,
    "speed-nano": 45,
    "train-smollm2-135m": 45,
    "train-qwen2-0.5b": 45,
    "train-qwen2-1.5b": 50,
    "train-nano": 45,
    "large-qwen2-3b": 60,
    "large-qwen2-7b": 75,
    "large-nano": 45,
    "learning": 60,
    "negotiation-nano": 75,
    "negotiation": 80,
    "flagship": 180,
    "beside-trl": 170,
    "one-card": 90,
    "decode-smollm2-135m": 60,
    "decode-qwen2-0.5b": 90,
    "decode-nano": 45,
    "long-qwen2-0.5b": 90,
    "long-qwen2-7b": 120,
    "long-nano": 45,
    "vision": 120,
}
"""Time limit of each part on a GPU, in seconds."""
SLACK = {"cuda": 1.0, "cpu": 6.0}
"""Factor on all limits, by device."""
SHUTDOWN_SECONDS = 8.0
"""Seconds at the end of a part's time for its current work to end, before the process is killed."""


def list_parts(size: str) -> list[str]:
    """Return all parts in order: the machine, larger parts, correctness, the learned task, speed, and recipes."""
    speed_parts = [f"{measurement}-{name}" for name in SIZES[size].timed_models for measurement in ("speed", "train")]
    large_parts = [f"large-{name}" for name in SIZES[size].large_models]
    larger_parts = ["flagship", "beside-trl", "one-card", *(f"decode-{name}" for name in SIZES[size].timed_models[:2])]
    larger_parts += [*(f"long-{name}" for name in SIZES[size].long_update_models), "vision"]
    other_parts = [
        "agreement",
        "resume",
        "repeat",
        "learning",
        *speed_parts,
        *large_parts,
        "negotiation-nano",
        "negotiation",
    ]
    return ["machine", *larger_parts, *other_parts]


def is_complete(part: dict[str, Any]) -> bool:
    """Return whether a part of earlier results completed all its work without a failure."""
    was_interrupted = part["figures"].get("ended", "").startswith("by the part's time")
    lacked_time = any("time" in line["figure"] and line["verdict"] == "skipped" for line in part["claims"])
    return not was_interrupted and not lacked_time and not any(line["verdict"] == "FAILED" for line in part["claims"])


def run_part(name: str, device: str, size: str, seconds: float) -> dict[str, Any]:
    """Run a part in a process until it ends or reaches its time limit, and return its seconds, figures and claims."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "part.json"
        command = [sys.executable, str(HERE / "part.py"), name, "--device", device, "--size", size]
        command += ["--until", str(time.time() + seconds - SHUTDOWN_SECONDS), "--out", str(out)]
        started = time.perf_counter()
        with open(Path(folder) / "output", "w+") as output:
            failure = _run_command(command, device, seconds, output)
        found = json.loads(out.read_text()) if out.exists() else {"figures": {}, "claims": []}
    if failure:
        found["claims"].append(make_row(name, failure, "FAILED"))
    return {"seconds": time.perf_counter() - started, **found}


def _run_command(command: list[str], device: str, seconds: float, output: Any) -> str:
    """Run a command with a time limit. Returns the reason if it fails, else ""."""
    paths = [str(ROOT), str(HERE.parent), *filter(None, [os.environ.get("PYTHONPATH")])]
    env = os.environ | {"PYTHONPATH": os.pathsep.join(paths), "HF_HUB_OFFLINE": "1"}
    if device == "cpu":
        env["CUDA_VISIBLE_DEVICES"] = ""
    process = subprocess.Popen(command, env=env, stdout=output, stderr=subprocess.STDOUT, start_new_session=True)
    try:
        code = process.wait(seconds)
    except subprocess.TimeoutExpired:
        return f"ended after its {seconds:.0f} s"
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    output.seek(0)
    last = [line.strip() for line in output.read().splitlines() if line.strip()][-1:] or ["no output"]
    return f"exit {code}: {last[0][:160]}" if code else ""


def has_cuda() -> bool:
    """Return whether torch finds a GPU. Asks in another process, so that this one does not occupy the GPU."""
    done = subprocess.run(
        [sys.executable, "-c", "import torch; print(torch.cuda.is_available())"], capture_output=True, text=True
    )
    return done.stdout.strip() == "True"


def print_part(name: str, found: dict[str, Any]) -> None:
    """Print the part's lines of the table."""
    print(f"-- {name}, {found['seconds']:.0f} s")
    for line in found["claims"]:
        print(f"{line['verdict']:9} {line['claim']:58} {line['figure']}")
    sys.stdout.flush()


def main() -> None:
    """Run the parts, write the results after each, and print them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", metavar="PART", help=", ".join(SECONDS))
    parser.add_argument("--device", choices=["cuda", "cpu"], help="default: cuda if there is one")
    parser.add_argument("--quick", action="store_true", help="nano alone, one round: does it still work?")
    parser.add_argument(
        "--resume", type=Path, metavar="RESULTS", help="keep the complete parts of these results and run the others"
    )
    parser.add_argument("--out", type=Path, help="result file, by default results/gpu-DEVICE.json")
    options = parser.parse_args()
    if unknown := set(options.parts) - set(SECONDS):
        parser.error(f"unknown part {', '.join(sorted(unknown))}: the parts are {', '.join(SECONDS)}")
    device = options.device or ("cuda" if has_cuda() else "cpu")
    size = "quick" if options.quick else "full" if device == "cuda" else "small"
    start, out = time.monotonic(), options.out
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # runs `finally`, which ends the current part
    result: dict[str, Any] = {"command": " ".join(["python", "benchmarks/gpu/run.py", *sys.argv[1:]])}
    result |= {"device": device, "size": size, "seed": 0, "load_at_start": os.getloadavg(), "parts": {}}
    if options.resume:
        out, earlier = options.resume, json.loads(options.resume.read_text())["parts"]
        result["parts"] = {name: part for name, part in earlier.items() if is_complete(part)}
    for name in options.parts or [name for name in list_parts(size) if name not in result["parts"]]:
        seconds = min(SLACK[device] * SECONDS[name], SLACK[device] * LIMIT - (time.monotonic() - start))
        if seconds < 2 * SHUTDOWN_SECONDS:
            found: dict[str, Any] = {
                "seconds": 0.0,
                "figures": {},
                "claims": [make_row(name, "no time was left for this part", "skipped")],
            }
        else:
            found = run_part(name, device, size, seconds)
        result["parts"][name] = found
        if out is None:
            device_name = re.sub("[^a-z0-9]+", "-", found["figures"].get("device", device).lower()).strip("-")
            out = RESULTS / f"gpu-{device_name}{'-quick' if options.quick else ''}.json"
        result |= {"seconds": time.monotonic() - start, "load_at_end": os.getloadavg()}
        write_json(out, result)
        print_part(name, found)
    failed = [line for part in result["parts"].values() for line in part["claims"] if line["verdict"] == "FAILED"]
    print(f"-- {len(failed)} failed, {result['seconds']:.0f} s, written to {out}")
    sys.exit(bool(failed))


if __name__ == "__main__":
    main()
