"""Panels: figures by hand, equal deals for all contenders, best responses, and reading of files."""

import json
import math
from collections.abc import Callable, Mapping, Sequence
from importlib.resources import files
from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError
from rich.console import Console

import games
from agents.player import Chances
from agents.players import scripted
from agents.players.scripted import Kind
from arena.cli.loop import wait
from arena.cli.show_panel import show_panel_table
from arena.config.layers import compose
from arena.config.sources import set_layer, text_layer
from arena.errors import ConfigError, StoreError
from arena.evaluate.best_play import BestPlay
from arena.evaluate.evaluation import evaluate
from arena.evaluate.panel import PanelPlan, TrainingOpponents, find_training_opponents, resolve_panel_game
from arena.evaluate.panel_figures import compare_cells, compare_means, compute_figures, mean_payoffs, to_json
from arena.evaluate.specs import ContenderLoader
from arena.panels.settings import Panel, list_panels, load_panel, read_panel
from arena.play.settings import GameSpec
from arena.statistics import mean_ci, paired_ci
from arena.store.evaluations import Cell, Deals, Evaluation
from games.abilities import BestResponse
from games.contracts import View
from games.kuhn_poker import KuhnPoker
from tests.factories.kept_run import SEPARATE, SHARED, make_checkpointed_run

PANEL = Panel.model_validate(
    {"panel": "small", "game": {"name": "kuhn_poker", "options": {}}, "members": ["random", "nash"], "deals": 6}
)


def make_panel_plan(contender_name: str, panel: Panel = PANEL) -> PanelPlan:
    contender, *members = wait(ContenderLoader().load(contender_name, *panel.members))
    return PanelPlan(contender, panel, resolve_panel_game(panel, None), members)


def make_evaluation(*payoff_lists: Deals, deal: Deals | None = None, best: Deals | None = None) -> Evaluation:
    cells = [
        Cell(member=f"m{n}", seat="first", payoff=payoffs, valid=[1.0] * len(payoffs), deal=deal, best_response=best)
        for n, payoffs in enumerate(payoff_lists)
    ]
    return Evaluation(
        contender="it", panel="p", key="k", game="g", options={}, seed=0, deals=len(payoff_lists[0]), cells=cells
    )


# -- figures -----------------------------------------------------------------------------------------------


def test_panel_mean_is_over_deals() -> None:
    """Three deals, two members: the values are the three deals' means over members."""
    evaluation = make_evaluation([1.0, 2.0, 6.0], [3.0, 0.0, 4.0])
    assert mean_payoffs(evaluation) == [2.0, 1.0, 5.0]
    mean = compare_means(evaluation)["payoff"].after
    assert mean == mean_ci([2.0, 1.0, 5.0])
    # 8/3 ± t(2; .975) · s / √3, with s² = (4/9 + 25/9 + 49/9) / 2 = 13/3
    assert mean.estimate == pytest.approx(8 / 3)
    assert mean.high - mean.estimate == pytest.approx(4.302653 * math.sqrt(13 / 3 / 3), rel=1e-6)


def test_difference_is_paired_by_deal() -> None:
    """Deals differ widely and the gain on each is near 1, so only pairing shows it."""
    before, after = (
        make_evaluation([0.0, 10.0, 20.0], [0.0, 0.0, 0.0]),
        make_evaluation([2.0, 12.5, 21.5], [0.0, 0.0, 0.0]),
    )
    means = compare_means(after, before)["payoff"]
    assert means.difference == paired_ci([0, 5, 10], [1, 6.25, 10.75]) and means.difference.estimate == pytest.approx(1)
    assert means.difference.low > 0 > means.after.low
    (_, first), (_, second) = compare_cells(after, before)
    assert first.difference is not None and first.difference.estimate == pytest.approx(2)
    assert second.difference == (0, 0, 0)


