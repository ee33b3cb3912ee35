"""User-defined tasks: drawn rows, the user's reward function, and invalid files."""

import json
from pathlib import Path
from typing import Any

import pytest

import games
from games.tasks import Tasks


def make_tasks(folder: Path, function: str = "", *rows: Any, **options: Any) -> Tasks:
    """Make the game with these rows and, optionally, a reward function that returns the expression `function`."""
    file = folder / "tasks.jsonl"
    file.write_text("".join(f"{json.dumps(row)}\n" for row in rows or ({"task": "A"}, {"task": "B"}, {"task": "C"})))
    if function:
        (folder / "score.py").write_text(f"def score(row, answer):\n    return {function}\n")
        options["reward"] = f"{folder}/score.py:score"
    game = games.make("tasks", file=str(file), **options)
    assert isinstance(game, Tasks)
    return game


def test_a_match_draws_a_row_and_scores_the_answer(tmp_path: Path) -> None:
    game = make_tasks(tmp_path, "{'right': row['task'] in answer, 'length': len(answer) / 4}")
    tasks = set()
    for seed in range(30):
        game.reset(seed=seed)
        (message,) = game.messages("agent")
        tasks.add(message.text)
        game.step(f"{message.text} | yes!")
        assert game.payoffs() == {"agent": 3.0} and game.report()["ended"] == "answered"
        assert game.infos["agent"]["rewards"] == {"right": 1.0, "length": 2.0}
    assert tasks == {"A", "B", "C"}


def test_a_text_may_hold_any_line_separator_of_unicode(tmp_path: Path) -> None:
    text = "one\u2028two\x85three\x0bfour"
    file = tmp_path / "tasks.jsonl"
    file.write_text(json.dumps({"task": text}, ensure_ascii=False), "utf-8")
    game = games.make("tasks", file=str(file))
    game.reset(seed=0)
    assert game.messages("agent")[0].text == text


def test_posted_rewards_are_paid_with_the_answer() -> None:
    game = games.make("tasks")
    assert isinstance(game, Tasks)
    game.reset(seed=1)
    game.take_rewards("agent", {"reward": 0.3})
    game.take_rewards("agent", {"reward": 0.5, "style": -0.25})
    assert game.payoffs() == {"agent": 0.0}
    game.step("x")
    assert game.payoffs() == {"agent": 0.25}
    game.reset(seed=1)
    game.step("x")
    assert game.payoffs() == {"agent": 0.0}, "the posted reward was kept"


@pytest.mark.parametrize("expression", ["'x'", "float('nan')", "None", "{1: 2}", "1 / 0"])
def test_reward_function_without_a_number_fails_the_match(tmp_path: Path, expression: str) -> None:
    game = make_tasks(tmp_path, expression)
    game.reset(seed=0)
    with pytest.raises((ValueError, ZeroDivisionError)):
        game.step("x")


def test_refuses_posted_rewards_with_a_reward_function(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="decides the rewards"):
        make_tasks(tmp_path, "1").take_rewards("agent", {"reward": 1})


@pytest.mark.parametrize(
    ("text", "message"),
    [("", "has no tasks"), ("[]\n", ":1: expected an object"), ('{"task": "a"}\n\n{"task": 3}', ":3: expected"),
     ("{\n", ":1: no JSON"), ('{"task": " "}', ":1: expected"), ("\udcff", "utf-8")],
)  # fmt: skip
def test_refuses_files_without_tasks(tmp_path: Path, text: str, message: str) -> None:
    file = tmp_path / "tasks.jsonl"
    file.write_bytes(text.encode("utf-8", "surrogateescape"))
    with pytest.raises(ValueError, match=message):
        games.make("tasks", file=str(file))


def test_refuses_missing_files_and_functions(tmp_path: Path) -> None:
    for options in ({"file": "/nowhere.jsonl"}, {"file": 3}, {"reward": "score"}, {"reward": f"{tmp_path}/x.py:f"}):
        with pytest.raises(ValueError, match=r"file|reward"):
            games.make("tasks", **options)
