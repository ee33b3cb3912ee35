"""Report at the end of a run: panel, changes in play, strength, and commands to try next."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.text import Text

from agents.errors import RoleError, WeightsError
from arena.cli.progress import progress
from arena.errors import ConfigError, StoreError

if TYPE_CHECKING:
    from arena.cli.live import Screen
    from arena.evaluate.exploitability import Exploitability
    from arena.evaluate.held_out import HeldOutResults


def print_report(console: Console, folder: Path, screen: Screen) -> None:
    """Play a finished run's evaluation, measure exploitability, and print the report; JSON if the style is `json`."""
    from arena.cli.show import show_changes, show_strength
    from arena.cli.show_evaluate import print_warnings, show_differences
    from arena.cli.show_panel import show_run_panel
    from arena.cli.summary import compute_changes, find_best_match, find_games_without_rivals, find_uninformative_games
    from arena.config.saved_config import load_experiment
    from arena.store.evaluations import read_evaluations
    from arena.store.reader import RunReader

    is_json = screen.style == "json"
    compared = evaluate_games(folder, quiet=is_json)
    exact = measure_exploitability(folder)
    if is_json:
        print(json.dumps(_to_json(folder, compared, exact)))
        return
    experiment, metrics, best = load_experiment(folder), RunReader(folder).metrics(), find_best_match(folder)
    show_run_panel(console, read_evaluations(folder), experiment, folder)
    show_changes(console, compute_changes(folder), metrics)
    uninformative = [] if compared else find_uninformative_games(folder)
    show_strength(console, exact, uninformative, find_games_without_rivals(folder))
    if compared:
        console.print()
        show_differences(console, compared.before, compared.after)
        print_warnings(console, [*compared.before, *compared.after])
    games = dict.fromkeys(table.game.name for table in experiment.all_tables())
    run = str(folder)
    commands = [["arena", "show", run], *([["arena", "show", run, best]] if best else [])]
    commands += [["arena", "eval", run, "--game", ",".join(games), "--before"]] if games else []
    commands += [["arena", "export", run, "--policy", name, "--to", "DIR"] for name in metrics[-1]["learn"]]
    console.print(Text("\nNext:\n" + "\n".join(f"  {shlex.join(command)}" for command in commands)), soft_wrap=True)


def _to_json(
    folder: Path, compared: HeldOutResults | None, exact: Mapping[str, tuple[Exploitability, Exploitability]]
) -> dict[str, object]:
    from arena.cli.show_panel import panel_to_json
    from arena.cli.summary import compute_changes, find_best_match
    from arena.config.saved_config import load_experiment
    from arena.store.evaluations import read_evaluations

    rows = [
        {"figure": c.name, "first": c.first, "last": c.last, "difference": c.difference, "theory": c.theory}
        for c in compute_changes(folder)
    ]
    ends = {game: [first.exploitability, last.exploitability] for game, (first, last) in exact.items()}
    data = {"run": str(folder), "changes": rows, "match": find_best_match(folder), "exploitability": ends}
    panel = panel_to_json(read_evaluations(folder), load_experiment(folder), folder)
    return data | ({"panel": panel} if panel else {}) | ({"evaluation": compared.to_json()} if compared else {})


def evaluate_games(run: Path, quiet: bool) -> HeldOutResults | None:
    """Play the games of a run's `evaluate.games` with its first and last weights and return both results.

    Returns None if it names no games. Shows progress unless `quiet`.
    """
    from arena.cli.loop import wait
    from arena.config.saved_config import load_experiment
    from arena.evaluate.held_out import evaluate_held_out

    experiment = load_experiment(run)
    if experiment.evaluate is None or not experiment.evaluate.games:
        return None
    with ExitStack() as stack:

        def begin(total: int) -> Callable[[], None]:
            return stack.enter_context(progress(total, quiet))

        return wait(evaluate_held_out(run, experiment.evaluate, experiment.seed, begin))


MAX_STATES = 100
"""Maximum information states of games whose exploitability is reported: measuring it takes less than a second."""


def measure_exploitability(run: Path) -> dict[str, tuple[Exploitability, Exploitability]]:
    """Return the exact exploitability of a run's first and last weights by game.

    Leaves out cooperative games, games with more than `MAX_STATES` information states or an untrained seat, and weights
    that cannot be loaded.
    """
    from arena.cli.loop import wait
    from arena.config.saved_config import load_experiment
    from arena.evaluate import specs
    from arena.evaluate.evaluation import make_game
    from arena.evaluate.exploitability import DecisionCache, compute_contender_exploitability, require_small

    measured, cache, experiment = {}, DecisionCache(), load_experiment(run)
    loader = specs.ContenderLoader()
    for table in experiment.all_tables():
        game = make_game(table.game)
        if game.cooperative or not all(experiment.trained(seat.policy) for seat in table.seats.values()):
            continue
        with suppress(ConfigError, StoreError, WeightsError, RoleError):  # not measurable: reports nothing
            require_small(game, MAX_STATES)
            ends = wait(loader.load(specs.name_first_weights(str(run)), str(run)))
            first, last = (wait(compute_contender_exploitability(contender, table.game, cache)) for contender in ends)
            measured[table.game.name] = first, last
    return measured
