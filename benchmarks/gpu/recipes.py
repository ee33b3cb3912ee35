"""The lab's own recipes on this device: an ordinary run in a throw-away folder, as far as time allows."""

from collections.abc import Mapping
from contextlib import ExitStack
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from models import smollm2_at_hand
from sheet import Sheet
from size import Size
from timing import seconds_of

from arena.cli.loop import wait

if TYPE_CHECKING:
    from arena.lab import Lab  # needs more packages than other parts

FIGURES = ("mean_payoff", "valid_rate", "tokens_per_second", "tokens", "seconds")
LAST = 2
ENOUGH = {"negotiation-nano": 10, "negotiation": 6}
"""Iterations from which the result is judged: in benchmarks/results/learning-*.json that is ample."""


def negotiation_nano(sheet: Sheet, size: Size, device: torch.device) -> None:
    """Nano with credit and with none, iteration by iteration in turn."""
    curves = _run(sheet, "negotiation-nano", ("mars", "zero"), size)
    ends = {arm: _end(rows, "mean_payoff") for arm, rows in curves.items()}
    count = len(curves["zero"])
    told = f"mean payoff {ends['mars']:.2f}, without credit {ends['zero']:.2f} after {count} iterations"
    judged = ends["mars"] > ends["zero"] + 1.0 if count >= ENOUGH["negotiation-nano"] else None
    sheet.claim("recipe negotiation-nano learns", f"{told}, {_curve_text(curves['mars'])}", judged)


def negotiation(sheet: Sheet, size: Size, device: torch.device) -> None:
    """SmolLM2 itself, from its own weights."""
    name = "recipe negotiation learns (SmolLM2)"
    if not smollm2_at_hand():
        return sheet.skip(name, "SmolLM2's weights are not in ARENA_HOME")
    if device.type == "cpu":
        return sheet.skip(name, "takes minutes on a CPU: `make learn` measures it")
    rows = _run(sheet, "negotiation", ("mars",), size)["mars"]
    first, last = rows[0]["mean_payoff"], _end(rows, "mean_payoff")
    told = f"mean payoff {first:.2f} at first, {last:.2f} after {len(rows)} iterations"
    judged = last > first + 1.0 if len(rows) >= ENOUGH["negotiation"] else None
    sheet.claim(name, f"{told}, {_curve_text(rows)}", judged)


def _run(sheet: Sheet, recipe: str, arms: tuple[str, ...], size: Size) -> Mapping[str, list[dict[str, Any]]]:
    """Rows of metrics by arm."""
    from workload import open_lab

    from arena.config.layers import compose
    from arena.config.sources import recipe_layer, set_layer

    own = [*(size.recipe if recipe == "negotiation-nano" else ()), "checkpoint.every=1000", "seed=0"]
    curves: dict[str, list[dict[str, Any]]] = {arm: [] for arm in arms}
    with ExitStack() as stack:
        labs = {}
        for arm in arms:
            # one more than are played: the last one would write a checkpoint, which is not what is looked at
            layers = [*own, f"credit.estimator={arm}", f"iterations={size.iterations + 1}"]
            labs[arm] = stack.enter_context(open_lab(compose([recipe_layer(recipe), *map(set_layer, layers)])))
            wait(labs[arm].imitate())
        longest = 0.0
        for k in range(1, size.iterations + 1):
            if sheet.left < 1.5 * longest:
                break
            seconds, rows = seconds_of(partial(_iterated, labs, k))
            for arm, row in rows.items():
                curves[arm].append(row)
            longest = max(longest, seconds)
            kept = {arm: [{name: row[name] for name in FIGURES} for row in rows] for arm, rows in curves.items()}
            sheet.note(recipe, {"settings": own, "curves": kept})
    return curves


def _iterated(labs: Mapping[str, "Lab"], k: int) -> dict[str, dict[str, Any]]:
    return {arm: wait(lab.iterate(k)) for arm, lab in labs.items()}


def _end(rows: list[dict[str, Any]], figure: str) -> float:
    """Mean over the last iterations."""
    last = [row[figure] for row in rows[-LAST:]]
    return float(sum(last) / len(last))


def _curve_text(rows: list[dict[str, Any]]) -> str:
    play, learn = (sorted(row["seconds"][name] for row in rows)[len(rows) // 2] for name in ("play", "learn"))
    return f"{play:.1f} s play and {learn:.1f} s learn each"
