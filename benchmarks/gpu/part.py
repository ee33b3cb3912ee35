"""One part in a process of its own: what breaks or hangs here takes nothing else with it. Started by run.py.

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
from large import large
from machine import machine
from parity import agreement
from plan import beside_trl, decode, flagship, long, one_card, vision
from rates import speed, train
from recipes import negotiation, negotiation_nano
from repeat import repeat, resume
from sheet import Sheet
from size import SIZES
from task import learning

PARTS: dict[str, Callable[..., Any]] = {
    "machine": machine,
    "agreement": agreement,
    "repeat": repeat,
    "resume": resume,
    "learning": learning,
    "negotiation-nano": negotiation_nano,
    "negotiation": negotiation,
    "flagship": flagship,
    "beside-trl": beside_trl,
    "one-card": one_card,
    "vision": vision,
}
OF_A_MODEL: dict[str, Callable[..., Any]] = {
    "speed": speed,
    "train": train,
    "large": large,
    "decode": decode,
    "long": long,
}
"""Parts named after the model they are about, as in speed-nano."""


def main() -> None:
    """Measure one part."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part")
    parser.add_argument("--device", choices=["cuda", "cpu"], required=True)
    parser.add_argument("--size", choices=SIZES, required=True)
    parser.add_argument("--until", type=float, required=True, help="by time.time()")
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    sheet = Sheet(options.out, options.until)
    name = options.part
    kind, _, model = name.partition("-")
    work = PARTS[name] if name in PARTS else partial(OF_A_MODEL[kind], name=model)
    device = torch.device("cuda", 0) if options.device == "cuda" else torch.device("cpu")
    sheet.note("device", torch.cuda.get_device_name() if device.type == "cuda" else "cpu")
    sheet.note("versions", {"torch": torch.__version__, "transformers": transformers.__version__})
    sheet.attempt(name, lambda: work(sheet, SIZES[options.size], device))
    sheet.note("cpu_seconds", time.process_time())


if __name__ == "__main__":
    main()