def test_deal_with_missing_match_is_left_out_of_the_mean() -> None:
    before, after = (
        make_evaluation([1.0, 1.0, None], [1.0, 1.0, 1.0]),
        make_evaluation([None, 2.0, 2.0], [3.0, 3.0, 3.0]),
    )
    assert mean_payoffs(before) == [1, 1, None] and mean_payoffs(after) == [None, 2.5, 2.5]
    means = compare_means(after, before)["payoff"]
    assert means.after.estimate == 2.5 and means.difference is not None and means.difference.estimate == 1.5
    (_, first), (_, second) = compare_cells(after, before)
    assert first.after.estimate == 2 and second.after.estimate == 3


def test_deals_and_best_responses_are_reported_if_known() -> None:
    none = make_evaluation([1.0, 2.0])
    assert set(compute_figures(none)) == {"payoff", "valid"} and compare_means(none)["payoff"].best is None
    some = make_evaluation([1.0, 2.0], deal=[1.0, 0.0], best=[4.0, 5.0])
    assert compute_figures(some) == {"payoff": 1.5, "valid": 1.0, "deal": 0.5}
    assert compare_means(some)["payoff"].best == 4.5
    gap = make_evaluation([1.0, 2.0], best=[4.0, None])
    assert compare_means(gap)["payoff"].best is None, "a mean over other deals is no ceiling for these"


def test_json_has_all_figures(tmp_path: Path) -> None:
    before, after = make_evaluation([1.0, 2.0], best=[4.0, 5.0]), make_evaluation([2.0, 4.0], best=[4.0, 5.0])
    data = json.loads(json.dumps(to_json(after, before)))
    assert data["members"][0] | {"before": 0, "after": 0, "difference": 0} == {
        "member": "m0", "seat": "first", "before": 0, "after": 0, "difference": 0, "best_response": 4.5
    }  # fmt: skip
    assert data["mean"]["payoff"]["difference"][0] == 1.5
    assert data["after"]["cells"][0]["payoff"] == [2, 4] and data["before"]["cells"][0]["payoff"] == [1, 2]


# -- playing -----------------------------------------------------------------------------------------------


def test_all_contenders_play_the_same_deals_at_every_seat() -> None:
    plan = make_panel_plan("first_legal")
    evaluation = wait(plan.play())
    assert [(c.member, c.seat) for c in evaluation.cells] == [
        ("random", "first"), ("random", "second"), ("nash", "first"), ("nash", "second")
    ]  # fmt: skip
    assert plan.matches == 24 and all(len(c.payoff) == 6 for c in evaluation.cells)
    assert evaluation.model_copy(update={"seconds": 0}) == wait(plan.play(in_flight=3)).model_copy(
        update={"seconds": 0}
    )
    assert make_panel_plan("random").key == plan.key, "independent of the contender"
    other_panel = PANEL.model_copy(update={"seed": 1})
    assert make_panel_plan("first_legal", other_panel).key != plan.key
    assert [c.payoff for c in wait(make_panel_plan("first_legal", other_panel).play()).cells] != [
        c.payoff for c in evaluation.cells
    ]


def test_panel_equals_eval_deal_by_deal() -> None:
    """Six deals are twelve matches of two seats; eval averages a deal over seats, and keeps seats apart, too."""
    contender, *members = wait(ContenderLoader().load("first_legal", "random", "nash"))
    results = wait(evaluate(contender, members, GameSpec(name="kuhn_poker"), 12, 0))
    cells = wait(make_panel_plan("first_legal").play()).cells
    for result, first, second in zip(results, cells[::2], cells[1::2], strict=True):
        assert result.by_seat == {"first": first.payoff, "second": second.payoff}
        assert result.figures["payoff"] == ((np.array(first.payoff) + np.array(second.payoff)) / 2).tolist()
        assert set(result.to_json()["payoff_by_seat"]) == {"first", "second"}


def test_contender_against_itself_is_evaluated_at_each_seat() -> None:
    evaluation = wait(make_panel_plan("nash", PANEL.model_copy(update={"members": ["nash"]})).play())
    first, second = evaluation.cells
    assert first.seat == "first" and second.seat == "second"
    assert (np.array(first.payoff) + np.array(second.payoff)).tolist() == [0] * 6, "one match, seen from both"


