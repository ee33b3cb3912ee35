"""A run's summary: strength in zero-sum games, direction of improvement, and opponents."""

import io
import json
from dataclasses import replace
from pathlib import Path
from statistics import fmean

import pytest

from arena.cli.console import PlainConsole
from arena.cli.live import Screen
from arena.cli.tables import format_difference, format_number
from arena.league.ratings import Ratings
from arena.metrics import compute_iteration_metrics
from arena.records import MatchRecord
from arena.rows import is_zero_sum
from arena.statistics import Interval
from arena.store.reader import RunReader
from tests.factories.commands import arena, get_refusal
from tests.factories.matches import play_scripted

RUN = ["run", "selfplay", "--iterations", "2", "--set", "policies.shared.imitate.matches=16"]
LEAGUE = "league={opponents: [{play: past, lag: 1}, {play: fixed, policy: nash}], pool: {every: 1}}"


@pytest.mark.slow
def test_zero_sum_summary_reports_win_rates_and_exploitability(tmp_path: Path) -> None:
    run, matches = tmp_path / "run", ["--set", "play.matches=16"]
    result = arena(*RUN, "--recipe", "kuhn_poker-nano", *matches, "--set", LEAGUE, "--out", run)
    assert result.code == 0, result.err
    assert "win rate against nash" in result.out and "win rate against past" in result.out
    assert "kuhn_poker: exploitability" in result.out and "(exact)" in result.out
    assert "mean payoff" not in result.out, "it is always 0"
    shown = [arena("show", run, f"0001-{n:04d}").out.split("\n")[0] for n in range(8)]
    assert any(" = shared@0 as" in line for line in shown) and any("nash as" in line for line in shown)
    assert not any("@0@0" in line or "nash@" in line for line in shown)
    summary = json.loads(arena("resume", run, "--json").out.splitlines()[-1])
    assert len(summary["exploitability"]["kuhn_poker"]) == 2


@pytest.mark.slow
def test_run_of_learners_alone_suggests_eval(tmp_path: Path) -> None:
    shown = "policies.shared.imitate={scripted: [random], matches: 384, epochs: 4, minibatches: 16, lr: 4e-3}"
    alone = ["--set", "league=null", "--set", "play.matches=12", "--set", shown]
    result = arena(*RUN, "--recipe", "tic_tac_toe-nano", *alone, "--out", tmp_path / "run")
    assert result.code == 0, result.err
    assert "payoffs say nothing about strength: see `arena eval`" in result.out and "mean payoff" not in result.out


@pytest.mark.slow
def test_summary_shows_theory_beside_results(tmp_path: Path) -> None:
    run, options = tmp_path / "run", "game.options={max_turns: 4, breakdown: 0.2, values: public}"
    matches = ["--set", "play.matches=16", "--set", options]
    result = arena(*RUN, "--recipe", "negotiation-nano", *matches, "--out", run)
    assert result.code == 0, result.err
    head = next(line for line in result.out.splitlines() if "difference" in line)
    assert head.split() == ["first", "last", "difference", "equilibrium", "nash"]
    reports = [row["report"] for row in RunReader(run).log.read(2)]
    summary = json.loads(arena("resume", run, "--json").out.splitlines()[-1])
    theory = {row["figure"]: row["theory"] for row in summary["changes"]}
    for side in "first", "second":
        means = {s: fmean(r[f"{s}_payoff_{side}"] for r in reports) for s in ("equilibrium", "nash")}
        assert theory[f"payoff {side}"] == pytest.approx(means)
        line = next(line for line in result.out.splitlines() if line.startswith(f"payoff {side}"))
        assert line.split()[-2:] == [f"{mean:.2f}" for mean in means.values()]
    assert theory["deal rate"] == {}


@pytest.mark.parametrize(
    ("name", "moved", "shown", "style"),
    [
        ("win rate against past", 0.2, "▲ it", "green"),
        ("kuhn_poker: payoff first", -0.2, "▼ it", "red"),
        ("invalid", -0.2, "▼ it (better)", "green"),
        ("regret", 0.2, "▲ it (worse)", "red"),
        ("turns", 0.2, "▲ it", ""),
    ],
)
def test_difference_is_coloured_by_direction(name: str, moved: float, shown: str, style: str) -> None:
    text = format_difference(name, Interval(moved, moved - 0.1, moved + 0.1), "it")
    assert (text.plain, text.style) == (shown, style)
    assert format_difference(name, Interval(moved, -0.5, 0.5), "it").plain == "≈ it"


def test_is_zero_sum() -> None:
    def row(ended: str, *payoffs: float) -> tuple[dict[str, float], dict[str, str]]:
        return {str(seat): paid for seat, paid in enumerate(payoffs)}, {"ended": ended}

    assert is_zero_sum([row("win", 1, -1), row("draw", 0, 0), row("illegal", -1, 0)])
    assert not is_zero_sum([row("deal", 4, 8), row("win", 1, -1)])
    assert not is_zero_sum([row("draw", 0, 0)]), "nothing was ever paid"


@pytest.mark.parametrize(
    ("value", "form", "shown"),
    [(-0.001, "{:.2f}", "0.00"), (-0.001, "{:+.2f}", "+0.00"), (-0.0, "{:.3g}", "0"), (-0.0001, "{:.1%}", "0.0%"),
     (-0.01, "{:.2f}", "-0.01"), (-0.0001, "{:.3g}", "-0.0001"), (float("nan"), "{:.2f}", "–")],
)  # fmt: skip
def test_zero_is_shown_without_a_minus(value: float, form: str, shown: str) -> None:
    assert format_number(value, form) == shown


def format_iteration(*matches: MatchRecord) -> str:
    """Return the line that a run prints for an iteration of these matches."""
    out = io.StringIO()
    screen = Screen(PlainConsole(file=out, width=300), "lines", 1)
    screen.iteration(
        compute_iteration_metrics(1, matches, [], [], {}, Ratings(), {"play": 1.0, "learn": 0.0, "commit": 0.0})
    )
    return out.getvalue()


def test_line_shows_payoff_only_against_fixed_opponents() -> None:
    alone = [play_scripted("kuhn_poker", seed, {"first": "random", "second": "random"}) for seed in range(6)]
    assert "payoff" not in format_iteration(*alone) and "payoff" in format_iteration(
        play_scripted("negotiation", 1, {"opener": "conceder", "responder": "conceder"})
    )
    trained = [replace(one, seats={**one.seats, "first": replace(one.seats["first"], trained=True)}) for one in alone]
    paid = fmean(one.payoffs["first"] for one in trained)
    assert f"payoff vs random {paid:+.2f}  " in format_iteration(*trained)
    past = [replace(o, seats={**o.seats, "second": replace(o.seats["second"], policy="shared@3")}) for o in trained]
    assert "payoff" not in format_iteration(*past), "the policy changes between versions"


def test_run_without_a_game_lists_commands() -> None:
    result = arena("run", "selfplay")
    assert result.code == 0
    assert "arena run selfplay --game negotiation " in result.out
    assert "arena run selfplay --recipe kuhn_poker-nano " in result.out
    for row in json.loads(arena("run", "selfplay", "--json").out):
        assert row["command"].startswith("arena run selfplay --") and 20 < len(row["description"]) < 160
    assert "nothing to play" in get_refusal("run", "selfplay", "--seed", "3")
