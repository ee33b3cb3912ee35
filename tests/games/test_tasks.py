"""Tasks of one's own: drawn rows, a reward function of the user's, and files that are none."""

import json
from pathlib import Path
from typing import Any

import pytest

import games
from games.tasks import Tasks


def made(folder: Path, function: str = "", *rows: Any, **options: Any) -> Tasks:
    """A game with these rows and the body of its reward function."""
    file = folder / "tasks.jsonl"
    file.write_text("".join(f"{json.dumps(row)}\n" for row in rows or ({"task": "A"}, {"task": "B"}, {"task": "C"})))
    if function:
        (folder / "score.py").write_text(f"def score(row, answer):\n    return {function}\n")
        options["reward"] = f"{folder}/score.py:score"
    game = games.make("tasks", file=str(file), **options)
    assert isinstance(game, Tasks)
    return game


def test_a_match_draws_a_row_and_scores_the_answer(tmp_path: Path) -> None:
    game = made(tmp_path, "{'right': row['task'] in answer, 'length': len(answer) / 4}")
    drawn = set()
    for seed in range(30):
        game.reset(seed=seed)
        (message,) = game.messages("agent")
        drawn.add(message.text)
        game.step(f"{message.text} | yes!")
        assert game.payoffs() == {"agent": 3.0} and game.report()["ended"] == "answered"
        assert game.infos["agent"]["rewards"] == {"right": 1.0, "length": 2.0}
    assert drawn == {"A", "B", "C"}


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
    assert game.payoffs() == {"agent": 0.0}, "a new match has no posted reward"


@pytest.mark.parametrize("worth", ["'x'", "float('nan')", "None", "{1: 2}", "1 / 0"])
def test_a_function_that_gives_no_number_fails_the_match(tmp_path: Path, worth: str) -> None:
    game = made(tmp_path, worth)
    game.reset(seed=0)
    with pytest.raises((ValueError, ZeroDivisionError)):
        game.step("x")


def test_a_function_decides_alone(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="decides the rewards"):
        made(tmp_path, "1").take_rewards("agent", {"reward": 1})


@pytest.mark.parametrize(
    ("text", "words"),
    [("", "has no tasks"), ("[]\n", ":1: expected an object"), ('{"task": "a"}\n\n{"task": 3}', ":3: expected"),
     ("{\n", ":1: no JSON"), ('{"task": " "}', ":1: expected"), ("\udcff", "utf-8")],
)  # fmt: skip
def test_files_without_tasks(tmp_path: Path, text: str, words: str) -> None:
    file = tmp_path / "tasks.jsonl"
    file.write_bytes(text.encode("utf-8", "surrogateescape"))
    with pytest.raises(ValueError, match=words):
        games.make("tasks", file=str(file))


def test_settings_that_name_nothing(tmp_path: Path) -> None:
    for options in ({"file": "/nowhere.jsonl"}, {"file": 3}, {"reward": "score"}, {"reward": f"{tmp_path}/x.py:f"}):
        with pytest.raises(ValueError, match=r"file|reward"):
            games.make("tasks", **options)
