"""Milliseconds per decoding step of Arena's engine, by number of rows, with and without an adapter.

    python benchmarks/decode_step.py                     # three minutes on two quiet cores
    python benchmarks/decode_step.py --before CHECKOUT   # also an older checkout
    python benchmarks/decode_step.py --quick             # one small round: does it still work?

SmolLM2-135M runs in this machine's faster precision, bfloat16 or float32. Rows continue contexts of 200 random tokens,
of which all but the last eight are shared, by 40 tokens. The contexts are cached before a round begins. A step is a
fortieth of the round: forward pass, sampling, and copies of finished rows. Each checkout runs in its own process; they
alternate. Writes results/decode-step.json, or on a GPU a file with its name, such as decode-step-nvidia-h100.json.
"""

import argparse
import os
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from statistics import median
from typing import Any

from peer_process import ORIGINAL_ENVIRONMENT, PeerChannel, PeerProcess, Stopwatch
from reporting import write_result

HERE = Path(__file__).resolve().parent
ROWS = (1, 8, 32, 64, 128)
POLICIES = ("base", "adapter")
SHARED, OWN, STEPS = 192, 8, 40
"""Tokens of a context that all rows share, tokens of each row's own, and sampled tokens."""


def serve() -> None:
    """Time decoding steps on request, with the code of the checkout that comes first on the path."""
    channel = PeerChannel()

    import arena  # noqa: F401  before torch is loaded, because it sets how OpenMP waits

    # isort: split
    import numpy as np
    from engine_requests import make_requests

    from agents.adapter import create_adapter
    from agents.adapter_config import AdapterSpec
    from agents.engines.in_process import InProcessEngine
    from agents.policy import AdapterOnBase, Bases
    from agents.precision import Precision
    from agents.published import FolderWeights, ModuleWeights
    from agents.weights import DEFAULT, resolve
    from arena.cli.loop import wait
    from arena.learn.machine import find_fastest_precision

    precision, folder = Precision(find_fastest_precision()), resolve(DEFAULT)
    engine, base = InProcessEngine(precision), Bases(precision)(folder)
    wait(engine.publish("base", 0, FolderWeights(folder)))
    adapter_weights = AdapterOnBase(create_adapter(base, AdapterSpec(), 0), base, folder, DEFAULT)
    wait(engine.publish("adapter", 0, ModuleWeights(adapter_weights)))
    channel.receive()
    channel.send(precision=precision.value)
    while (request := channel.receive()) is not None:
        rng = np.random.default_rng(request["round"])
        opening = rng.integers(10, 500, SHARED).tolist()
        contexts = [(*opening, *rng.integers(10, 500, OWN).tolist()) for _ in range(request["rows"])]
        first, more = (make_requests(contexts, tokens, "row", request["policy"]) for tokens in (1, request["steps"]))
        wait(engine.generate(first))
        watch = Stopwatch()
        wait(engine.generate(more))
        channel.send(milliseconds=watch.read()["seconds"] / request["steps"] * 1e3)
        for row in more:
            engine.forget(row.key)


def measure(checkouts: dict[str, Path], rounds: int, quick: bool) -> dict[str, Any]:
    """Return the milliseconds per step by policy, rows and checkout. The first round is a warm-up."""
    found: dict[str, Any] = {}
    with ExitStack() as stack:
        peers = {}
        for name, root in checkouts.items():
            path = os.pathsep.join([str(root), *filter(None, [ORIGINAL_ENVIRONMENT.get("PYTHONPATH")])])
            command = [sys.executable, __file__, "--serve"]
            peers[name] = stack.enter_context(PeerProcess(command, ORIGINAL_ENVIRONMENT | {"PYTHONPATH": path}))
        found["precision"] = {name: peer.ask()["precision"] for name, peer in peers.items()}
        for policy in POLICIES:
            for rows in ROWS[:2] if quick else ROWS:
                times: dict[str, list[float]] = {name: [] for name in peers}
                for number in range(rounds + 1):
                    for name, peer in peers.items():
                        request = {"policy": policy, "rows": rows, "round": number, "steps": 4 if quick else STEPS}
                        times[name].append(peer.ask(**request)["milliseconds"])
                measured = {name: each[1:] for name, each in times.items()}
                summary = {name: {"median": median(each), "rounds": each} for name, each in measured.items()}
                found.setdefault(policy, {})[str(rows)] = summary
    return found


def format_summary(found: dict[str, Any]) -> Iterator[str]:
    """Yield the lines of the printed summary."""
    for policy in POLICIES:
        for rows, summaries in found[policy].items():
            texts = "   ".join(f"{name} {summary['median']:6.1f} ms" for name, summary in summaries.items())
            yield f"{policy:8} {rows:>4} rows   {texts}"


def main() -> None:
    """Measure all checkouts, or serve as one checkout's process."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--before", type=Path, help="an older checkout")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        serve()
        return
    if options.before and not (options.before / "agents" / "engines").is_dir():
        parser.error(
            f"--before {options.before}: this is not a checkout of Arena"
        )  # Python would import the installed Arena
    from timing import add_device

    from arena.doctor import describe_environment

    checkouts = {"before": options.before.resolve()} if options.before else {}
    words = ["python", "benchmarks/decode_step.py", *["--before CHECKOUT"] * bool(options.before)]
    result: dict[str, Any] = {
        "command": " ".join(words),
        "machine": describe_environment(),
        "load_at_start": os.getloadavg(),
    }
    result |= measure(checkouts | {"now": HERE.parent}, 1 if options.quick else options.rounds, options.quick)
    result["machine"].pop("command", None)
    result["load_at_end"] = os.getloadavg()
    write_result(add_device("decode-step"), result, options.quick)
    print("\n".join(format_summary(result)))


if __name__ == "__main__":
    main()
