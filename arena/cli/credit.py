"""`arena credit`: compare estimators on a run's match log."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from arena.cli.console import PlainConsole, note
from arena.cli.contenders import Trust
from arena.errors import ConfigError

if TYPE_CHECKING:
    from arena.credit.compare import Comparison
    from arena.parts.part_config import PartConfig


def credit(
    run: Annotated[Path, typer.Argument(help="A run folder, such as runs/latest.", show_default=False)],
    estimators: Annotated[
        str,
        typer.Option(help="Estimators: mars,grpo or '[mars, {rae: {decay: 0.9}}]' (arena list estimators)."),
    ] = "mars,rae,grpo,gae_turn",
    match: Annotated[str, typer.Option(help="Match to show turn by turn; default the most disputed one.")] = "",
    iteration: Annotated[
        list[int] | None, typer.Option(help="Use only the turns of this iteration; repeatable.", min=1)
    ] = None,
    trust: Trust = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON for scripts, every turn included.")] = False,
) -> None:
    """Compare the advantages that estimators give to a run's logged turns.

    Example: arena credit runs/latest --estimators mars,rae,grpo --match 0010-0003
    """
    from arena.cli.loop import wait
    from arena.cli.show_credit import show_comparison
    from arena.config.saved_config import load_experiment
    from arena.credit.compare import compare
    from arena.store.contents import check_newest
    from arena.store.reader import RunReader

    check_newest(RunReader(run).path, note)
    experiment = load_experiment(run, trust=trust)
    chosen, length = parse_estimators(estimators), experiment.iterations
    comparison = wait(compare(run, experiment.credit, chosen, iteration, seed=experiment.seed, length=length))
    match_id = match or comparison.most_disputed()
    if not (comparison.turns["match"] == match_id).any():
        raise ConfigError(
            f"match '{match_id}' has no turn of a trained policy here: leave --match out, or see arena show"
        )
    if as_json:
        print(json.dumps(_to_json(comparison)))
    else:
        show_comparison(PlainConsole(), run, comparison, match_id)


def parse_estimators(text: str) -> list[PartConfig]:
    """Return the estimators named by a comma-separated or YAML list. Raises ConfigError for an unknown one."""
    from pydantic import TypeAdapter, ValidationError

    from arena.config.kinds import with_hints
    from arena.config.sources import text_layer
    from arena.credit.estimators import ESTIMATOR
    from arena.parts.part_config import PartConfig

    as_list = text if text.lstrip().startswith("[") else f"[{text}]"
    try:
        return TypeAdapter(list[Annotated[PartConfig, ESTIMATOR]]).validate_python(
            text_layer("--estimators", as_list).data
        )
    except ValidationError as error:
        first = with_hints(error).errors(include_url=False)[0]
        field = ".".join(str(step) for step in first["loc"][1:])
        raise ConfigError(f"--estimators: {field + ': ' if field else ''}{first['msg']}") from None


def _to_json(comparison: Comparison) -> dict[str, object]:
    """Return the tables overview, correlations, bias and turns by name, each as a list of rows; NaN becomes None."""
    tables = {
        "overview": comparison.overview().rename_axis("estimator").reset_index(),
        "correlations": comparison.correlations().rename_axis("estimator").reset_index(),
        "bias": comparison.bias().reset_index(),
        "turns": comparison.turns,
    }
    return {name: json.loads(table.to_json(orient="records", double_precision=15)) for name, table in tables.items()}
