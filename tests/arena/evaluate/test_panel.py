"""Panels: figures by hand, the same deals for everybody, best responses, files that are read or refused."""

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
from arena.evaluate.specs import Contenders
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


def sitting(who: str, panel: Panel = PANEL) -> PanelPlan:
    contender, *members = wait(Contenders().load(who, *panel.members))
    return PanelPlan(contender, panel, resolve_panel_game(panel, None), members)


def evaluation(*cells: Deals, deal: Deals | None = None, best: Deals | None = None) -> Evaluation:
    known = [
        Cell(member=f"m{n}", seat="first", payoff=paid, valid=[1.0] * len(paid), deal=deal, best_response=best)
        for n, paid in enumerate(cells)
    ]
    return Evaluation(
        contender="it", panel="p", key="k", game="g", options={}, seed=0, deals=len(cells[0]), cells=known
    )


# -- figures -----------------------------------------------------------------------------------------------


def test_the_panels_mean_is_of_deals() -> None:
    """Three deals, two members: each deal's mean over members is a value, and there are three of them."""
    judged = evaluation([1.0, 2.0, 6.0], [3.0, 0.0, 4.0])
    assert mean_payoffs(judged) == [2.0, 1.0, 5.0]
    mean = compare_means(judged)["payoff"].after
    assert mean == mean_ci([2.0, 1.0, 5.0])
    # 8/3 ± t(2; .975) · s / √3, with s² = (4/9 + 25/9 + 49/9) / 2 = 13/3
    assert mean.estimate == pytest.approx(8 / 3)
    assert mean.high - mean.estimate == pytest.approx(4.302653 * math.sqrt(13 / 3 / 3), rel=1e-6)


def test_a_difference_is_paired_by_deal() -> None:
    """Deals differ much, and the gain on each is near 1: only pairs see that."""
    before, after = evaluation([0.0, 10.0, 20.0], [0.0, 0.0, 0.0]), evaluation([2.0, 12.5, 21.5], [0.0, 0.0, 0.0])
    told = compare_means(after, before)["payoff"]
    assert told.difference == paired_ci([0, 5, 10], [1, 6.25, 10.75]) and told.difference.estimate == pytest.approx(1)
    assert told.difference.low > 0 > told.after.low
    (_, first), (_, second) = compare_cells(after, before)
    assert first.difference is not None and first.difference.estimate == pytest.approx(2)
    assert second.difference == (0, 0, 0)


def test_a_deal_with_a_missing_match_is_left_out_of_the_mean_alone() -> None:
    before, after = evaluation([1.0, 1.0, None], [1.0, 1.0, 1.0]), evaluation([None, 2.0, 2.0], [3.0, 3.0, 3.0])
    assert mean_payoffs(before) == [1, 1, None] and mean_payoffs(after) == [None, 2.5, 2.5]
    told = compare_means(after, before)["payoff"]
    assert told.after.estimate == 2.5 and told.difference is not None and told.difference.estimate == 1.5
    (_, first), (_, second) = compare_cells(after, before)
    assert first.after.estimate == 2 and second.after.estimate == 3


def test_deals_and_best_responses_are_told_where_they_are_known() -> None:
    none = evaluation([1.0, 2.0])
    assert set(compute_figures(none)) == {"payoff", "valid"} and compare_means(none)["payoff"].best is None
    some = evaluation([1.0, 2.0], deal=[1.0, 0.0], best=[4.0, 5.0])
    assert compute_figures(some) == {"payoff": 1.5, "valid": 1.0, "deal": 0.5}
    assert compare_means(some)["payoff"].best == 4.5
    gap = evaluation([1.0, 2.0], best=[4.0, None])
    assert compare_means(gap)["payoff"].best is None, "a mean over other deals is no ceiling for these"


def test_json_has_everything(tmp_path: Path) -> None:
    before, after = evaluation([1.0, 2.0], best=[4.0, 5.0]), evaluation([2.0, 4.0], best=[4.0, 5.0])
    data = json.loads(json.dumps(to_json(after, before)))
    assert data["members"][0] | {"before": 0, "after": 0, "difference": 0} == {
        "member": "m0", "seat": "first", "before": 0, "after": 0, "difference": 0, "best_response": 4.5
    }  # fmt: skip
    assert data["mean"]["payoff"]["difference"][0] == 1.5
    assert data["after"]["cells"][0]["payoff"] == [2, 4] and data["before"]["cells"][0]["payoff"] == [1, 2]


# -- playing -----------------------------------------------------------------------------------------------


