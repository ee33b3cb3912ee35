"""Runs that learn from data sets: bit-equal resumption, held-out rows, and one-line errors."""

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from arena.cli.loop import wait
from arena.config.layers import compose, to_yaml
from arena.config.saved_config import load_experiment
from arena.config.sources import Layer
from arena.data.rows import DataSet
from arena.errors import ConfigError, StoreError
from arena.lab import Lab
from arena.play.lessons import score_preferences
from arena.stages.base import StageContext
from arena.stages.data import dpo, kto, sft
from arena.store.reader import RunReader
from arena.store.run import RunFolder
from tests.factories.commands import arena
from tests.factories.data_sets import SOURCE, make_chats, make_data_experiment, make_labels, make_pairs, write_rows
from tests.factories.labs import RecordingWatcher, check_resume, make_experiment, read_weight_files, run_lab

ROWS = {"chats": make_chats, "pairs": make_pairs, "labels": make_labels}


def read_metrics(folder: Path) -> list[dict[str, Any]]:
    return [row["learn"]["doctor"] for row in RunFolder.open(folder).metrics.read()]


@pytest.mark.slow_after(1)
@pytest.mark.parametrize("kind", ROWS)
def test_a_resumed_run_has_the_same_weights(kind: str, tmp_path: Path) -> None:
    data = write_rows(tmp_path / "rows.jsonl", ROWS[kind](20))
    config = make_data_experiment(
        data, kind, "iterations=3", "learn.minibatches=2", "source.held_out=0.2", "checkpoint.keep=9"
    )
    check_resume(config, tmp_path)


@pytest.mark.slow_after(1)
@pytest.mark.parametrize("kind", ROWS)
def test_learning_generalises_to_held_out_rows(kind: str, tmp_path: Path) -> None:
    """Held-out rows, which no update sees, improve, and evaluating them changes no weight."""
    data = write_rows(tmp_path / "rows.jsonl", ROWS[kind](60))
    common = ["iterations=12", "source.batch=16", "source.held_out=0.1", "learn.lr=1e-3"]
    run_lab(tmp_path / "often", make_data_experiment(data, kind, *common, "source.held_out_every=1"))
    run_lab(tmp_path / "seldom", make_data_experiment(data, kind, *common, "source.held_out_every=5"))
    assert read_weight_files(tmp_path / "often", 12, "doctor") == read_weight_files(tmp_path / "seldom", 12, "doctor")
    rows = read_metrics(tmp_path / "often")
    name = "held_out_accuracy" if kind == "labels" else "held_out_loss"
    assert [name in row for row in read_metrics(tmp_path / "seldom")] == [k in (1, 5, 10, 12) for k in range(1, 13)]
    if kind != "labels":
        assert rows[-1][name] < 0.7 * rows[0][name]
    if kind == "chats":
        assert rows[-1]["held_out_perplexity"] == pytest.approx(np.exp(rows[-1]["held_out_loss"]))
    else:
        assert rows[-1]["held_out_accuracy"] == 1


def test_accuracy_counts_ties_half() -> None:
    scores = score_preferences(np.array([1.0, 0.0, 2.0, 2.0]), np.array([1.0, -1.0, 1.0, -1.0]), 0.5, is_paired=True)
    assert scores["held_out_accuracy"] == 0.75
    assert scores["held_out_loss"] == pytest.approx((np.log1p(np.exp(-0.5)) + np.log(2)) / 2)
    crossed = score_preferences(np.array([1.0, 0.0, 2.0]), np.array([1.0, -1.0, 1.0]), 0.5, is_paired=False)
    assert crossed == {"held_out_accuracy": 1.0}


@pytest.mark.slow
def test_texts_are_learned_and_long_rows_counted(tmp_path: Path) -> None:
    long_row = {"messages": [{"role": "user", "content": "take 1 " * 2000}, {"role": "assistant", "content": "no"}]}
    run_lab(
        tmp_path / "chats",
        make_data_experiment(write_rows(tmp_path / "rows.jsonl", [*make_chats(7), long_row]), "chats", "iterations=1"),
    )
    assert (read_metrics(tmp_path / "chats")[0]["too_long"], read_metrics(tmp_path / "chats")[0]["rows"]) == (1, 8)
    run_lab(
        tmp_path / "none",
        make_data_experiment(write_rows(tmp_path / "long.jsonl", [long_row] * 3), "chats", "iterations=1"),
    )
    assert read_metrics(tmp_path / "none") == [{"rows": 8.0, "too_long": 8.0}]
    text = write_rows(tmp_path / "texts.jsonl", [{"text": "take 1 hat. " * 1000}])
    run_lab(tmp_path / "texts", make_data_experiment(text, "texts", "iterations=1", "source.batch=1"))
    assert read_metrics(tmp_path / "texts")[0]["tokens"] > 4000


