"""Held-out evaluation: first and last weights on the same deals, possibly of other games."""

import json
from pathlib import Path

import pytest

from arena.cli.loop import wait
from arena.evaluate.evaluation import evaluate
from arena.evaluate.held_out import FILE, evaluate_held_out
from arena.evaluate.specs import ContenderLoader
from arena.panels.settings import EvaluateSpec
from arena.play.settings import GameSpec
from tests.factories.commands import arena, get_refusal
from tests.factories.kept_run import SHARED, make_checkpointed_run

EVALUATE = """
evaluate:
  games: [{name: tic_tac_toe, options: {illegal: end}}, {name: tiny_hanabi}]
  against: [random, first_legal]
  matches: 4
"""
SETTINGS = ("iterations=1", "play.matches=4", "policies.shared.imitate.matches=16", "policies.shared.imitate.epochs=1")


@pytest.mark.slow
def test_held_out_evaluation_equals_eval_of_both_weights(tmp_path: Path) -> None:
    run = make_checkpointed_run(tmp_path / "run", SHARED, _9="nano-7")
    games = [GameSpec(name="kuhn_poker"), GameSpec(name="tiny_hanabi")]
    announced: list[int] = []
    compared = wait(
        evaluate_held_out(run, EvaluateSpec(games=games, matches=8), 3, lambda total: lambda: announced.append(total))
    )
    assert [(r.game.name, r.against) for r in compared.after] == [("kuhn_poker", "random"), ("tiny_hanabi", str(run))]
    assert [r.contender for r in compared.before] == [f"{run}@0"] * 2 and compared.before[1].against == f"{run}@0"
    assert set(announced) == {len(announced)}, "as many matches as announced"
    stored = json.loads((run / FILE).read_text())
    assert stored == {"seed": 3, **json.loads(json.dumps(compared.to_json()))}
    contender, opponent = wait(ContenderLoader().load(str(run), "random"))
    (direct,) = wait(evaluate(contender, [opponent], games[0], 8, 3))
    assert direct.figures == compared.after[0].figures


def test_test_split_is_the_default(tmp_path: Path) -> None:
    run = make_checkpointed_run(tmp_path / "run", SHARED.replace("{illegal: end, penalty: 2}", "{}"), _9="nano-7")
    games = [GameSpec(name="reasoning"), GameSpec(name="reasoning", options={"split": "train"})]
    compared = wait(evaluate_held_out(run, EvaluateSpec(games=games, matches=2), 3))
    assert [r.game.options["split"] for r in compared.after] == ["test", "train"]


def test_run_ends_with_its_evaluation_table(tmp_path: Path) -> None:
    config = tmp_path / "asked.yaml"
    config.write_text(EVALUATE)
    command = ["run", "selfplay", "--recipe", "kuhn_poker-nano", "--config", config, "--out", tmp_path / "run"]
    result = arena(*command, *(part for setting in SETTINGS for part in ("--set", setting)))
    assert result.code == 0, result.err
    assert "before" in result.out and "tic_tac_toe" in result.out and "first_legal" in result.out
    assert (tmp_path / "run" / FILE).is_file()


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("evaluate={games: [{name: tic_tac_to}]}", "unknown game 'tic_tac_to' — did you mean 'tic_tac_toe'?"),
        ("evaluate={games: [{name: nim}], against: [randm]}", "randm"),
        ("evaluate={games: []}", "evaluate.games"),
        ("evaluate={games: [{name: nim, options: {illegal: never}}]}", "nim: illegal must be"),
        ("evaluate={games: [{name: nim}], matchs: 3}", "matches"),
    ],
)
def test_invalid_evaluation_is_refused_before_the_run(tmp_path: Path, setting: str, message: str) -> None:
    out = tmp_path / "run"
    line = get_refusal("run", "selfplay", "--recipe", "kuhn_poker-nano", "--set", setting, "--out", out)
    assert message in line and not out.exists()


def test_ambiguous_policy_for_another_game_is_refused_before_the_run(tmp_path: Path) -> None:
    out, setting = tmp_path / "run", "evaluate={games: [{name: clinic}, {name: nim}]}"
    line = get_refusal("run", "selfplay", "--recipe", "clinic_both-nano", "--set", setting, "--out", out)
    assert "evaluate.games.1: who plays nim? This run trains doctor and patient" in line and not out.exists()
    unknown_policy = get_refusal(
        "run", "selfplay", "--recipe", "clinic_both-nano", "--set", setting, "--out", out, "--set",
        "evaluate.policy=doc",
    )  # fmt: skip
    assert (
        "evaluate.policy: this run trains no 'doc' — did you mean 'doctor'? (it trains doctor, patient)"
        in unknown_policy
    )


@pytest.mark.slow
def test_one_of_several_policies_plays_a_game_outside_training(tmp_path: Path) -> None:
    """The solver of a proposer-solver run plays questions that may not be proposed."""
    settings = ["iterations=1", "play.matches=2", "evaluate.matches=2", "policies.solver.imitate.matches=8"]
    settings += ["policies.proposer.imitate.matches=8", "policies.proposer.imitate.minibatches=2"]
    settings += ["policies.solver.imitate.minibatches=2", "learn.minibatches=1"]
    arguments = [part for setting in settings for part in ("--set", setting)]
    run = tmp_path / "run"
    result = arena("run", "selfplay", "--recipe", "proposer_solver-nano", *arguments, "--out", run)
    assert result.code == 0, result.err
    evaluation = json.loads((run / "evaluation.json").read_text())
    (held_out,) = evaluation["results"]
    assert (
        held_out["game"] == "reasoning" and held_out["options"]["split"] == "test" and "success" in held_out["figures"]
    )
    assert [evaluation[moment][0]["contender"] for moment in ("before", "results")] == [
        f"{run}@0:solver",
        f"{run}:solver",
    ]