def test_run_is_evaluated_at_its_seats_with_its_options(tmp_path: Path) -> None:
    separate = make_checkpointed_run(tmp_path / "separate", SEPARATE, _9="nano-7")
    ttt = Panel.model_validate({"panel": "t", "game": {"name": "tic_tac_toe"}, "members": ["random"], "deals": 2})
    (both, member) = wait(ContenderLoader().load(str(separate), "random"))
    assert [p.seat for p in PanelPlan(both, ttt, GameSpec(name="tic_tac_toe"), [member]).pairings] == ["first"]
    shared = compose([text_layer("test", SHARED)])
    open_panel = PANEL.model_copy(update={"game": PANEL.game.model_copy(update={"options": None})})
    assert resolve_panel_game(open_panel, shared).options == {"illegal": "end", "penalty": 2}
    assert resolve_panel_game(PANEL, shared).options == {}, "the panel's own go before"
    assert resolve_panel_game(open_panel, None).options == {}


def test_game_of_one_seat_is_refused() -> None:
    alone = Panel.model_validate({"panel": "m", "game": {"name": "maze"}, "members": ["random"]})
    with pytest.raises(ConfigError, match="maze has one seat"):
        resolve_panel_game(alone, None)


def test_too_many_matches_are_refused() -> None:
    huge = PANEL.model_copy(update={"members": [f"mcts:{n}" for n in range(1, 101)], "deals": 10**5})
    with pytest.raises(ConfigError, match=r"100 members, 2 seats of tic_tac_toe and 100,000 deals are 20,000,000"):
        make_panel_plan(
            "random", huge.model_copy(update={"game": huge.game.model_copy(update={"name": "tic_tac_toe"})})
        ).check()


# -- best responses ----------------------------------------------------------------------------------------


class KuhnWithBestResponse(KuhnPoker):
    """Kuhn poker with a pretended best response: 100 times the chance of BET, plus 1 at the second seat."""

    def best_response(self, seat: str, chances: Callable[[Any], Mapping[str, float]]) -> float:
        assert self.agents and self.turns == 0, "the game was reset"
        return 100 * chances(None)["BET"] + (seat == "second")

    def best_against_mixture(self, seat: str, members: Sequence[Callable[[Any], Mapping[str, float]]]) -> float:
        """Return the mean of the best responses minus 1."""
        return sum(self.best_response(seat, chances) for chances in members) / len(members) - 1


class CoinPlayer:
    """A player that bets with probability 1/4."""

    def __init__(self, seed: int) -> None:
        pass

    def act(self, view: View) -> str:
        return (view.legal or ("",))[0]

    def chances(self, view: View) -> Mapping[str, float]:
        return {"BET": 0.25, "PASS": 0.75}


class BoldPlayer(CoinPlayer):
    """A player that bets with probability 3/4."""

    def chances(self, view: View) -> Mapping[str, float]:
        return {"BET": 0.75, "PASS": 0.25}


def make_coin_panel(*members: str) -> Panel:
    return PANEL.model_copy(update={"members": [*members], "deals": 2})


@pytest.fixture
def coin_players(monkeypatch: pytest.MonkeyPatch) -> None:
    kinds = {"coin": Kind(CoinPlayer, "anything"), "bold": Kind(BoldPlayer, "anything")}
    monkeypatch.setattr(scripted, "SCRIPTED", {**scripted.SCRIPTED, **kinds})
    monkeypatch.setattr(games, "make", lambda name, **options: KuhnWithBestResponse(**options))


@pytest.mark.usefixtures("coin_players")
def test_best_play_against_unknown_opponent_is_over_the_whole_panel() -> None:
    evaluation = wait(make_panel_plan("random", make_coin_panel("coin", "bold")).play())
    assert evaluation.best_against_mixture == {"first": [49.0, 49.0], "second": [50.0, 50.0]}
    means = compare_means(evaluation)["payoff"]
    assert means.best == 50.5 and means.best_against_mixture == 49.5
    assert to_json(evaluation)["mean"]["payoff"]["best_against_mixture"] == 49.5
    assert "best_against_mixture" not in to_json(evaluation)["members"][0] | to_json(evaluation)["mean"]["valid"]
    replayed = wait(make_panel_plan("random", make_coin_panel("coin", "bold")).play(best=BestPlay.of(evaluation)))
    assert replayed.best_against_mixture == evaluation.best_against_mixture and replayed.cells == evaluation.cells
    console = Console(record=True, width=100, file=StringIO())
    show_panel_table(console, evaluation, None, TrainingOpponents(), "it")
    assert "best play without knowing the opponent: 49.50\n" in console.export_text()


