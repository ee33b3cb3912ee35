"""`arena doctor --model`: its report and refused options."""

import json
import os
from pathlib import Path

import pytest

from tests.factories.commands import arena


def test_report_of_a_fitting_model_as_json_and_text() -> None:
    words = ["doctor", "--model", "nano", "--recipe", "negotiation-nano", "--context", "128"]
    result = arena(*words, "--json")
    report = json.loads(result.out)
    assert report["model"]["parameters"] == 873_984 and report["settings"]["learn.token_budget"] == 8192
    assert report["devices"][0]["kind"] == "cpu"
    (own,) = (way for way in report["ways"] if way["asked"])
    assert own["way"]["precision"] == "fp32" and own["way"]["rank"] is None and own["fits"] is (result.code == 0)
    assert sum(own["learning"].values()) > own["learning"]["libraries"]
    shown = arena(*words)
    assert shown.code == result.code and "all weights (as asked)" in shown.out and "activations" in shown.out


def test_model_that_does_not_fit_suggests_a_setting() -> None:
    budget = ["--set", "learn.token_budget=10000000"]
    result = arena("doctor", "--model", "nano", "--recipe", "negotiation-nano", *budget)
    assert result.code == 1 and "does not fit: at most --set learn.token_budget=" in result.out


@pytest.mark.parametrize(
    ("words", "message"),
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
def test_bad_options_are_refused(words: list[str], message: str) -> None:
    result = arena("doctor", *words)
    assert result.code == 2 and message in result.err + result.out


def test_folder_without_a_model_gives_one_line(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "config.json")
    result = arena("doctor", "--model", str(tmp_path))
    assert result.code == 2 and len(result.err.splitlines()) == 1 and "is no regular file" in result.err