def test_everybody_plays_the_same_deals_from_every_seat() -> None:
    one = sitting("first_legal")
    judged = wait(one.play())
    assert [(c.member, c.seat) for c in judged.cells] == [
        ("random", "first"), ("random", "second"), ("nash", "first"), ("nash", "second")
    ]  # fmt: skip
    assert one.matches == 24 and all(len(c.payoff) == 6 for c in judged.cells)
    assert judged.model_copy(update={"seconds": 0}) == wait(one.play(in_flight=3)).model_copy(update={"seconds": 0})
    assert sitting("random").key == one.key, "whoever is judged"
    other = PANEL.model_copy(update={"seed": 1})
    assert sitting("first_legal", other).key != one.key
    assert [c.payoff for c in wait(sitting("first_legal", other).play()).cells] != [c.payoff for c in judged.cells]


def test_it_is_what_eval_finds_deal_by_deal() -> None:
    """Six deals are twelve matches of two seats; eval averages a deal over seats, and keeps seats apart, too."""
    who, *members = wait(Contenders().load("first_legal", "random", "nash"))
    results = wait(evaluate(who, members, GameSpec(name="kuhn_poker"), 12, 0))
    cells = wait(sitting("first_legal").play()).cells
    for result, first, second in zip(results, cells[::2], cells[1::2], strict=True):
        assert result.by_seat == {"first": first.payoff, "second": second.payoff}
        assert result.figures["payoff"] == ((np.array(first.payoff) + np.array(second.payoff)) / 2).tolist()
        assert set(result.to_json()["payoff_by_seat"]) == {"first", "second"}


def test_who_meets_itself_is_judged_at_each_seat() -> None:
    judged = wait(sitting("nash", PANEL.model_copy(update={"members": ["nash"]})).play())
    first, second = judged.cells
    assert first.seat == "first" and second.seat == "second"
    assert (np.array(first.payoff) + np.array(second.payoff)).tolist() == [0] * 6, "one match, seen from both"


def test_a_run_is_judged_at_its_own_seats_under_its_own_options(tmp_path: Path) -> None:
    separate = make_checkpointed_run(tmp_path / "separate", SEPARATE, _9="nano-7")
    ttt = Panel.model_validate({"panel": "t", "game": {"name": "tic_tac_toe"}, "members": ["random"], "deals": 2})
    (both, member) = wait(Contenders().load(str(separate), "random"))
    assert [p.seat for p in PanelPlan(both, ttt, GameSpec(name="tic_tac_toe"), [member]).places] == ["first"]
    shared = compose([text_layer("test", SHARED)])
    open_panel = PANEL.model_copy(update={"game": PANEL.game.model_copy(update={"options": None})})
    assert resolve_panel_game(open_panel, shared).options == {"illegal": "end", "penalty": 2}
    assert resolve_panel_game(PANEL, shared).options == {}, "the panel's own go before"
    assert resolve_panel_game(open_panel, None).options == {}


def test_a_game_of_one_seat_has_no_room_for_members() -> None:
    alone = Panel.model_validate({"panel": "m", "game": {"name": "maze"}, "members": ["random"]})
    with pytest.raises(ConfigError, match="maze has one seat"):
        resolve_panel_game(alone, None)


def test_too_many_matches_are_refused_before_they_are_planned() -> None:
    huge = PANEL.model_copy(update={"members": [f"mcts:{n}" for n in range(1, 101)], "deals": 10**5})
    with pytest.raises(ConfigError, match=r"100 members, 2 seats of tic_tac_toe and 100,000 deals are 20,000,000"):
        sitting(
            "random", huge.model_copy(update={"game": huge.game.model_copy(update={"name": "tic_tac_toe"})})
        ).check()


# -- best responses ----------------------------------------------------------------------------------------


class KnowingKuhn(KuhnPoker):
    """It pretends that best play earns the chance of the first act times a hundred, and one more for the second."""

    def best_response(self, seat: str, chances: Callable[[Any], Mapping[str, float]]) -> float:
        assert self.agents and self.turns == 0, "it was reset"
        return 100 * chances(None)["BET"] + (seat == "second")

    def best_against_mixture(self, seat: str, members: Sequence[Callable[[Any], Mapping[str, float]]]) -> float:
        """A little less than the mean of that."""
        return sum(self.best_response(seat, chances) for chances in members) / len(members) - 1


class Coin:
    """Bets every fourth time."""

    def __init__(self, seed: int) -> None:
        pass

    def act(self, view: View) -> str:
        return (view.legal or ("",))[0]

    def chances(self, view: View) -> Mapping[str, float]:
        return {"BET": 0.25, "PASS": 0.75}


