"""Arena's own recipes on this device: ordinary runs in temporary folders, for as long as time allows."""

from collections.abc import Mapping
from contextlib import ExitStack
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from models import has_smollm2
from sheet import Sheet
from size import Size
from timing import time_call

from arena.cli.loop import wait

if TYPE_CHECKING:
    from arena.lab import Lab  # needs more packages than the other parts

FIGURES = ("mean_payoff", "valid_rate", "tokens_per_second", "tokens", "seconds")
LAST_ITERATIONS = 2
MIN_ITERATIONS = {"negotiation-nano": 10, "negotiation": 6}
"""Minimum iterations for a verdict, by recipe."""


def run_negotiation_nano(sheet: Sheet, size: Size, device: torch.device) -> None:
    """Train nano with and without credit, in alternating iterations, and compare the payoffs."""
    curves = _run_arms(sheet, "negotiation-nano", ("mars", "zero"), size)
    ends = {arm: _average_end(rows, "mean_payoff") for arm, rows in curves.items()}
    count = len(curves["zero"])
    text = f"mean payoff {ends['mars']:.2f}, without credit {ends['zero']:.2f} after {count} iterations"
    holds = ends["mars"] > ends["zero"] + 1.0 if count >= MIN_ITERATIONS["negotiation-nano"] else None
    sheet.claim("recipe negotiation-nano learns", f"{text}, {_format_seconds(curves['mars'])}", holds)


def run_negotiation(sheet: Sheet, size: Size, device: torch.device) -> None:
    """Train SmolLM2 from its own weights, and compare its payoff with the first iteration's."""
    name = "recipe negotiation learns (SmolLM2)"
    if not has_smollm2():
        return sheet.skip(name, "SmolLM2's weights are not in ARENA_HOME")
    if device.type == "cpu":
        return sheet.skip(name, "takes minutes on a CPU")
    rows = _run_arms(sheet, "negotiation", ("mars",), size)["mars"]
    first, last = rows[0]["mean_payoff"], _average_end(rows, "mean_payoff")
    text = f"mean payoff {first:.2f} at first, {last:.2f} after {len(rows)} iterations"
    holds = last > first + 1.0 if len(rows) >= MIN_ITERATIONS["negotiation"] else None
    sheet.claim(name, f"{text}, {_format_seconds(rows)}", holds)


def _run_arms(sheet: Sheet, recipe: str, arms: tuple[str, ...], size: Size) -> Mapping[str, list[dict[str, Any]]]:
    """Run the arms in alternating iterations and return their metrics by arm."""
    from workload import open_lab

    from arena.config.layers import compose
    from arena.config.sources import recipe_layer, set_layer

    settings = [*(size.recipe_settings if recipe == "negotiation-nano" else ()), "checkpoint.every=1000", "seed=0"]
    curves: dict[str, list[dict[str, Any]]] = {arm: [] for arm in arms}
    with ExitStack() as stack:
        labs = {}
        for arm in arms:
            # one more iteration than is played, because the last one would write a checkpoint
            layers = [*settings, f"credit.estimator={arm}", f"iterations={size.iterations + 1}"]
            labs[arm] = stack.enter_context(open_lab(compose([recipe_layer(recipe), *map(set_layer, layers)])))
            wait(labs[arm].imitate())
        longest = 0.0
        for k in range(1, size.iterations + 1):
            if sheet.seconds_left < 1.5 * longest:
                break
            seconds, rows = time_call(partial(_iterate_all, labs, k))
            for arm, row in rows.items():
                curves[arm].append(row)
            longest = max(longest, seconds)
            figures = {arm: [{name: row[name] for name in FIGURES} for row in rows] for arm, rows in curves.items()}
            sheet.note(recipe, {"settings": settings, "curves": figures})
    return curves


def _iterate_all(labs: Mapping[str, "Lab"], k: int) -> dict[str, dict[str, Any]]:
    return {arm: wait(lab.iterate(k)) for arm, lab in labs.items()}


def _average_end(rows: list[dict[str, Any]], figure: str) -> float:
    """Return a figure's mean over the last iterations."""
    last = [row[figure] for row in rows[-LAST_ITERATIONS:]]
    return float(sum(last) / len(last))


def _format_seconds(rows: list[dict[str, Any]]) -> str:
    play, learn = (sorted(row["seconds"][name] for row in rows)[len(rows) // 2] for name in ("play", "learn"))
    return f"{play:.1f} s play and {learn:.1f} s learn each"
