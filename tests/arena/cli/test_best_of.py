"""`arena eval --best-of` as a user types it."""

import json
import signal
from pathlib import Path
from typing import Any

import pytest

from agents.weights import resolve
from arena.evaluate import sampled
from arena.evaluate.selection import Sample
from arena.learn.reward_model import RewardModel
from tests.factories.commands import arena, get_refusal
from tests.factories.guess import GUESS, JUDGED
from tests.factories.kept_run import make_checkpointed_run

COMMAND = ["eval", "third", "--game", GUESS, "--best-of", "4"]
RUN = f"""\
name: kept
iterations: 9
game: {{name: "{JUDGED}"}}
policies: {{one: {{model: nano-1}}, two: {{model: nano-2}}}}
seats: {{solver: {{role: nano_player, policy: one}}, judge: {{role: nano_player, policy: two}}}}
"""


def test_the_table_and_its_json(tmp_path: Path) -> None:
    out = tmp_path / "out.json"
    result = arena(*COMMAND, "--deals", "20", "--out", out, "--seed", "5")
    assert result.code == 0 and result.err == "", result.err
    for words in ("third: 20 deals, the best of 4 matches", "majority", "oracle", "success by number of matches"):
        assert words in result.out
    data = json.loads(out.read_text())
    assert json.loads(arena(*COMMAND, "--deals", "20", "--json", "--seed", "5").out) == data
    assert_schema(data, 20)
    assert [row["by"] for row in data["rows"]] == ["mean", "majority", "oracle"]
    assert data["rows"][0]["against_mean"]["success"] == [0.0, 0.0, 0.0]
    assert data["success_by_matches"]["oracle"].keys() == {"1", "2", "4"}
    assert data["success_by_matches"]["oracle"]["4"] == data["rows"][2]["success"]


def assert_schema(data: dict[str, Any], deals: int) -> None:
    assert list(data) == [
        "by", "seed", "judge", "reward_model", "game", "options", "contender", "seat", "best_of", "deals", "rows",
        "success_by_matches", "missing", "failed",
    ]  # fmt: skip
    assert (data["by"], data["deals"], data["missing"], data["failed"]) == ("arena eval", deals, 0, {})
    for row in data["rows"]:
        assert list(row) == ["by", "matches", "tokens", "turns", "success", "score", "payoff", "against_mean"]
        for values in (row["success"], row["payoff"], row["against_mean"]["score"]):
            low_to_high = [values[1], values[0], values[2]]
            assert low_to_high == sorted(low_to_high)


@pytest.mark.slow
def test_all_rules_and_decodings_of_a_run_with_a_judge(tmp_path: Path) -> None:
    run, scores = make_checkpointed_run(tmp_path / "run", RUN, _3="nano-3"), tmp_path / "scores"
    RewardModel.load(resolve("nano")).save(scores)
    command = ["eval", f"{run}:one", "--game", JUDGED, "--best-of", "3", "--deals", "2", "--trust"]
    judges = ["--reward-model", scores, "--judge", f"{run}:two"]
    result = arena(*command, *judges, "--decoding", "votes", "--json")
    assert result.code == 0, result.err
    data = json.loads(result.out)
    assert_schema(data, 2)
    names = ["mean", "majority", "p_yes", "reward_model", "oracle", "votes"]
    assert [row["by"] for row in data["rows"]] == names
    assert (data["judge"], data["seat"]) == (f"{run}:two", "solver")
    costs = {row["by"]: row["tokens"] for row in data["rows"]}
    assert (
        costs["majority"] == costs["p_yes"] == pytest.approx(3 * costs["mean"]) and costs["votes"] > costs["mean"] > 0
    )


def test_contender_judges_itself_by_default(tmp_path: Path) -> None:
    result = arena("eval", "nano", "--game", GUESS, "--best-of", "2", "--deals", "2", "--by", "p_yes", "--json")
    assert result.code == 0, result.err
    assert json.loads(result.out)["judge"] == "nano"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--by", "orcale"], "did you mean 'oracle'"),
        (["--decoding", "voted"], "did you mean 'votes'"),
        (["--decoding", "votes"], "has no weights to sample from"),
        (["--by", "p_yes"], "has no probability of yes"),
        (["--by", "reward_model"], "--reward-model FOLDER"),
        (["--by", "oracle", "--judge", "nano"], "--judge needs p_yes in --by"),
        (["--judge", "nano"], "no tokens for a judge"),
        (["--matches", "8"], "--matches does not go with --best-of"),
        (["--before"], "--before does not go with --best-of"),
        (["--panel", "negotiation"], "--panel does not go with --best-of"),
        (["--against", "random,nash"], "one contender for all other seats"),
        (["--game", "kuhn_poker,nim"], "one --game"),
    ],
)
def test_contradictory_options_are_refused(arguments: list[str], message: str) -> None:
    assert message in get_refusal(*COMMAND, *arguments)


def test_game_without_success_is_refused() -> None:
    assert "reports no `success`" in get_refusal("eval", "random", "--game", "kuhn_poker", "--best-of", "4")


def test_options_require_best_of() -> None:
    for option in (["--by", "oracle"], ["--judge", "nano"], ["--decoding", "votes"]):
        assert f"{option[0]} needs --best-of" in get_refusal("eval", "random", "--game", "reasoning", *option)


def test_ctrl_c_leaves_nothing_half_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls, original = iter(range(100)), sampled._sample_of

    def interrupt_at_sixth(*arguments: Any) -> Sample:
        if next(calls) == 5:
            signal.raise_signal(signal.SIGINT)
        return original(*arguments)

    monkeypatch.setattr(sampled, "_sample_of", interrupt_at_sixth)
    result = arena(*COMMAND, "--deals", "10", "--out", tmp_path / "out.json")
    assert (result.code, result.err, list(tmp_path.iterdir())) == (130, "arena: interrupted; nothing was written\n", [])
