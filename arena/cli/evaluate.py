"""`arena eval`: measure the strength of a contender against others, on a panel, or by selection among matches."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from arena.cli import best_of as selection
from arena.cli import panel as panels
from arena.cli.console import PlainConsole, close, note
from arena.cli.contenders import (
    WHO,
    Endpoint,
    Json,
    Option,
    Out,
    Role,
    Split,
    Trust,
    doing,
    game_spec,
    listed,
    make_known,
    servers,
)
from arena.cli.progress import progress
from arena.errors import ConfigError
from arena.store.outputs import require_output, results_kind

if TYPE_CHECKING:
    from arena.evaluate.evaluation import Result
    from arena.evaluate.specs import Contenders
    from arena.play.contenders import Contender
    from arena.play.settings import GameSpec


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
        typer.Option(
            min=2,
            max=10**5,
            help="Number of deals with --panel or --best-of; default the panel's, or 100.",
            show_default=False,
        ),
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
    best_of: Annotated[
        int | None,
        typer.Option(
            "--best-of", min=2, max=1024, help="Play each deal this often and select one match.", show_default=False
        ),
    ] = None,
    by: Annotated[
        str,
        typer.Option(
            help="Selection rules: majority,p_yes,reward_model,oracle; default all but those without a judge.",
            show_default=False,
        ),
    ] = "",
    judge: Annotated[
        str,
        typer.Option(
            help="Judge of the rule p_yes: a run (RUN:POLICY) or a model; default the contender itself.",
            show_default=False,
        ),
    ] = "",
    decoding: Annotated[
        str,
        typer.Option(
            help="Decoding options of a role to compare with --best-of: greedy,cautious,votes.", show_default=False
        ),
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

    With --best-of N every deal is played N times, and one match of each deal is selected by its answer.

    Example: arena eval runs/latest --panel negotiation --before
    """
    from arena.cli.loop import wait
    from arena.evaluate import specs

    require_output("--out", out, results_kind("eval"))
    asked = panels.EvalOptions(contender, before, trust, out, as_json)
    if best_of:
        selection.refuse({"--panel": panel, "--before": before, "--matches": matches}, "does not go with --best-of")
        chosen = selection.BestOfOptions(
            n=best_of, games=listed(game), against=listed(against), options=option or [], split=split, by=listed(by),
            judge=judge, reward_model=reward_model, decoding=listed(decoding), deals=deals or selection.DEALS,
            seed=seed or 0,
        )  # fmt: skip
        loader = specs.Contenders(role, doing(), servers(endpoint), note, trust)
        wait(selection.evaluate_best_of(asked, chosen, loader))
        return
    selection.refuse({"--by": by, "--judge": judge, "--decoding": decoding}, "needs --best-of, such as --best-of 16")
    if panel:
        others = {"--game": game, "--against": against, "--matches": matches, "--option": option, "--split": split}
        others |= {"--reward-model": reward_model}
        played = panels.panel_with(panel, deals, seed, others)
        loader = specs.Contenders(role, doing(), servers(endpoint), note, trust)
        wait(panels.evaluate_on_panel(asked, played, loader))
        return
    if deals:
        raise ConfigError("--deals is for --panel and --best-of: use --matches, or name a panel")
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
