"""`arena eval`, `arena tournament` and `arena exploit`: measure the strength of contenders."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from arena.cli import panel as panels
from arena.cli.console import PlainConsole, close, note
from arena.cli.progress import progress
from arena.errors import ConfigError
from arena.store.outputs import PICTURE, require_output, results

if TYPE_CHECKING:
    from agents.players.servers import Endpoints
    from arena.evaluate.evaluation import Result
    from arena.evaluate.specs import Contenders
    from arena.play.contenders import Contender
    from arena.play.settings import GameSpec

WHO = (
    "A scripted policy (random, mcts:100), a run (runs/latest, runs/latest@12, runs/latest@0:POLICY), a model "
    "or endpoint:MODEL."
)
Option = Annotated[
    list[str] | None, typer.Option(metavar="A=B", help="An option of the game, such as illegal=end; repeatable.")
]
Role = Annotated[str, typer.Option(help="Role of all models, instead of their own (arena list roles).")]
Split = Annotated[
    str,
    typer.Option(help="Split of a simulator's records: train, test or all; default test."),
]
Seed = Annotated[int, typer.Option(min=0, max=2**63 - 1, help="Seed of deals and all other chance.")]
Matches = Annotated[int, typer.Option(min=2, max=10**6, help="Minimum number of matches against each opponent.")]
Endpoint = Annotated[
    list[str] | None,
    typer.Option(
        metavar="A=B",
        help="Server setting of endpoint:MODEL, such as url=http://localhost:8000/v1 or max_tokens=20000, or of "
        "endpoint@NAME:MODEL, such as NAME.key_variable=MY_KEY; repeatable.",
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON for scripts.")]
Trust = Annotated[
    bool, typer.Option("--trust", help="Allow code from the run's folder that no run on this machine used.")
]
Out = Annotated[Path | None, typer.Option(help="Also write the JSON to this file.")]


def eval_(
    contender: Annotated[str, typer.Argument(help=WHO, show_default=False)],
    game: Annotated[str, typer.Option(help="One or more games: kuhn_poker,negotiation.", show_default=False)] = "",
    against: Annotated[
        str,
        typer.Option(
            help="Opponents or partners: random,mcts:100; default random, or itself in cooperative games.",
            show_default=False,
        ),
    ] = "",
    panel: Annotated[
        str,
        typer.Option(
            help="Panel instead of game and opponents: a name (arena list panels) or YAML file.", show_default=False
        ),
    ] = "",
    deals: Annotated[
        int | None,
        typer.Option(min=2, max=10**5, help="Number of deals; default the panel's.", show_default=False),
    ] = None,
    matches: Annotated[
        int | None, typer.Option(min=2, max=10**6, help="Minimum number of matches against each opponent; default 200.")
    ] = None,
    before: Annotated[
        bool, typer.Option("--before", help="Also play the run's first weights on the same deals.")
    ] = False,
    reward_model: Annotated[
        str,
        typer.Option(help="Reward model whose scores to report: its folder or stage.", show_default=False),
    ] = "",
    role: Role = "",
    option: Option = None,
    split: Split = "",
    endpoint: Endpoint = None,
    seed: Annotated[
        int | None,
        typer.Option(min=0, max=2**63 - 1, help="Seed of deals and all other chance; default 0."),
    ] = None,
    trust: Trust = False,
    out: Out = None,
    as_json: Json = False,
) -> None:
    """Evaluate a contender against others on the same deals from every seat, with 95 % intervals.

    A run plays with the options, roles and seats of its training. Win rates count matches (Wilson intervals), other
    figures are means over deals. An illegal act that ends a match is a loss for its author and a draw for the others.

    A panel is a fixed set of opponents: it shows payoff by member and seat, and the best response's payoff.

    Example: arena eval runs/latest --panel negotiation --before
    """
    from arena.cli.loop import wait
    from arena.evaluate import specs

    require_output("--out", out, results("eval"))
    asked = panels.EvalOptions(contender, before, trust, out, as_json)
    if panel:
        others = {"--game": game, "--against": against, "--matches": matches, "--option": option, "--split": split}
        others |= {"--reward-model": reward_model}
        played = panels.panel_with(panel, deals, seed, others)
        loader = specs.Contenders(role, doing(), servers(endpoint), note, trust)
        wait(panels.evaluate_on_panel(asked, played, loader))
        return
    if deals:
        raise ConfigError("--deals is for --panel: use --matches, or name a panel")
    games = _Games(
        names=listed(game), against=listed(against), options=option or [], split=split, matches=matches or 200,
        seed=seed or 0, reward_model=reward_model,
    )  # fmt: skip
    games.check()
    loader = specs.Contenders(role, doing(), servers(endpoint), note, trust)
    wait(_evaluate(asked, games, loader))


@dataclass(frozen=True, kw_only=True)
class _Games:
    """Options of `arena eval` without a panel: games, opponents, game options, matches and seed."""

    names: list[str]  # of the games
    against: list[str]  # opponents; the default where empty
    options: list[str]  # A=B, of the game
    split: str
    matches: int  # against each other contender
    seed: int
    reward_model: str  # whose scores are reported; "" for none

    def check(self) -> None:
        """Raise ConfigError if no game is named, or one does not exist."""
        from arena.play.settings import GameSpec

        if not self.names:
            raise ConfigError(
                "name a --game, such as --game kuhn_poker, or a --panel (arena list panels): what is to be played?"
            )
        for name in self.names:
            make_known(GameSpec(name=name))


async def _evaluate(asked: panels.EvalOptions, games: _Games, loader: Contenders) -> None:
    """Play the games, with --before also with the run's first weights; write the results and print the figures."""
    from arena.cli.show_evaluate import show_differences, show_results, warn
    from arena.evaluate import specs
    from arena.evaluate.evaluation import check_met, evaluate, matches_of
    from arena.evaluate.held_out import changes
    from arena.evaluate.rating import Rater

    first = [specs.before(asked.who, asked.trust)] if asked.before else []
    who, *rest = await loader.load(asked.who, *first, *games.against, games=games.names)
    players = [*rest[: len(first)], who]  # the first weights play first
    played = []
    for name in games.names:
        spec = game_spec(name, games.options, [who], games.split)
        opponents = await _opponents(who, rest[len(first) :], spec, loader)
        check_met(who, opponents, spec)
        played.append((spec, opponents))
    rate = Rater(games.reward_model, players) if games.reward_model else None
    total = sum(matches_of(p, _met_by(p, who, met), spec, games.matches) for p in players for spec, met in played)
    results: list[list[Result]] = []
    with progress(total, asked.as_json, loader.endpoints.status) as step:
        for player in players:
            results.append([])
            for spec, met in played:
                others = _met_by(player, who, met)
                results[-1] += await evaluate(player, others, spec, games.matches, games.seed, step, rate)
    *old, after = results
    data = {"contender": asked.who, "seed": games.seed, "results": [r.to_json() for r in after]}
    if old:
        data |= {"before": [r.to_json() for r in old[0]], "changes": changes(old[0], after)}
    close("eval", data, asked.out, asked.as_json)
    if asked.as_json:
        return
    console = PlainConsole()
    show_results(console, after)
    if old:
        console.print()
        show_differences(console, old[0], after)
        warn(console, old[0])


