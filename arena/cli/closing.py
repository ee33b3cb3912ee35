"""The summary at the end of a run: the panel first, then changes in play, and what to look at next."""

from __future__ import annotations

import json
from collections.abc import Callable
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
    from arena.evaluate.held_out import Compared


def close(console: Console, folder: Path, screen: Screen) -> None:
    """Print the summary: what changed, and what to look at next."""
    from arena.cli.show import show_changes, show_strength
    from arena.cli.show_panel import panel_json, show_run_panel
    from arena.cli.summary import best_match, changes, games_without_rivals, silent_games
    from arena.config.saved_config import experiment_of
    from arena.store.evaluations import read_evaluations
    from arena.store.reader import RunReader

    best, experiment, judged = best_match(folder), experiment_of(folder), read_evaluations(folder)
    compared, exact = compare(folder, quiet=screen.style == "json"), exploited(folder)
    if screen.style == "json":
        rows = [
            {"figure": c.name, "first": c.first, "last": c.last, "difference": c.difference, "theory": c.theory}
            for c in changes(folder)
        ]
        ends = {game: [first.exploitability, last.exploitability] for game, (first, last) in exact.items()}
        summary = {"run": str(folder), "changes": rows, "match": best, "exploitability": ends}
        summary |= {"panel": told} if (told := panel_json(judged, experiment, folder)) else {}
        print(json.dumps(summary | ({"evaluation": compared.to_json()} if compared else {})))
        return
    metrics = RunReader(folder).metrics()
    show_run_panel(console, judged, experiment, folder)
    show_changes(console, changes(folder), metrics)
    show_strength(console, exact, [] if compared else silent_games(folder), games_without_rivals(folder))
    if compared:
        show_compared(console, compared)
    next_steps = [f"arena show {folder}"]
    if best:
        next_steps.append(f"arena show {folder} {best}")
    games = dict.fromkeys(table.game.name for table in experiment.all_tables())
    next_steps.append(f"arena eval {folder} --game {','.join(games)} --before")
    next_steps += [f"arena export {folder} --policy {name} --to DIR" for name in metrics[-1]["learn"]]
    console.print(Text("\nNext:\n" + "\n".join(f"  {step}" for step in next_steps)), soft_wrap=True)


def compare(run: Path, quiet: bool) -> Compared | None:
    """Compare as a run's `evaluate.games` asks, once the run is over; None where it does not ask."""
    from arena.cli.loop import wait
    from arena.config.saved_config import experiment_of
    from arena.evaluate.held_out import held_out

    experiment = experiment_of(run)
    if experiment.evaluate is None or not experiment.evaluate.games:
        return None
    with ExitStack() as stack:

        def begin(total: int) -> Callable[[], None]:
            return stack.enter_context(progress(total, quiet))

        return wait(held_out(run, experiment.evaluate, experiment.seed, begin))


AT_CLOSE = 100
"""Information states of a game whose exploitability every run reports at its end: it takes a second."""


def exploited(run: Path) -> dict[str, tuple[Exploitability, Exploitability]]:
    """The exact exploitability of a run's first and last weights, by game, where that is cheap to know."""
    from arena.cli.loop import wait
    from arena.config.saved_config import experiment_of
    from arena.evaluate import specs
    from arena.evaluate.evaluation import make_game
    from arena.evaluate.exploitability import DecisionCache, exploitability_of, require_small

    told, known, experiment = {}, DecisionCache(), experiment_of(run)
    loader = specs.Contenders()
    for table in experiment.all_tables():
        game = make_game(table.game)
        if game.cooperative or not all(experiment.trained(seat.policy) for seat in table.seats.values()):
            continue
        with suppress(
            ConfigError, StoreError, WeightsError, RoleError
        ):  # it cannot be known exactly: nothing is reported
            require_small(game, AT_CLOSE)
            ends = wait(loader.load(specs.before(str(run)), str(run)))
            told[table.game.name] = tuple(wait(exploitability_of(who, table.game, known)) for who in ends)
    return told  # type: ignore[return-value]


def show_compared(console: Console, compared: Compared) -> None:
    """The table of before and after."""
    from arena.cli.show_evaluate import show_changes, warn

    console.print()
    show_changes(console, compared.before, compared.after)
    warn(console, [*compared.before, *compared.after])
