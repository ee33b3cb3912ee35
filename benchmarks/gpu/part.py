"""Measurement of one part in a process, so that its failure or timeout affects no other part. Started by run.py.

python benchmarks/gpu/part.py PART --device cuda --size full --until 1800000000 --out part.json
"""

import argparse
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
import transformers
from large import measure_large
from machine import measure_machine
from parity import check_agreement
from plan import check_two_ranks, compare_with_trl, measure_decoding, measure_long_updates, run_flagship, run_vision
from rates import measure_speed, measure_training
from recipes import run_negotiation, run_negotiation_nano
from repeat import check_repeats, check_resume
from sheet import Sheet
from size import SIZES
from task import learn_task

PARTS: dict[str, Callable[..., Any]] = {
    "machine": measure_machine,
    "agreement": check_agreement,
    "repeat": check_repeats,
    "resume": check_resume,
    "learning": learn_task,
    "negotiation-nano": run_negotiation_nano,
    "negotiation": run_negotiation,
    "flagship": run_flagship,
    "beside-trl": compare_with_trl,
    "one-card": check_two_ranks,
    "vision": run_vision,
}
MODEL_PARTS: dict[str, Callable[..., Any]] = {
    "speed": measure_speed,
    "train": measure_training,
    "large": measure_large,
    "decode": measure_decoding,
    "long": measure_long_updates,
}
"""Parts whose names end in a model's name, such as speed-nano."""


def main() -> None:
    """Measure one part."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part")
    parser.add_argument("--device", choices=["cuda", "cpu"], required=True)
    parser.add_argument("--size", choices=SIZES, required=True)
    parser.add_argument("--until", type=float, required=True, help="deadline of the part, as by time.time()")
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    sheet = Sheet(options.out, options.until)
    name = options.part
    kind, _, model = name.partition("-")
    work = PARTS[name] if name in PARTS else partial(MODEL_PARTS[kind], name=model)
    device = torch.device("cuda", 0) if options.device == "cuda" else torch.device("cpu")
    sheet.note("device", torch.cuda.get_device_name() if device.type == "cuda" else "cpu")
    sheet.note("versions", {"torch": torch.__version__, "transformers": transformers.__version__})
    sheet.attempt(name, lambda: work(sheet, SIZES[options.size], device))
    sheet.note("cpu_seconds", time.process_time())


if __name__ == "__main__":
    main()