class Bold(Coin):
    """Bets three times of four."""

    def chances(self, view: View) -> Mapping[str, float]:
        return {"BET": 0.75, "PASS": 0.25}


def of_coins(*members: str) -> Panel:
    return PANEL.model_copy(update={"members": [*members], "deals": 2})


@pytest.fixture
def coins(monkeypatch: pytest.MonkeyPatch) -> None:
    kinds = {"coin": Kind(Coin, "anything"), "bold": Kind(Bold, "anything")}
    monkeypatch.setattr(scripted, "SCRIPTED", {**scripted.SCRIPTED, **kinds})
    monkeypatch.setattr(games, "make", lambda name, **options: KnowingKuhn(**options))


@pytest.mark.usefixtures("coins")
def test_best_play_that_does_not_know_whom_it_meets_is_of_the_whole_panel() -> None:
    judged = wait(sitting("random", of_coins("coin", "bold")).play())
    assert judged.best_against_mixture == {"first": [49.0, 49.0], "second": [50.0, 50.0]}
    told = compare_means(judged)["payoff"]
    assert told.best == 50.5 and told.best_against_mixture == 49.5
    assert to_json(judged)["mean"]["payoff"]["best_against_mixture"] == 49.5
    assert "best_against_mixture" not in to_json(judged)["members"][0] | to_json(judged)["mean"]["valid"]
    again = wait(sitting("random", of_coins("coin", "bold")).play(best=BestPlay.of(judged)))
    assert again.best_against_mixture == judged.best_against_mixture and again.cells == judged.cells
    console = Console(record=True, width=100, file=StringIO())
    show_panel_table(console, judged, None, TrainingOpponents(), "it")
    assert "best play without knowing the opponent: 49.50\n" in console.export_text()


@pytest.mark.usefixtures("coins")
def test_it_is_not_told_where_a_member_or_a_deal_is_not_known(monkeypatch: pytest.MonkeyPatch) -> None:
    judged = wait(sitting("random", of_coins("coin", "random")).play())
    assert judged.best_against_mixture == {} and compare_means(judged)["payoff"].best_against_mixture is None
    asked = []
    monkeypatch.setattr(KnowingKuhn, "best_against_mixture", lambda *_: asked.append(1) or math.nan)
    judged = wait(sitting("random", of_coins("coin", "bold")).play())
    assert judged.best_against_mixture == {} and len(asked) == 2, "one deal of each seat: it may take long"
    console = Console(record=True, width=100, file=StringIO())
    show_panel_table(console, judged, None, TrainingOpponents(), "it")
    assert "does not know" not in console.export_text()


def test_an_evaluation_of_other_deals_is_no_evaluation() -> None:
    good = evaluation([1.0, 2.0]).model_dump(mode="json")
    assert Evaluation.model_validate(good | {"best_against_mixture": {"first": [1.0, 2.0]}})
    with pytest.raises(ValidationError, match="every cell has 2 deals"):
        Evaluation.model_validate(good | {"best_against_mixture": {"first": [1.0]}})


def test_best_responses_are_asked_of_who_can_tell(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scripted, "SCRIPTED", {**scripted.SCRIPTED, "coin": Kind(Coin, "anything")})
    monkeypatch.setattr(games, "make", lambda name, **options: KnowingKuhn(**options))
    assert isinstance(KnowingKuhn(), BestResponse) and isinstance(Coin(0), Chances)
    judged = wait(sitting("random", PANEL.model_copy(update={"members": ["coin", "random"], "deals": 2})).play())
    assert [c.best_response for c in judged.cells[:2]] == [[25.0, 25.0], [26.0, 26.0]]
    assert [c.best_response for c in judged.cells[2:]] == [None, None], "random does not say what it may do"
    told = compare_means(judged)["payoff"]
    assert told.best is None, "nobody knows of the whole panel"
    alone = wait(sitting("random", PANEL.model_copy(update={"members": ["coin"], "deals": 2})).play())
    assert compare_means(alone)["payoff"].best == 25.5
    given = wait(sitting("random", of_coins("coin")).play(best=BestPlay({}, {})))
    assert given.cells[0].best_response is None, "where they are known already, nobody is asked"


def test_a_best_response_that_is_not_known_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    class Silent(KnowingKuhn):
        def best_response(self, seat: str, chances: Callable[[Any], Mapping[str, float]]) -> float:
            return math.nan

    monkeypatch.setattr(scripted, "SCRIPTED", {**scripted.SCRIPTED, "coin": Kind(Coin, "anything")})
    monkeypatch.setattr(games, "make", lambda name, **options: Silent(**options))
    judged = wait(sitting("random", PANEL.model_copy(update={"members": ["coin"], "deals": 2})).play())
    assert [c.best_response for c in judged.cells] == [None, None]


