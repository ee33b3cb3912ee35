"""`arena eval CONTENDER --best-of N`: selection among several matches of each deal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from rich.console import Console

from arena.cli.console import PlainConsole, write_results
from arena.cli.contenders import require_game, resolve_game
from arena.cli.panel import EvalOptions
from arena.cli.progress import progress
from arena.cli.tables import format_difference, format_interval, format_number, show_line, show_table
from arena.errors import ConfigError
from games.names import nearest

if TYPE_CHECKING:
    from arena.evaluate.best_of import BestOf
    from arena.evaluate.sampled import Decoding, Scorer
    from arena.evaluate.selection import Rule
    from arena.evaluate.specs import ContenderLoader
    from arena.play.contenders import Contender

DEALS = 100
"""Default number of deals."""
Name = TypeVar("Name", bound=str)


@dataclass(frozen=True, kw_only=True)
class BestOfOptions:
    """Options of `arena eval --best-of`, as on the command line."""

    n: int
    """Number of matches per deal, of which one is selected."""
    games: Sequence[str]
    against: Sequence[str]
    options: Sequence[str]
    """Options of the game, as A=B."""
    split: str
    by: Sequence[str]
    """Selection rules; [] for the default."""
    judge: str
    reward_model: str
    decoding: Sequence[str]
    deals: int
    seed: int

    def check(self) -> None:
        """Raise ConfigError unless there is one known game and at most one contender for the other seats."""
        from arena.play.settings import GameSpec

        if len(self.games) != 1:
            raise ConfigError("--best-of needs exactly one --game, such as --game reasoning")
        if len(self.against) > 1:
            raise ConfigError("--best-of takes one contender for all other seats: --against random")
        require_game(GameSpec(name=self.games[0]))

    def resolve_rules(self) -> list[Rule]:
        """Return the selection rules of `--by`.

        The default is all rules, except `p_yes` without a judge and `reward_model` without a reward model. Raises
        ConfigError for an unknown rule, a missing reward model, or a judge or reward model that no rule uses.
        """
        from arena.evaluate.selection import RULES

        judges = {"p_yes": self.judge, "reward_model": self.reward_model}
        default = [rule for rule in RULES if judges.get(rule, "always")]
        rules = _require_known(self.by, RULES, "--by") or default
        if "reward_model" in rules and not self.reward_model:
            raise ConfigError("--by reward_model needs --reward-model FOLDER")
        for rule, judge in judges.items():
            if judge and rule not in rules:
                raise ConfigError(f"--{'judge' if rule == 'p_yes' else 'reward-model'} needs {rule} in --by")
        return rules

    def resolve_decodings(self) -> list[Decoding]:
        """Return the decoding options of `--decoding`. Raises ConfigError for an unknown one."""
        from arena.evaluate.sampled import DECODINGS

        return _require_known(self.decoding, DECODINGS, "--decoding")


def refuse_options(options: Mapping[str, object], reason: str) -> None:
    """Raise ConfigError with this reason if one of the options has a value; the message names the first."""
    for option, value in options.items():
        if value:
            raise ConfigError(f"{option} {reason}")


def _require_known(names: Sequence[str], known: Sequence[Name], option: str) -> list[Name]:
    """Return the names. Raises ConfigError, with the nearest known name, if one is unknown."""
    for name in names:
        if name not in known:
            raise ConfigError(f"{option}: unknown '{name}'{nearest(name, known)} (one of: {', '.join(known)})")
    return [rule for name in names for rule in known if rule == name]


async def evaluate_best_of(shared: EvalOptions, options: BestOfOptions, loader: ContenderLoader) -> None:
    """Play the matches of `arena eval --best-of`, then write and print the results."""
    from arena.evaluate import best_of as evaluation
    from arena.evaluate.sampled import with_decoding
    from arena.evaluate.verifier import Verifier, find_judge_seat

    options.check()
    rules, decodings = options.resolve_rules(), options.resolve_decodings()
    judges = [options.judge] if options.judge else []
    contender, *rest = await loader.load(shared.contender, *judges, *options.against, games=options.games)
    judge = (rest.pop(0) if judges else contender) if "p_yes" in rules else None
    spec = resolve_game(options.games[0], options.options, [contender, *filter(None, [judge])], options.split)
    seat = evaluation.find_answering_seat(contender, spec)
    for decoding in decodings:
        with_decoding(contender, decoding, options.n)  # raises ConfigError for an impossible option before any match
    judge_seat = find_judge_seat(judge, spec, seat) if judge else ""
    lineup = evaluation.seat_contenders(contender, spec, seat, rest[0] if rest else None, judge, judge_seat)
    scorers: dict[str, Scorer] = {"p_yes": Verifier(judge, contender, spec, seat, judge_seat)} if judge else {}
    if "reward_model" in rules:
        scorers["reward_model"] = _make_reward_scorer(options.reward_model, contender, seat)
    with progress(options.deals * (options.n + len(decodings)), shared.as_json, loader.endpoints.status) as step:
        results = await evaluation.play_best_of(
            lineup, seat, spec, n=options.n, deals=options.deals, seed=options.seed, rules=rules, decodings=decodings,
            scorers=scorers, on_finish=step,
        )  # fmt: skip
    scorer_names = {"judge": judge.name if judge else None, "reward_model": options.reward_model or None}
    write_results("eval", {"seed": options.seed, **scorer_names, **results.to_json()}, shared.out, shared.as_json)
    if not shared.as_json:
        _show(PlainConsole(), results, scorer_names)


def _make_reward_scorer(model: str, contender: Contender, seat: str) -> Scorer:
    """Return a scorer of the seat's answers by a reward model. Raises ConfigError for a contender without weights."""
    from arena.evaluate.rating import Rater
    from arena.play.contenders import ModelContender
    from arena.records import MatchRecord

    if not isinstance(contender, ModelContender):
        raise ConfigError(
            f"--by reward_model: {contender.name} has no weights, so there are no tokens for a reward model to read"
        )
    rater = Rater(model, [contender])

    async def score(record: MatchRecord) -> float:
        return (await rater(record)).get(seat, float("-inf"))

    return score


