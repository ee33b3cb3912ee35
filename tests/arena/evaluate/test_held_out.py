"""Held-out evaluation: the first and the last weights on the same deals of games that may be others."""

import json
from pathlib import Path

import pytest

from arena.cli.loop import wait
from arena.evaluate.evaluation import evaluate
from arena.evaluate.held_out import FILE, evaluate_held_out
from arena.evaluate.specs import Contenders
from arena.panels.settings import EvaluateSpec
from arena.play.settings import GameSpec
from tests.factories.commands import arena, get_refusal
from tests.factories.kept_run import SHARED, make_checkpointed_run

ASKED = """
evaluate:
  games: [{name: tic_tac_toe, options: {illegal: end}}, {name: tiny_hanabi}]
  against: [random, first_legal]
  matches: 4
"""
SETTINGS = ("iterations=1", "play.matches=4", "policies.shared.imitate.matches=16", "policies.shared.imitate.epochs=1")


@pytest.mark.slow
def test_it_is_eval_of_both_weights_on_the_same_deals(tmp_path: Path) -> None:
    run = make_checkpointed_run(tmp_path / "run", SHARED, _9="nano-7")
    games = [GameSpec(name="kuhn_poker"), GameSpec(name="tiny_hanabi")]
    told: list[int] = []
    compared = wait(
        evaluate_held_out(run, EvaluateSpec(games=games, matches=8), 3, lambda total: lambda: told.append(total))
    )
    assert [(r.game.name, r.against) for r in compared.after] == [("kuhn_poker", "random"), ("tiny_hanabi", str(run))]
    assert [r.contender for r in compared.before] == [f"{run}@0"] * 2 and compared.before[1].against == f"{run}@0"
    assert set(told) == {len(told)}, "as many matches as announced"
    kept = json.loads((run / FILE).read_text())
    assert kept == {"seed": 3, **json.loads(json.dumps(compared.to_json()))}
    who, other = wait(Contenders().load(str(run), "random"))
    (by_hand,) = wait(evaluate(who, [other], games[0], 8, 3))
    assert by_hand.figures == compared.after[0].figures


def test_without_a_word_on_splits_the_test_split_is_played(tmp_path: Path) -> None:
    run = make_checkpointed_run(tmp_path / "run", SHARED.replace("{illegal: end, penalty: 2}", "{}"), _9="nano-7")
    games = [GameSpec(name="reasoning"), GameSpec(name="reasoning", options={"split": "train"})]
    compared = wait(evaluate_held_out(run, EvaluateSpec(games=games, matches=2), 3))
    assert [r.game.options["split"] for r in compared.after] == ["test", "train"]


def test_a_run_ends_with_the_table_it_asked_for(tmp_path: Path) -> None:
    config = tmp_path / "asked.yaml"
    config.write_text(ASKED)
    command = ["run", "selfplay", "--recipe", "kuhn_poker-nano", "--config", config, "--out", tmp_path / "run"]
    told = arena(*command, *(part for setting in SETTINGS for part in ("--set", setting)))
    assert told.code == 0, told.err
    assert "before" in told.out and "tic_tac_toe" in told.out and "first_legal" in told.out
    assert (tmp_path / "run" / FILE).is_file()


@pytest.mark.parametrize(
    ("setting", "says"),
    [
        ("evaluate={games: [{name: tic_tac_to}]}", "unknown game 'tic_tac_to' — did you mean 'tic_tac_toe'?"),
        ("evaluate={games: [{name: nim}], against: [randm]}", "randm"),
        ("evaluate={games: []}", "evaluate.games"),
        ("evaluate={games: [{name: nim, options: {illegal: never}}]}", "nim: illegal must be"),
        ("evaluate={games: [{name: nim}], matchs: 3}", "matches"),
    ],
)
def test_what_cannot_be_evaluated_is_refused_before_the_run(tmp_path: Path, setting: str, says: str) -> None:
    out = tmp_path / "run"
    line = get_refusal("run", "selfplay", "--recipe", "kuhn_poker-nano", "--set", setting, "--out", out)
    assert says in line and not out.exists()


def test_who_is_to_play_another_game_has_to_be_known_before_the_run(tmp_path: Path) -> None:
    out, elsewhere = tmp_path / "run", "evaluate={games: [{name: clinic}, {name: nim}]}"
    line = get_refusal("run", "selfplay", "--recipe", "clinic_both-nano", "--set", elsewhere, "--out", out)
    assert "evaluate.games.1: who plays nim? This run trains doctor and patient" in line and not out.exists()
    told = get_refusal(
        "run", "selfplay", "--recipe", "clinic_both-nano", "--set", elsewhere, "--out", out, "--set",
        "evaluate.policy=doc",
    )  # fmt: skip
    assert "evaluate.policy: this run trains no 'doc' — did you mean 'doctor'? (it trains doctor, patient)" in told


@pytest.mark.slow
def test_one_of_several_policies_plays_what_it_does_not_train_on(tmp_path: Path) -> None:
    """The solver of a proposer and a solver, on questions that may not be proposed."""
    settings = ["iterations=1", "play.matches=2", "evaluate.matches=2", "policies.solver.imitate.matches=8"]
    settings += ["policies.proposer.imitate.matches=8", "policies.proposer.imitate.minibatches=2"]
    settings += ["policies.solver.imitate.minibatches=2", "learn.minibatches=1"]
    words = [part for setting in settings for part in ("--set", setting)]
    run = tmp_path / "run"
    ended = arena("run", "selfplay", "--recipe", "proposer_solver-nano", *words, "--out", run)
    assert ended.code == 0, ended.err
    told = json.loads((run / "evaluation.json").read_text())
    (result,) = told["results"]
    assert result["game"] == "reasoning" and result["options"]["split"] == "test" and "success" in result["figures"]
    assert [told[moment][0]["contender"] for moment in ("before", "results")] == [f"{run}@0:solver", f"{run}:solver"]
