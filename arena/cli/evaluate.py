"""`arena eval`: measure the strength of a contender against others, on a panel, or by selection among matches."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from arena.cli import best_of as selection
from arena.cli import panel as panels
from arena.cli.console import PlainConsole, note, write_results
from arena.cli.contenders import (
    CONTENDER_HELP,
    Endpoint,
    Json,
    Option,
    Out,
    Role,
    Split,
    Trust,
    make_announcer,
    make_endpoints,
    require_game,
    resolve_game,
    split_names,
)
from arena.cli.progress import progress
from arena.errors import ConfigError
from arena.store.outputs import require_output, results_kind

if TYPE_CHECKING:
    from arena.evaluate.evaluation import Result
    from arena.evaluate.specs import ContenderLoader
    from arena.play.contenders import Contender
    from arena.play.settings import GameSpec


def eval_(
    contender: Annotated[str, typer.Argument(help=CONTENDER_HELP, show_default=False)],
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
        bool, typer.Option("--before", help="Also play the run's initial weights on the same deals.")
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
            help="Selection rules: majority,p_yes,reward_model,oracle; default all whose judge or model is given.",
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
        typer.Option(min=0, max=2**63 - 1, help="Seed of deals and all other randomness; default 0."),
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
    from arena.play.settings import GameSpec

    require_output("--out", out, results_kind("eval"))
    shared = panels.EvalOptions(contender, before, trust, out, as_json)
    games, opponents = split_names(game), split_names(against)

    def make_loader() -> ContenderLoader:
        return specs.ContenderLoader(role, make_announcer(), make_endpoints(endpoint), note, trust)

    if best_of:
        forbidden = {"--panel": panel, "--before": before, "--matches": matches}
        selection.refuse_options(forbidden, "does not go with --best-of")
        options = selection.BestOfOptions(
            n=best_of, games=games, against=opponents, options=option or [], split=split, by=split_names(by),
            judge=judge, reward_model=reward_model, decoding=split_names(decoding), deals=deals or selection.DEALS,
            seed=seed or 0,
        )  # fmt: skip
        return wait(selection.evaluate_best_of(shared, options, make_loader()))
    forbidden = {"--by": by, "--judge": judge, "--decoding": decoding}
    selection.refuse_options(forbidden, "needs --best-of, such as --best-of 16")
    if panel:
        forbidden = {"--game": game, "--against": against, "--matches": matches, "--option": option, "--split": split}
        loaded = panels.load_adjusted_panel(panel, deals, seed, {**forbidden, "--reward-model": reward_model})
        return wait(panels.evaluate_on_panel(shared, loaded, make_loader()))
    if deals:
        raise ConfigError("--deals is for --panel and --best-of: use --matches, or name a panel")
    if not games:
        raise ConfigError("name a --game, such as --game kuhn_poker, or a --panel (arena list panels)")
    for name in games:
        require_game(GameSpec(name=name))
    work = _evaluate_games(
        shared, make_loader(), games=games, against=opponents, options=option or [], split=split,
        matches=matches or 200, seed=seed or 0, reward_model=reward_model,
    )  # fmt: skip
    wait(work)


async def _evaluate_games(
    shared: panels.EvalOptions,
    loader: ContenderLoader,
    *,
    games: list[str],
    against: list[str],
    options: list[str],
    split: str,
    matches: int,
    seed: int,
    reward_model: str,
) -> None:
    """Play the games, with --before also with the run's first weights; write the results and print the figures.

    `against` are the opponents, [] for the default; `options` are the games' options, as A=B; `matches` is the minimum
    number against each opponent; `reward_model` is the folder of the model whose scores are reported, "" for none.
    """
    from arena.cli.show_evaluate import print_warnings, show_differences, show_results
    from arena.evaluate import specs
    from arena.evaluate.evaluation import check_lineups, count_matches, evaluate
    from arena.evaluate.held_out import changes_to_json
    from arena.evaluate.rating import Rater

    first_weights = [specs.name_first_weights(shared.contender, shared.trust)] if shared.before else []
    contender, *rest = await loader.load(shared.contender, *first_weights, *against, games=games)
    players = [*rest[: len(first_weights)], contender]  # the first weights play first
    opponents_by_game = []
    for name in games:
        spec = resolve_game(name, options, [contender], split)
        opponents = await _choose_opponents(contender, rest[len(first_weights) :], spec, loader)
        check_lineups(contender, opponents, spec)
        opponents_by_game.append((spec, opponents))
    rate = Rater(reward_model, players) if reward_model else None
    work = [
        [(player, _replace_contender(player, contender, opponents), spec) for spec, opponents in opponents_by_game]
        for player in players
    ]
    total = sum(count_matches(player, others, spec, matches) for row in work for player, others, spec in row)
    results: list[list[Result]] = []
    with progress(total, shared.as_json, loader.endpoints.status) as step:
        for row in work:
            results.append([])
            for player, others, spec in row:
                results[-1] += await evaluate(player, others, spec, matches, seed, step, rate)
    *old, after = results
    data = {"contender": shared.contender, "seed": seed, "results": [r.to_json() for r in after]}
    if old:
        data |= {"before": [r.to_json() for r in old[0]], "changes": changes_to_json(old[0], after)}
    write_results("eval", data, shared.out, shared.as_json)
    if shared.as_json:
        return
    console = PlainConsole()
    show_results(console, after)
    if old:
        console.print()
        show_differences(console, old[0], after)
        print_warnings(console, old[0])


async def _choose_opponents(
    contender: Contender, opponents: list[Contender], spec: GameSpec, loader: ContenderLoader
) -> list[Contender]:
    """Return the opponents in a game: none if it has one seat, else those named on the command line.

    The default is the contender itself in cooperative games, else the random player.
    """
    from arena.evaluate.evaluation import make_game

    game = make_game(spec)
    if len(game.possible_agents) == 1:
        return []
    return opponents or ([contender] if game.cooperative else await loader.load("random"))


def _replace_contender(player: Contender, contender: Contender, others: list[Contender]) -> list[Contender]:
    """Return `others` with `player` in place of `contender`, so that first weights play themselves in self-play."""
    return [player if other is contender else other for other in others]