def test_edited_data_set_ends_the_run(tmp_path: Path) -> None:
    data = write_rows(tmp_path / "rows.jsonl", make_chats(20))

    class Editor(RecordingWatcher):
        """Watcher that edits the data set during the run."""

        def iteration(self, row: Any) -> None:
            write_rows(data, make_chats(19))
            os.utime(data, ns=(1, 1))

    with pytest.raises(StoreError, match="was changed while it was in use"):
        run_lab(tmp_path / "run", make_data_experiment(data), Editor())


def run_command(tmp_path: Path, *changes: str, text: str = SOURCE, data: Path | None = None) -> Any:
    config = tmp_path / "config.yaml"
    config.write_text(text.replace("DATA", str(data or tmp_path / "rows.jsonl")))
    flags = [part for change in changes for part in ("--set", change)]
    return arena("run", "selfplay", "--config", config, "--out", tmp_path / "run", "--json", *flags)


def test_command_saves_hash_and_iterations_and_checks_them_at_resume(tmp_path: Path) -> None:
    data = write_rows(tmp_path / "rows.jsonl", make_chats(21))
    result = run_command(tmp_path, "source.epochs=2", "source.held_out=0.05", "checkpoint.every=2")
    assert result.code == 0, result
    saved = load_experiment(tmp_path / "run")
    assert saved.source and saved.source.sha256 == DataSet(data).rows.sha256
    assert saved.iterations == 5 and [row["rows"] for row in read_metrics(tmp_path / "run")] == [8, 8, 8, 8, 8]
    assert "arena eval" not in result.out and arena("show", tmp_path / "run").code == 0
    write_rows(data, make_chats(22))
    assert "rows.jsonl was changed since the run began" in arena("resume", tmp_path / "run", "--iterations", 6).line


@pytest.mark.parametrize(
    ("rows", "changes", "message"),
    [
        (["", *make_chats(2)], [], "rows.jsonl:1: an empty line"),
        ([*make_chats(2), {"text": "x"}], [], "rows.jsonl:3: texts among chats"),
        (make_pairs(4), [], "has pairs: set learn.loss: dpo, not likelihood"),
        (make_chats(4), ["learn.loss=policy_gradient"], "learn.loss: policy_gradient needs play"),
        (make_chats(4), ["policies.doctor.train=false"], "source.data: no policy learns from it"),
        (make_chats(4), ["source.log=x"], "give `log: FOLDER` or `data: FILE`"),
        (make_chats(1), ["source.held_out=0.5"], "source.held_out: 1 rows leave nothing to learn from"),
        (make_labels(4), ["learn.loss=kto"], "kto is a mean over completions"),
        (
            make_labels(4),
            ["learn.loss=kto", "learn.aggregate=turn_mean", "source.batch=1"],
            "source.batch: kto compares",
        ),
        (make_chats(4), ["evaluate={panel: kuhn_poker}"], "evaluate: needs a game"),
    ],
)
def test_invalid_data_gives_one_line(rows: list[Any], changes: list[str], message: str, tmp_path: Path) -> None:
    write_rows(tmp_path / "rows.jsonl", rows)
    result = run_command(tmp_path, *changes)
    assert result.code == 2 and message in result.line, result
    assert not (tmp_path / "run").exists()


def make_stage_experiment(tmp_path: Path, kind: Any, **settings: Any) -> Any:
    """Return the experiment of a stage, over the settings of a game."""
    shared = {
        "name": "clinic", "iterations": 9, "threads": 1, "tracker": [], "game": {"name": "haggle"},
        "policies": {"doctor": {"model": "nano"}, "patient": {"model": "nano-1"}},
        "seats": {"buyer": {"role": "player", "policy": "doctor"}, "seller": {"role": "player", "policy": "patient"}},
        "play": {"parts": ["branches"]}, "learn": {"regularisers": {"entropy": {"weight": 0.1}}},
    }  # fmt: skip
    context = StageContext(
        shared=shared, seed=0, folders={"before": tmp_path / "before"}, weights={}, note=lambda line: None
    )
    return compose([Layer("shared", "", shared), Layer("stage", "", kind(context, policy="doctor", **settings))])


@pytest.mark.parametrize(("kind", "rows"), [(sft, make_chats(20)), (dpo, make_pairs(20)), (kto, make_labels(20))])
def test_stages_are_experiments_of_one_policy_without_play(kind: Any, rows: list[Any], tmp_path: Path) -> None:
    data = write_rows(tmp_path / "rows.jsonl", rows)
    config = make_stage_experiment(tmp_path, kind, data=str(data), epochs=2, batch=8, lr=1e-3)
    assert not config.all_tables() and [*config.playing()] == ["doctor"] and not config.play.parts
    assert all(
        weight.to_plain() == 0 for regulariser in config.learn.regularisers.values() for weight in regulariser.parts
    )
    file = tmp_path / "config.yaml"
    file.write_text(to_yaml(config))
    result = arena("run", "selfplay", "--config", file, "--out", tmp_path / "run", "--json")
    assert result.code == 0, result
    assert (
        len(read_metrics(tmp_path / "run")) == 5 and "held_out_loss" in read_metrics(tmp_path / "run")[0]
    ) or kind is kto