def _show(console: Console, results: BestOf, judges: Mapping[str, str | None]) -> None:
    """Print a row for each rule and decoding option, then success rate by number of matches."""
    from arena.cli.show_evaluate import format_game
    from arena.statistics import SHARE, mean_ci

    deals = len(results.rows[0].values["success"])
    show_line(
        console,
        f"{results.contender}: {deals} deals, the best of {results.n} matches (95 % intervals over deals)",
        "bold",
    )
    console.print()
    show_line(console, format_game(results.game), "bold")
    rows = []
    for row in results.rows:
        difference = results.difference(row, "success")
        is_first = row is results.rows[0]
        change = "–" if is_first else format_difference("success", difference, format_interval(difference))
        cells = [format_interval(results.mean(row, "success")), change, format_interval(results.mean(row, "payoff"))]
        costs = [format_number(row.tokens, "{:.0f}"), format_number(row.turns, "{:.1f}")]
        rows.append([row.name, str(row.matches), *cells, *costs])
    show_table(console, ("by", "matches", "success", "against mean", "payoff", "tokens", "turns"), rows)
    show_line(console, "tokens: sampled by the contender per deal; turns: its acts per deal", "dim")
    for name, judge_name in judges.items():
        if judge_name:
            show_line(console, f"{name}: {judge_name}", "dim")
    if results.curves:
        console.print()
        show_line(console, "success by number of matches", "bold")
        sizes = [*next(iter(results.curves.values()))]
        curve_rows = [
            [rule, *(format_number(mean_ci(values, SHARE).estimate, "{:.2f}") for values in curve.values())]
            for rule, curve in results.curves.items()
        ]
        show_table(console, ("", *map(str, sizes)), curve_rows)
    if results.missing:
        show_line(
            console, f"! {results.missing} deals are left out, because one of their matches kept failing", "yellow"
        )
    for reason, count in results.failed.items():
        show_line(console, f"! {count} failed and played again: {reason}", "yellow")
