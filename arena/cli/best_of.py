"""`arena eval CONTENDER --best-of N`: selection among several matches of each deal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from rich.console import Console

from agents.names import nearest
from arena.cli.console import PlainConsole, close
from arena.cli.contenders import game_spec, make_known
from arena.cli.panel import EvalOptions
from arena.cli.progress import progress
from arena.cli.tables import cell, interval, say, show_table, verdict
from arena.errors import ConfigError

if TYPE_CHECKING:
    from arena.evaluate.best_of import BestOf
    from arena.evaluate.sampled import Decoding, Scorer
    from arena.evaluate.selection import Rule
    from arena.evaluate.specs import Contenders
    from arena.play.contenders import Contender

DEALS = 100
Name = TypeVar("Name", bound=str)


@dataclass(frozen=True, kw_only=True)
class BestOfOptions:
    """Options of `arena eval --best-of`."""

    n: int
    games: Sequence[str]
    against: Sequence[str]
    options: Sequence[str]
    split: str
    by: Sequence[str]
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
        make_known(GameSpec(name=self.games[0]))

    def rules(self) -> list[Rule]:
        """Return the rules of `--by`; by default all except `p_yes` and `reward_model` without a judge or model.

        Raises ConfigError for an unknown rule, a judge without its rule, or a missing reward model.
        """
        from arena.evaluate.selection import RULES

        judges = {"p_yes": self.judge, "reward_model": self.reward_model}
        default = [rule for rule in RULES if judges.get(rule, "always")]
        rules = _known(self.by, RULES, "--by") or default
        if "reward_model" in rules and not self.reward_model:
            raise ConfigError("--by reward_model needs --reward-model FOLDER")
        for rule, given in judges.items():
            if given and rule not in rules:
                raise ConfigError(f"--{'judge' if rule == 'p_yes' else 'reward-model'} needs {rule} in --by")
        return rules

    def decodings(self) -> list[Decoding]:
        """Return the decoding options of `--decoding`. Raises ConfigError for an unknown one."""
        from arena.evaluate.sampled import DECODINGS

        return _known(self.decoding, DECODINGS, "--decoding")


def refuse(options: Mapping[str, object], why: str) -> None:
    """Raise ConfigError with the reason `why` if one of the options has a value; the message names the first."""
    for option, value in options.items():
        if value:
            raise ConfigError(f"{option} {why}")


def _known(given: Sequence[str], names: Sequence[Name], option: str) -> list[Name]:
    """Return the given names. Raises ConfigError, with the nearest known name, if one is unknown."""
    for name in given:
        if name not in names:
            raise ConfigError(f"{option}: unknown '{name}'{nearest(name, names)} (one of: {', '.join(names)})")
    return [known for name in given for known in names if known == name]


async def evaluate_best_of(asked: EvalOptions, chosen: BestOfOptions, loader: Contenders) -> None:
    """Play the matches of `arena eval --best-of`, then write and print the results."""
    from arena.evaluate import best_of as evaluation
    from arena.evaluate.sampled import with_decoding
    from arena.evaluate.verifier import Verifier, seat_of_judge

    chosen.check()
    rules, decodings = chosen.rules(), chosen.decodings()
    judges = [chosen.judge] if chosen.judge else []
    who, *rest = await loader.load(asked.who, *judges, *chosen.against, games=chosen.games)
    judge = (rest.pop(0) if judges else who) if "p_yes" in rules else None
    spec = game_spec(chosen.games[0], chosen.options, [who, *filter(None, [judge])], chosen.split)
    seat = evaluation.answering_seat(who, spec)
    for decoding in decodings:
        with_decoding(who, decoding, chosen.n)  # raises ConfigError before any match if it is not possible
    judge_seat = seat_of_judge(judge, spec, seat) if judge else ""
    lineup = evaluation.seat_contenders(who, spec, seat, rest[0] if rest else None, judge, judge_seat)
    scorers: dict[str, Scorer] = {"p_yes": Verifier(judge, who, spec, seat, judge_seat)} if judge else {}
    if "reward_model" in rules:
        scorers["reward_model"] = _reward_model(chosen.reward_model, who, seat)
    with progress(chosen.deals * (chosen.n + len(decodings)), asked.as_json, loader.endpoints.status) as step:
        found = await evaluation.best_of(
            lineup, seat, spec, n=chosen.n, deals=chosen.deals, seed=chosen.seed, rules=rules, decodings=decodings,
            scorers=scorers, ended=step,
        )  # fmt: skip
    named = {"judge": judge.name if judge else None, "reward_model": chosen.reward_model or None}
    close("eval", {"seed": chosen.seed, **named, **found.to_json()}, asked.out, asked.as_json)
    if not asked.as_json:
        _show(PlainConsole(), found, named)


def _reward_model(model: str, who: Contender, seat: str) -> Scorer:
    """Return the scorer of a reward model. Raises ConfigError if it cannot read the contender's tokens."""
    from arena.evaluate.rating import Rater
    from arena.play.contenders import ModelContender
    from arena.records import MatchRecord

    if not isinstance(who, ModelContender):
        raise ConfigError(
            f"--by reward_model: {who.name} has no weights, so there are no tokens for a reward model to read"
        )
    rater = Rater(model, [who])

    async def score(record: MatchRecord) -> float:
        return (await rater(record)).get(seat, float("-inf"))

    return score


def _show(console: Console, found: BestOf, judges: Mapping[str, str | None]) -> None:
    """Print one row per rule and decoding option, then the success by number of matches."""
    from arena.cli.show_evaluate import titled
    from arena.statistics import SHARE, mean_ci

    deals = len(found.rows[0].values["success"])
    say(console, f"{found.contender}: {deals} deals, the best of {found.n} matches (95 % intervals over deals)", "bold")
    console.print()
    say(console, titled(found.game), "bold")
    rows = []
    for row in found.rows:
        moved = found.difference(row, "success")
        change = "–" if row is found.rows[0] else verdict("success", moved, interval(moved))
        cells = [interval(found.mean(row, "success")), change, interval(found.mean(row, "payoff"))]
        rows.append([row.name, str(row.matches), *cells, cell(row.tokens, "{:.0f}"), cell(row.turns, "{:.1f}")])
    show_table(console, ("by", "matches", "success", "against mean", "payoff", "tokens", "turns"), rows)
    say(console, "tokens: sampled by the contender per deal; turns: its acts per deal", "dim")
    for name, judge in judges.items():
        if judge:
            say(console, f"{name}: {judge}", "dim")
    if found.curves:
        console.print()
        say(console, "success by number of matches", "bold")
        sizes = [*next(iter(found.curves.values()))]
        shown = [
            [rule, *(cell(mean_ci(values, SHARE).estimate, "{:.2f}") for values in curve.values())]
            for rule, curve in found.curves.items()
        ]
        show_table(console, ("", *map(str, sizes)), shown)
    if found.missing:
        say(console, f"! {found.missing} deals are left out, because one of their matches kept failing", "yellow")
    for reason, count in found.failed.items():
        say(console, f"! {count} failed and played again: {reason}", "yellow")
