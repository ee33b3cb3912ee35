"""Panels in `arena eval WHO --panel NAME`, `arena list panels` and `arena show panel NAME`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from arena.cli.console import PlainConsole, note, write_results
from arena.cli.progress import progress
from arena.errors import ConfigError

if TYPE_CHECKING:
    from arena.evaluate.panel import PanelPlan
    from arena.evaluate.specs import ContenderLoader
    from arena.panels.settings import Panel
    from arena.play.contenders import Contender


def load_adjusted_panel(name: str, deals: int | None, seed: int | None, forbidden: dict[str, Any]) -> Panel:
    """Load a panel, with its number of deals and its seed replaced where `deals` and `seed` are not None.

    `forbidden` are the values, by name, of command-line options that a panel does not allow, because it sets them
    itself. Raises ConfigError if the user gave one.
    """
    from arena.panels.settings import load_panel

    if extra := [option for option, value in forbidden.items() if value]:
        raise ConfigError(f"--panel decides the game and the opponents: leave {', '.join(extra)} out")
    changes = {"deals": deals, "seed": seed}
    return load_panel(name).model_copy(update={key: value for key, value in changes.items() if value is not None})


@dataclass(frozen=True)
class EvalOptions:
    """Options of `arena eval` about the contender and the output."""

    contender: str
    before: bool
    trust: bool
    out: Path | None
    as_json: bool


async def evaluate_on_panel(options: EvalOptions, panel: Panel, loader: ContenderLoader) -> None:
    """Play the contender on the panel, write the results and print the payoffs.

    With --before, the run's initial weights are played too.
    """
    from arena.cli.show_panel import show_panel_table
    from arena.evaluate import specs
    from arena.evaluate.best_play import BestPlay
    from arena.evaluate.panel import find_training_opponents
    from arena.evaluate.panel_figures import to_json

    name, trust = options.contender, options.trust
    names = [name, *([specs.name_first_weights(name, trust)] if options.before else []), *panel.members]
    contender, *rest = await loader.load(*names, games=[panel.game.name])
    first = rest.pop(0) if options.before else None
    plans = _plan_all([contender, *([first] if first else [])], panel, rest)
    with progress(sum(plan.matches for plan in plans), options.as_json, loader.endpoints.status) as step:
        after = await plans[0].play(step)
        old = await plans[1].play(step, best=BestPlay.of(after)) if first else None
    source = specs.read_spec(name, trust)
    known = find_training_opponents(source.experiment)
    known = known.with_own(source.run, panel.members) if source.run else known
    data = {
        "contender": name,
        **to_json(after, old),
        "met": sorted(known.opponents),
        "demonstrated": sorted(known.demonstrators),
    }
    write_results("eval", data, options.out, options.as_json)
    if options.as_json:
        return
    console = PlainConsole()
    show_panel_table(console, after, old, known, name)
    for evaluation in (after, *([old] if old else ())):
        for reason, count in evaluation.failed.items():
            note(f"{evaluation.contender}: {count} failed and played again: {reason}")


def _plan_all(contenders: Sequence[Contender], panel: Panel, members: Sequence[Contender]) -> list[PanelPlan]:
    """Return the checked plan of each contender's matches. Raises ConfigError if a player cannot take its seat."""
    from arena.evaluate.casting import Casting
    from arena.evaluate.panel import PanelPlan, resolve_panel_game
    from arena.play.contenders import ModelContender

    casts = [c.cast for c in contenders if isinstance(c, ModelContender) and isinstance(c.cast, Casting)]
    game = resolve_panel_game(panel, next((cast.experiment for cast in casts if cast.experiment), None))
    plans = [PanelPlan(contender, panel, game, members) for contender in contenders]
    for plan in plans:
        plan.check()
    return plans


def list_panels() -> list[dict[str, str]]:
    """Return a row per built-in panel (`panel`, `game`, `members`, `what`) for `arena list panels`."""
    from arena.panels.settings import describe_panel, list_panels, load_panel

    panels = {name: load_panel(name) for name in list_panels()}
    return [
        {"panel": name, "game": panel.game.name, "members": ", ".join(panel.members)}
        | {"description": describe_panel(name)}
        for name, panel in panels.items()
    ]


def describe(name: str) -> dict[str, Any]:
    """Return a panel's settings, such as its game, members, deals and seed, as JSON data."""
    from arena.panels.settings import load_panel

    return load_panel(name).model_dump(mode="json")


def show(console: PlainConsole, name: str) -> None:
    """Print a panel's game, members and number of deals."""
    from agents.players.scripted import GAME_PLAYERS, SCRIPTED
    from arena.cli.show_evaluate import format_game
    from arena.cli.tables import show_line, show_table
    from arena.panels.settings import load_panel

    panel = load_panel(name)
    game_text = (
        format_game(panel.game) if panel.game.options is not None else f"{panel.game.name}, as the run was trained"
    )
    show_line(console, f"panel {panel.panel}: {game_text}", "bold")
    rows = []
    for member in panel.members:
        script = SCRIPTED.get(member) or SCRIPTED.get(member.partition(":")[0])
        rows.append((member, script.description if script and member not in GAME_PLAYERS else ""))
    show_table(console, ("member", ""), rows)
    show_line(console, f"{panel.deals} deals (seed {panel.seed}), each from every seat against every member")