@pytest.mark.usefixtures("coin_players")
def test_best_play_is_omitted_if_a_member_or_deal_is_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    evaluation = wait(make_panel_plan("random", make_coin_panel("coin", "random")).play())
    assert evaluation.best_against_mixture == {} and compare_means(evaluation)["payoff"].best_against_mixture is None
    calls = []
    monkeypatch.setattr(KuhnWithBestResponse, "best_against_mixture", lambda *_: calls.append(1) or math.nan)
    evaluation = wait(make_panel_plan("random", make_coin_panel("coin", "bold")).play())
    assert evaluation.best_against_mixture == {} and len(calls) == 2, "one deal of each seat: it may take long"
    console = Console(record=True, width=100, file=StringIO())
    show_panel_table(console, evaluation, None, TrainingOpponents(), "it")
    assert "does not know" not in console.export_text()


def test_evaluation_with_wrong_number_of_deals_is_invalid() -> None:
    valid = make_evaluation([1.0, 2.0]).model_dump(mode="json")
    assert Evaluation.model_validate(valid | {"best_against_mixture": {"first": [1.0, 2.0]}})
    with pytest.raises(ValidationError, match="every cell has 2 deals"):
        Evaluation.model_validate(valid | {"best_against_mixture": {"first": [1.0]}})


def test_best_responses_need_known_probabilities(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scripted, "SCRIPTED", {**scripted.SCRIPTED, "coin": Kind(CoinPlayer, "anything")})
    monkeypatch.setattr(games, "make", lambda name, **options: KuhnWithBestResponse(**options))
    assert isinstance(KuhnWithBestResponse(), BestResponse) and isinstance(CoinPlayer(0), Chances)
    evaluation = wait(
        make_panel_plan("random", PANEL.model_copy(update={"members": ["coin", "random"], "deals": 2})).play()
    )
    assert [c.best_response for c in evaluation.cells[:2]] == [[25.0, 25.0], [26.0, 26.0]]
    assert [c.best_response for c in evaluation.cells[2:]] == [None, None], "random does not say what it may do"
    means = compare_means(evaluation)["payoff"]
    assert means.best is None, "nobody knows of the whole panel"
    alone = wait(make_panel_plan("random", PANEL.model_copy(update={"members": ["coin"], "deals": 2})).play())
    assert compare_means(alone)["payoff"].best == 25.5
    without_best = wait(make_panel_plan("random", make_coin_panel("coin")).play(best=BestPlay({}, {})))
    assert without_best.cells[0].best_response is None, "known best responses are not computed again"


def test_unknown_best_response_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    class Silent(KuhnWithBestResponse):
        def best_response(self, seat: str, chances: Callable[[Any], Mapping[str, float]]) -> float:
            return math.nan

    monkeypatch.setattr(scripted, "SCRIPTED", {**scripted.SCRIPTED, "coin": Kind(CoinPlayer, "anything")})
    monkeypatch.setattr(games, "make", lambda name, **options: Silent(**options))
    evaluation = wait(make_panel_plan("random", PANEL.model_copy(update={"members": ["coin"], "deals": 2})).play())
    assert [c.best_response for c in evaluation.cells] == [None, None]


# -- files -------------------------------------------------------------------------------------------------


def test_shipped_panels_are_named_like_their_file_and_valid() -> None:
    assert {"kuhn_poker", "negotiation", "tic_tac_toe"} <= set(list_panels())
    assert {f.name for f in files("arena.panels").iterdir()} >= {f"{name}.yaml" for name in list_panels()}
    for name in list_panels():
        panel = load_panel(name)
        assert panel.panel == name
        make_panel_plan("random", panel.model_copy(update={"deals": 2})).check()


