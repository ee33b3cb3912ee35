"""`arena eval WHO --panel NAME`, and panels as `arena list` and `arena show` tell of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from arena.cli.console import PlainConsole, close, note
from arena.cli.progress import progress
from arena.errors import ConfigError

if TYPE_CHECKING:
    from arena.evaluate.panel import PanelPlan
    from arena.evaluate.specs import Contenders
    from arena.panels.settings import Panel
    from arena.play.contenders import Contender


def given(name: str, deals: int | None, seed: int | None, others: dict[str, Any]) -> Panel:
    """The panel, with other deals if asked for; ConfigError for options that a panel decides."""
    from arena.panels.settings import load_panel

    if told := [option for option, value in others.items() if value]:
        raise ConfigError(f"--panel says what is played and against whom: leave {', '.join(told)} out")
    changes = {"deals": deals, "seed": seed}
    return load_panel(name).model_copy(update={key: value for key, value in changes.items() if value is not None})


@dataclass(frozen=True)
class Asked:
    """Options of `arena eval --panel`: the one that it judges, and where what came of it goes."""

    who: str
    before: bool
    trust: bool
    out: Path | None
    as_json: bool


async def judge(asked: Asked, panel: Panel, loader: Contenders) -> None:
    """Play the panel, and the same deals with a run's first weights, too; print what came of it."""
    from arena.cli.show_panel import show_panel_table
    from arena.evaluate import specs
    from arena.evaluate.best_play import BestPlay
    from arena.evaluate.panel import met_in_training
    from arena.evaluate.panel_figures import to_json

    who, trust = asked.who, asked.trust
    wanted = [who, *([specs.before(who, trust)] if asked.before else []), *panel.members]
    contender, *rest = await loader.load(*wanted, games=[panel.game.name])
    first = rest.pop(0) if asked.before else None
    plans = _plan_all([contender, *([first] if first else [])], panel, rest)
    with progress(sum(plan.matches for plan in plans), asked.as_json, loader.endpoints.status) as step:
        after = await plans[0].play(step)
        old = await plans[1].play(step, best=BestPlay.of(after)) if first else None
    source = specs.read_spec(who, trust)
    known = met_in_training(source.experiment)
    known = known.with_own(source.run, panel.members) if source.run else known
    data = {
        "contender": who,
        **to_json(after, old),
        "met": sorted(known.met),
        "demonstrated": sorted(known.demonstrated),
    }
    close("eval", data, asked.out, asked.as_json)
    if asked.as_json:
        return
    console = PlainConsole()
    show_panel_table(console, after, old, known, who)
    for evaluation in (after, *([old] if old else ())):
        for reason, count in evaluation.failed.items():
            note(f"{evaluation.contender}: {count} failed and played again: {reason}")


def _plan_all(contenders: Sequence[Contender], panel: Panel, members: Sequence[Contender]) -> list[PanelPlan]:
    """Each of them before the panel; all are checked before anybody plays."""
    from arena.evaluate.casting import Casting
    from arena.evaluate.panel import PanelPlan, panel_game
    from arena.play.contenders import ModelContender

    casts = [c.cast for c in contenders if isinstance(c, ModelContender) and isinstance(c.cast, Casting)]
    game = panel_game(panel, next((cast.experiment for cast in casts if cast.experiment), None))
    plans = [PanelPlan(contender, panel, game, members) for contender in contenders]
    for plan in plans:
        plan.check()
    return plans


def entries() -> list[dict[str, str]]:
    """The rows of `arena list panels`."""
    from arena.panels.settings import about, load_panel, panel_names

    panels = {name: load_panel(name) for name in panel_names()}
    return [
        {"panel": name, "game": panel.game.name, "members": ", ".join(panel.members), "what": about(name)}
        for name, panel in panels.items()
    ]


def describe(name: str) -> dict[str, Any]:
    """All of a panel, for `arena show panel NAME --json`."""
    from arena.panels.settings import load_panel

    return load_panel(name).model_dump(mode="json")


def show(console: PlainConsole, name: str) -> None:
    """Print what a panel plays, who its members are, and how many deals that is."""
    from rich.table import Table
    from rich.text import Text

    from agents.players.scripted import OWN, SCRIPTED
    from arena.cli.show_evaluate import titled
    from arena.panels.settings import load_panel

    panel = load_panel(name)
    played = titled(panel.game) if panel.game.options is not None else f"{panel.game.name}, as the run was trained"
    console.print(Text(f"panel {panel.panel}: {played}", style="bold"), soft_wrap=True)
    table = Table(box=None, pad_edge=False, show_header=False)
    for member in panel.members:
        script = SCRIPTED.get(member) or SCRIPTED.get(member.partition(":")[0])
        table.add_row(Text(member), Text(script.what if script and member not in OWN else ""))
    console.print(table)
    console.print(Text(f"{panel.deals} deals (seed {panel.seed}), each from every seat against every member"))
