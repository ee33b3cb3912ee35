"""`arena doctor --model`: what is said, and what of its options is refused."""

import json
import os
from pathlib import Path

import pytest

from tests.factories.commands import arena


def test_what_fits_for_scripts_and_for_people() -> None:
    words = ["doctor", "--model", "nano", "--recipe", "negotiation-nano", "--context", "128"]
    told = arena(*words, "--json")
    said = json.loads(told.out)
    assert said["model"]["parameters"] == 873_984 and said["settings"]["learn.token_budget"] == 8192
    assert said["devices"][0]["kind"] == "cpu"
    (own,) = (way for way in said["ways"] if way["asked"])
    assert own["way"]["precision"] == "fp32" and own["way"]["rank"] is None and own["fits"] is (told.code == 0)
    assert sum(own["learning"].values()) > own["learning"]["libraries"]
    shown = arena(*words)
    assert shown.code == told.code and "all weights (as asked)" in shown.out and "activations" in shown.out


def test_what_does_not_fit_says_what_would_and_ends_with_1() -> None:
    budget = ["--set", "learn.token_budget=10000000"]
    told = arena("doctor", "--model", "nano", "--recipe", "negotiation-nano", *budget)
    assert told.code == 1 and "does not fit: at most --set learn.token_budget=" in told.out


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--adapters", "2"], "add --model"),
        (["--set", "a=1"], "add --model"),
        (["--model", "nanoo"], "no model 'nanoo'"),
        (["--model", "nano", "--recipe", "none"], "unknown recipe 'none'"),
        (["--model", "nano", "--set", "learn.token_budget=-1"], "learn.token_budget"),
        (["--model", "nano", "--adapters", "-1"], "--adapters"),
        (["--model", "nano", "--context", "0"], "--context"),
    ],
)
def test_bad_words_are_refused(words: list[str], said: str) -> None:
    told = arena("doctor", *words)
    assert told.code == 2 and said in told.err + told.out


def test_a_folder_that_is_no_model_is_one_line(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "config.json")
    told = arena("doctor", "--model", str(tmp_path))
    assert told.code == 2 and len(told.err.splitlines()) == 1 and "is no regular file" in told.err