NAME_STRATEGY = st.from_regex(r"[a-z][a-z0-9_-]{0,10}", fullmatch=True)
PANEL_STRATEGY = st.fixed_dictionaries(
    {
        "panel": NAME_STRATEGY,
        "game": st.fixed_dictionaries(
            {"name": NAME_STRATEGY}, optional={"options": st.none() | st.dictionaries(NAME_STRATEGY, NAME_STRATEGY)}
        ),
        "members": st.lists(NAME_STRATEGY, min_size=1, max_size=5, unique=True),
    },
    optional={"deals": st.integers(2, 10**5), "seed": st.integers(0, 2**63 - 1)},
)


@given(PANEL_STRATEGY)
def test_panel_file_round_trip(data: dict[str, Any]) -> None:
    text = yaml.safe_dump(data)
    panel = read_panel(text, "it.yaml")
    assert panel.model_dump(exclude_unset=True) == data
    assert read_panel(yaml.safe_dump(panel.model_dump(mode="json")), "again.yaml") == panel


@given(PANEL_STRATEGY, st.sampled_from(["panel", "game", "members", "deals", "seed", "other"]), st.data())
def test_invalid_panel_gives_one_line(data: dict[str, Any], field: str, source: st.DataObject) -> None:
    wrong = {
        "panel": st.sampled_from(["", "A B", 3, None, "x" * 65]),
        "game": st.sampled_from(["nim", {}, None, {"name": 3}, {"name": "nim", "option": {}}, {"options": {}}]),
        "members": st.sampled_from([[], "random", ["a", "a"], [1], [""], None, [str(n) for n in range(101)]]),
        "deals": st.sampled_from([0, 1, -1, 10**5 + 1, "many", 2.5, True]),
        "seed": st.sampled_from([-1, 2**63, "x", 0.5]),
        "other": st.just(1),
    }
    text = yaml.safe_dump(data | {field: source.draw(wrong[field])})
    with pytest.raises(ConfigError) as error:
        read_panel(text, "it.yaml")
    line = str(error.value)
    assert line.startswith("it.yaml:") and field in line and "\n" not in line and len(line) < 500, line


@given(st.text(max_size=60) | st.binary(max_size=60).map(lambda b: b.decode("latin-1")))
def test_any_text_gives_a_panel_or_one_line(text: str) -> None:
    try:
        read_panel(text, "it.yaml")
    except ConfigError as error:
        assert "\n" not in str(error)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("negotation", "unknown panel 'negotation' — did you mean 'negotiation'? (arena list panels"),
        ("nothing.yaml", "nothing.yaml: cannot be read: No such file or directory"),
        (".", ".: cannot be read: Is a directory"),
        ("\0", "unknown panel '\\x00'"),
        ("/dev/null", "/dev/null: cannot be read"),
        ("", "unknown panel ''"),
    ],
)
def test_missing_panel_is_reported(name: str, message: str) -> None:
    with pytest.raises((ConfigError, StoreError)) as error:
        load_panel(name)
    assert message in str(error.value)


def test_training_opponents_are_found() -> None:
    league = "league={opponents: [{play: self}, {play: fixed, policy: nash}, {play: fixed, policy: cfr, weight: 0}]}"
    imitated = "policies.shared.imitate={scripted: [random]}"
    opponents = find_training_opponents(compose([text_layer("test", SHARED), set_layer(league), set_layer(imitated)]))
    assert opponents == ({"nash"}, {"random"})
    assert find_training_opponents(compose([text_layer("test", SEPARATE)])).opponents == {"random"}, "it holds a seat"
    assert find_training_opponents(None) == (set(), set())


def test_own_versions_count_as_training_opponents(tmp_path: Path) -> None:
    run = tmp_path / "run"
    (tmp_path / "link").symlink_to(run)
    opponents = find_training_opponents(None).with_own(
        run, ["random", f"{run}@3", f"{tmp_path}/link:shared", f"{run}2@3"]
    )
    assert opponents.opponents == {f"{run}@3", f"{tmp_path}/link:shared"}
