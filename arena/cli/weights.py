"""`arena average`: the mean of several weights as a folder of its own."""

import json
import math
from pathlib import Path
from typing import Annotated

import typer

from arena.cli.evaluate import Json
from arena.cli.export import To
from arena.errors import ConfigError


def average(
    contenders: Annotated[
        list[str], typer.Argument(help="Runs, such as runs/latest@8, or folders of weights.", show_default=False)
    ],
    to: To,
    weight: Annotated[
        list[float] | None, typer.Option(help="How much one counts: once for each, in their order.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Write the mean of several weights of one model: versions of a run, or runs that began alike.

    Adapters become one adapter, exactly; its rank is the sum of theirs.

    Example: arena average runs/latest@8 runs/latest@10 runs/latest@12 --to steady, then arena eval steady …
    """
    from arena.evaluate.specs import read_spec
    from arena.store.export import new_folder

    weights = weight or [1.0] * len(contenders)
    if len(contenders) < 2:
        raise ConfigError("one contender is its own mean: give two or more, such as runs/latest@8 runs/latest@12")
    if len(weights) != len(contenders) or not all(0 < w < math.inf for w in weights):
        raise ConfigError(f"--weight: give {len(contenders)} numbers above 0, one for each contender, or none")
    folders: list[Path] = []
    for spec in contenders:
        source = read_spec(spec)
        if not source.folders:
            raise ConfigError(f"{spec} has no weights: give runs, models or their folders")
        if len(source.folders) > 1:
            raise ConfigError(f"{spec} has {', '.join(source.folders)}: write {spec}:{next(iter(source.folders))}")
        folders += source.folders.values()
    from agents.average import average as write

    with new_folder(to) as beside:
        write(folders, weights, beside)
    print(json.dumps({"folder": str(to), "of": contenders}) if as_json else f"{to}: the mean of {len(folders)}")