# -- files -------------------------------------------------------------------------------------------------


def test_every_shipped_panel_is_called_by_its_file_and_can_play() -> None:
    assert {"kuhn_poker", "negotiation", "tic_tac_toe"} <= set(list_panels())
    assert {f.name for f in files("arena.panels").iterdir()} >= {f"{name}.yaml" for name in list_panels()}
    for name in list_panels():
        panel = load_panel(name)
        assert panel.panel == name
        sitting("random", panel.model_copy(update={"deals": 2})).check()


NAMES = st.from_regex(r"[a-z][a-z0-9_-]{0,10}", fullmatch=True)
PANELS = st.fixed_dictionaries(
    {
        "panel": NAMES,
        "game": st.fixed_dictionaries({"name": NAMES}, optional={"options": st.none() | st.dictionaries(NAMES, NAMES)}),
        "members": st.lists(NAMES, min_size=1, max_size=5, unique=True),
    },
    optional={"deals": st.integers(2, 10**5), "seed": st.integers(0, 2**63 - 1)},
)


@given(PANELS)
def test_what_is_written_is_read(data: dict[str, Any]) -> None:
    text = yaml.safe_dump(data)
    panel = read_panel(text, "it.yaml")
    assert panel.model_dump(exclude_unset=True) == data
    assert read_panel(yaml.safe_dump(panel.model_dump(mode="json")), "again.yaml") == panel


@given(PANELS, st.sampled_from(["panel", "game", "members", "deals", "seed", "other"]), st.data())
def test_what_is_wrong_is_told_in_one_line(data: dict[str, Any], field: str, chosen: st.DataObject) -> None:
    wrong = {
        "panel": st.sampled_from(["", "A B", 3, None, "x" * 65]),
        "game": st.sampled_from(["nim", {}, None, {"name": 3}, {"name": "nim", "option": {}}, {"options": {}}]),
        "members": st.sampled_from([[], "random", ["a", "a"], [1], [""], None, [str(n) for n in range(101)]]),
        "deals": st.sampled_from([0, 1, -1, 10**5 + 1, "many", 2.5, True]),
        "seed": st.sampled_from([-1, 2**63, "x", 0.5]),
        "other": st.just(1),
    }
    text = yaml.safe_dump(data | {field: chosen.draw(wrong[field])})
    with pytest.raises(ConfigError) as refused:
        read_panel(text, "it.yaml")
    line = str(refused.value)
    assert line.startswith("it.yaml:") and field in line and "\n" not in line and len(line) < 500, line


@given(st.text(max_size=60) | st.binary(max_size=60).map(lambda b: b.decode("latin-1")))
def test_any_text_is_a_panel_or_one_line(text: str) -> None:
    try:
        read_panel(text, "it.yaml")
    except ConfigError as error:
        assert "\n" not in str(error)


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("negotation", "unknown panel 'negotation' — did you mean 'negotiation'? (arena list panels"),
        ("nothing.yaml", "nothing.yaml: cannot be read: No such file or directory"),
        (".", ".: cannot be read: Is a directory"),
        ("\0", "unknown panel '\\x00'"),
        ("/dev/null", "/dev/null: cannot be read"),
        ("", "unknown panel ''"),
    ],
)
def test_a_panel_that_is_not_there_is_told(name: str, says: str) -> None:
    with pytest.raises((ConfigError, StoreError)) as refused:
        load_panel(name)
    assert says in str(refused.value)


def test_whom_a_run_met_in_training_is_known() -> None:
    league = "league={opponents: [{play: self}, {play: fixed, policy: nash}, {play: fixed, policy: cfr, weight: 0}]}"
    imitated = "policies.shared.imitate={scripted: [random]}"
    known = find_training_opponents(compose([text_layer("test", SHARED), set_layer(league), set_layer(imitated)]))
    assert known == ({"nash"}, {"random"})
    assert find_training_opponents(compose([text_layer("test", SEPARATE)])).met == {"random"}, "it holds a seat"
    assert find_training_opponents(None) == (set(), set())


def test_a_runs_own_past_is_no_stranger(tmp_path: Path) -> None:
    run = tmp_path / "run"
    (tmp_path / "link").symlink_to(run)
    known = find_training_opponents(None).with_own(run, ["random", f"{run}@3", f"{tmp_path}/link:shared", f"{run}2@3"])
    assert known.met == {f"{run}@3", f"{tmp_path}/link:shared"}