def test_stages_name_policies_and_earlier_stages(tmp_path: Path) -> None:
    source = make_stage_experiment(tmp_path, dpo, data="stage:before").source
    assert source.data.run == str(tmp_path / "before") and source.data.rows == "pairs"
    assert make_stage_experiment(tmp_path, sft, data=str(tmp_path / "before")).source.data.policies == ["doctor"]
    context = StageContext(shared={"policies": {}}, seed=0, folders={}, weights={}, note=lambda line: None)
    for data, message in (("stage:none", "no earlier stage 'none'"), ("rows.jsonl", "policy: there is no policy 'x'")):
        with pytest.raises(ConfigError, match=message):
            sft(context, policy="x", data=data)


@pytest.mark.slow
def test_matches_of_a_run_are_rows_by_a_condition(tmp_path: Path) -> None:
    run_folder = tmp_path / "played"
    run_lab(run_folder, make_experiment("iterations=2"))
    text = SOURCE.replace("DATA", f"{{run: {run_folder}, where: iteration = 2}}")
    result = run_command(tmp_path, "source.epochs=1", text=text)
    assert result.code == 0, result
    rows = [json.loads(line) for line in (tmp_path / "run" / "data" / "rows.jsonl").read_text().splitlines()]
    expected_rows = [row for row in RunReader(run_folder).matches() if row["iteration"] == 2]
    assert {row["match"] for row in rows} == {row["id"] for row in expected_rows}
    resumable = Lab.open(RunFolder.open(tmp_path / "run"), load_experiment(tmp_path / "run"), RecordingWatcher())
    assert wait(resumable).done == load_experiment(tmp_path / "run").iterations
    for condition, message in (
        ("iteration = 7", "no match of"),
        ("nothing = 1", "source.data.where: "),
        ("1); copy matches to 'x'; --", "source.data.where|one SELECT|queries"),
    ):
        bad = SOURCE.replace("DATA", f"{{run: {run_folder}, where: {json.dumps(condition)}}}")
        with pytest.MonkeyPatch.context():
            refused_result = run_command(tmp_path / "run", text=bad)
        assert refused_result.code == 2 and any(word in refused_result.line for word in message.split("|")), (
            refused_result
        )


@pytest.mark.slow
def test_matches_of_a_run_are_texts_for_continued_pre_training(tmp_path: Path) -> None:
    """Each chat of the run is one text with the contents of all its messages; nothing else is learned."""
    run_folder = tmp_path / "played"
    run_lab(run_folder, make_experiment("iterations=1"))
    text = SOURCE.replace("DATA", f"{{run: {run_folder}, rows: ROWS}}")
    for kind in ("chats", "texts"):
        (tmp_path / kind).mkdir()
        assert run_command(tmp_path / kind, "source.epochs=1", text=text.replace("ROWS", kind)).code == 0
    make_chats, texts = (
        [json.loads(line) for line in (tmp_path / kind / "run/data/rows.jsonl").read_text().splitlines()]
        for kind in ("chats", "texts")
    )
    assert [row["text"] for row in texts] == ["\n".join(m["content"] for m in row["messages"]) for row in make_chats]


@pytest.mark.slow
def test_rows_are_imitated_during_play(tmp_path: Path) -> None:
    """With `mixed` the loss of play has the remaining weight: at 1 only the rows are learned."""
    data = write_rows(tmp_path / "rows.jsonl", make_chats(20))
    base = ["iterations=1", f"learn.demonstrations.data={data}", "learn.demonstrations.matches=4"]
    runs = {}
    for name, *more in (
        ("whole", "weight=1.0", "mixed=true"), ("half", "weight=0.5", "mixed=true"), ("added", "weight=0.5"),
    ):  # fmt: skip
        run_lab(tmp_path / name, make_experiment(*base, *(f"learn.demonstrations.{each}" for each in more)))
        runs[name] = RunFolder.open(tmp_path / name).metrics.read()[-1]["learn"]["shared"]
    assert all("shown_loss" in row for row in runs.values())
    assert "loss" not in runs["whole"] and "loss" in runs["half"]
    assert read_weight_files(tmp_path / "half", 1)[0] != read_weight_files(tmp_path / "added", 1)[0]
    with pytest.raises(ConfigError, match="with `mixed` at most 1"):
        make_experiment(*base, "learn.demonstrations.weight=1.5", "learn.demonstrations.mixed=true")
