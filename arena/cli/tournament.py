"""`arena tournament`: every pair of contenders on the same deals."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from arena.cli.console import PlainConsole, note, write_results
from arena.cli.contenders import (
    CONTENDER_HELP,
    Endpoint,
    Json,
    Matches,
    Option,
    Out,
    Role,
    Seed,
    Split,
    Trust,
    make_announcer,
    make_endpoints,
    require_game,
    resolve_game,
)
from arena.cli.progress import progress
from arena.store.outputs import PICTURE, require_output, results_kind


def tournament_(
    contenders: Annotated[list[str], typer.Argument(help=CONTENDER_HELP, show_default=False)],
    game: Annotated[str, typer.Option(help="A game of two seats (arena list games).", show_default=False)],
    matches: Matches = 200,
    role: Role = "",
    option: Option = None,
    split: Split = "",
    endpoint: Endpoint = None,
    seed: Seed = 0,
    plot: Annotated[Path | None, typer.Option(help="Draw payoffs and ratings into this PNG file.")] = None,
    trust: Trust = False,
    out: Out = None,
    as_json: Json = False,
) -> None:
    """Play every pair on the same deals in both orders; print payoffs, Elo ratings and cycles.

    In cooperative games every contender also plays with itself: the payoffs show who works well with whom.

    Example: arena tournament random nash runs/latest runs/latest@0 --game kuhn_poker --plot standings.png
    """
    from arena.cli.loop import wait
    from arena.evaluate.evaluation import count_deals
    from arena.evaluate.specs import ContenderLoader
    from arena.evaluate.tournament import count_pairs, play_tournament
    from arena.play.settings import GameSpec

    console = PlainConsole()
    require_output("--plot", plot, PICTURE)
    require_output("--out", out, results_kind("tournament"))
    require_game(GameSpec(name=game))
    loader = ContenderLoader(role, make_announcer(), make_endpoints(endpoint), note, trust)
    loaded = wait(loader.load(*contenders, games=[game]))
    spec = resolve_game(game, option, loaded, split)
    with progress(
        count_pairs(len(loaded), spec) * count_deals(matches, 2) * 2, as_json, loader.endpoints.status
    ) as step:
        standings = wait(play_tournament(loaded, spec, matches, seed, step))
    if plot:
        from arena.evaluate.crosstable_plot import draw_tournament
        from arena.store.plots import save_plot

        save_plot(lambda: draw_tournament(standings), plot)
    write_results("tournament", {"seed": seed, **standings.to_json()}, out, as_json)
    if not as_json:
        from arena.cli.show_evaluate import show_standings

        show_standings(console, standings)