def tournament_(
    contenders: Annotated[list[str], typer.Argument(help=WHO, show_default=False)],
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
    from arena.evaluate.evaluation import deals_for
    from arena.evaluate.specs import Contenders
    from arena.evaluate.tournament import pair_count, tournament
    from arena.play.settings import GameSpec

    console = PlainConsole()
    require_output("--plot", plot, PICTURE)
    require_output("--out", out, results("tournament"))
    make_known(GameSpec(name=game))
    loader = Contenders(role, doing(), servers(endpoint), note, trust)
    loaded = wait(loader.load(*contenders, games=[game]))
    spec = game_spec(game, option, loaded, split)
    with progress(pair_count(len(loaded), spec) * deals_for(matches, 2) * 2, as_json, loader.endpoints.status) as step:
        standings = wait(tournament(loaded, spec, matches, seed, step))
    if plot:
        from arena.evaluate.crosstable_plot import draw_tournament, save_picture

        save_picture(lambda: draw_tournament(standings), plot)
    close("tournament", {"seed": seed, **standings.to_json()}, out, as_json)
    if not as_json:
        from arena.cli.show_evaluate import show_standings

        show_standings(console, standings)


def exploit(
    contenders: Annotated[list[str], typer.Argument(help=WHO, show_default=False)],
    game: Annotated[
        str, typer.Option(help="A small OpenSpiel game of two seats: kuhn_poker, leduc_poker, …", show_default=False)
    ],
    history: Annotated[bool, typer.Option("--history", help="Measure all weights that a run still keeps.")] = False,
    role: Role = "",
    option: Option = None,
    trust: Trust = False,
    out: Out = None,
    as_json: Json = False,
) -> None:
    """Compute the exact exploitability of contenders: the gain of a best response against them.

    NashConv is the sum of the seats' gains, 0 in equilibrium; exploitability is NashConv / 2. A model is measured
    as a policy over legal acts; legal mass is the share of its replies that are exactly a legal act.

    Example: arena exploit runs/latest random nash --game kuhn_poker --history
    """
    from arena.cli.loop import wait
    from arena.evaluate import specs
    from arena.evaluate.evaluation import make_game
    from arena.evaluate.exploitability import DecisionCache, Exploitability, exploitability_of
    from arena.play.settings import GameSpec

    console, known = PlainConsole(), DecisionCache()
    require_output("--out", out, results("exploit"))
    make_game(GameSpec(name=game))
    names = [each for name in contenders for each in (specs.history(name, trust) if history else [name])]
    loader, exploitabilities = specs.Contenders(role, doing(), note=note, trust=trust), dict[str, Exploitability]()
    spec: GameSpec | None = None
    for name in dict.fromkeys(names):
        (contender,) = wait(loader.load(name))
        spec = spec or game_spec(game, option, [contender])
        exploitabilities[name] = wait(exploitability_of(contender, spec, known))
        wait(loader.unload(contender))
    assert spec is not None
    rows = [
        {"contender": n, "nash_conv": e.nash_conv, "exploitability": e.exploitability, "gains": e.gains,
         "value": e.value, "legal_mass": e.legal_mass, "states": e.states}
        for n, e in exploitabilities.items()
    ]  # fmt: skip
    close("exploit", {"game": spec.name, "options": spec.options, "contenders": rows}, out, as_json)
    if not as_json:
        from arena.cli.show_evaluate import show_exploitabilities

        show_exploitabilities(console, spec, exploitabilities)


# -- shared ---------------------------------------------------------------------------------------


def listed(text: str) -> list[str]:
    """Split a comma-separated option into its names, without duplicates. Commas in parentheses belong to a name."""
    parts = re.split(r",(?![^()]*\))", text)  # openspiel:oh_hell(players=3,num_suits=2) is one name
    return list(dict.fromkeys(part.strip() for part in parts if part.strip()))


def game_spec(
    name: str, assignments: Sequence[str] | None, contenders: Sequence[Contender], split: str = ""
) -> GameSpec:
    """Return the game with the options of the first run among the contenders, overridden by `assignments` (A=B).

    A game with splits uses the test split by default, whatever the run trained on. Prints a notice if the run has not
    played the game, or was not trained on the train split alone.
    """
    from arena.config.own_files import same_game
    from arena.config.sources import game_options
    from arena.evaluate.casting import casts, warn_unknown_games
    from arena.evaluate.evaluation import on_split
    from arena.play.settings import GameSpec

    given = game_options(assignments or [])
    if split and "split" in given:
        raise ConfigError("--split and --option split: give one of them")
    runs = [(cast.name, cast.experiment) for cast in casts(contenders) if cast.experiment]
    name = same_game(name, *(experiment for _, experiment in runs))
    for line in warn_unknown_games(contenders, name):
        note(line)
    trained = [(run, table.game) for run, e in runs for table in e.all_tables() if table.game.name == name]
    options = {key: value for _, game in trained[:1] for key, value in game.options.items() if key != "split"}
    spec = on_split(GameSpec(name=name, options=options | given), split)
    if spec.options.get("split") == "test":
        for run in dict.fromkeys(run for run, game in trained if game.options.get("split", "all") != "train"):
            said = f"{run} was not trained on the train split of {name} alone: it may have met whom it is dealt here"
            note(f"{said} (for a run of train: --set game.options.split=train)")
    return spec


def make_known(spec: GameSpec) -> None:
    """Raise ConfigError if the game does not exist. A file's game may come from a run, so it is checked later."""
    from arena.evaluate.evaluation import make_game

    if ".py:" not in spec.name:
        make_game(spec)


async def _opponents(who: Contender, given: list[Contender], spec: GameSpec, loader: Contenders) -> list[Contender]:
    """Return the opponents: none in a game of one seat, else `given`; by default `who` if cooperative, else random."""
    from arena.evaluate.evaluation import make_game

    game = make_game(spec)
    if len(game.possible_agents) == 1:
        return []
    return given or ([who] if game.cooperative else await loader.load("random"))


def _met_by(player: Contender, who: Contender, others: list[Contender]) -> list[Contender]:
    """Return `others` with `player` in place of `who`, so that self-play stays self-play for a run's first weights."""
    return [player if other is who else other for other in others]


def servers(assignments: Sequence[str] | None) -> Endpoints:
    """Return the endpoint servers with the settings of `--endpoint`. Raises ConfigError if one is malformed."""
    from agents.players.servers import Endpoints
    from arena.config.layers import endpoint_specs

    return Endpoints(endpoint_specs(assignments or []))


def doing() -> Callable[[str], None]:
    """Return a function that announces a slow step, such as loading a model, on stderr if that is a terminal."""
    terminal = PlainConsole(stderr=True)
    return lambda what: (
        terminal.print(what, style="dim", markup=False, soft_wrap=True) if terminal.is_terminal else None
    )
