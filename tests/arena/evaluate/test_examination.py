"""Panel evaluation during a run: it changes nothing else, and each evaluation happens once."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from arena.cli.loop import wait
from arena.config.layers import compose, to_yaml
from arena.config.sources import set_layer, text_layer
from arena.errors import ConfigError, PlayError
from arena.evaluate.evaluation import draw_deal_seeds
from arena.evaluate.examination import check_panel, make_examination, with_fixed_panel
from arena.evaluate.panel import PanelPlan
from arena.lab import Lab
from arena.store.contents import PANEL
from arena.store.evaluations import read_evaluations
from arena.store.reader import RunReader
from arena.store.run import RunFolder
from tests.factories.commands import arena, get_refusal
from tests.factories.kept_run import SEPARATE, SHARED, make_checkpointed_run
from tests.factories.labs import RecordingWatcher, copy_run, make_experiment
from tests.factories.traces import RunTrace, assert_same, assert_same_runs, parse_json_lines, read_trace

PANEL_YAML = "{panel: talks, game: {name: negotiation}, members: [random, fair_split], deals: 3}"
EVALUATE = f"evaluate={{panel: {PANEL_YAML}, every: 2}}"
RUN_SETTINGS = ("iterations=3", "checkpoint.keep=9")
COMMAND = ["run", "selfplay", "--recipe", "kuhn_poker-nano", "--json"]
COMMAND += [
    part
    for setting in ("iterations=2", "play.matches=8", "policies.shared.imitate.matches=16")
    for part in ("--set", setting)
]


def open_lab(folder: Path, *assignments: str, watcher: RecordingWatcher | None = None) -> Lab:
    config = make_experiment(*RUN_SETTINGS, *assignments)
    run = RunFolder.open(folder) if folder.exists() else None
    if run is None:
        run = RunFolder.create(folder, to_yaml(config), {})
    return wait(Lab.open(run, config, watcher or RecordingWatcher(), make_examination(run, config)))


def run_to_end(folder: Path, *assignments: str, watcher: RecordingWatcher | None = None) -> Path:
    wait(open_lab(folder, *assignments, watcher=watcher).run())
    return folder


@pytest.fixture(scope="module")
def plain_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return run_to_end(tmp_path_factory.mktemp("plain") / "run")


@pytest.fixture(scope="module")
def evaluated_run(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, RecordingWatcher]:
    folder, watcher = tmp_path_factory.mktemp("judged") / "run", RecordingWatcher()
    return run_to_end(folder, EVALUATE, watcher=watcher), watcher


def remove_panel(snapshot: RunTrace) -> RunTrace:
    return RunTrace(
        snapshot.matches,
        snapshot.credit,
        [{k: v for k, v in row.items() if k != "panel"} for row in snapshot.metrics],
        snapshot.files,
    )


def read_panel_lines(folder: Path) -> list[dict[str, Any]]:
    return [line | {"seconds": 0} for line in parse_json_lines((folder / PANEL).read_text())]


@pytest.mark.slow
def test_panel_changes_nothing_else(plain_run: Path, evaluated_run: tuple[Path, RecordingWatcher]) -> None:
    assert_same(remove_panel(read_trace(evaluated_run[0])), read_trace(plain_run))
    assert not (plain_run / PANEL).exists()


def test_panel_restores_the_engine(tmp_path: Path) -> None:
    lab = open_lab(tmp_path / "run", EVALUATE, "policies.shared.imitate=null")
    wait(lab.examine(0))
    served = lab.engine._served["shared"]  # type: ignore[attr-defined]
    assert (served.version, len(served.prefixes._caches), len(served.caches._caches)) == (0, 0, 0)
    assert lab.policies["shared"].version == 0 and read_evaluations(tmp_path / "run")


def test_panel_runs_at_start_at_intervals_and_at_end(evaluated_run: tuple[Path, RecordingWatcher]) -> None:
    folder, watcher = evaluated_run
    evaluations = read_evaluations(folder)
    assert [e.iteration for e in evaluations] == [0, 2, 3] and len({e.key for e in evaluations}) == 1
    assert [(c.member, c.seat) for c in evaluations[0].cells] == [
        (member, seat) for member in ("random", "fair_split") for seat in ("opener", "responder")
    ]
    rows = RunReader(folder).metrics()
    figures = {"payoff", "valid", "deal"}
    assert [set(row.get("panel", {})) for row in rows] == [set(), figures, figures]
    values = [payoff for cell in evaluations[2].cells for payoff in cell.payoff]
    assert rows[2]["panel"]["payoff"] == pytest.approx(sum(v or 0 for v in values) / 12)
    names = [phase for phase in watcher.phases if "panel" in phase[1]]
    assert names == [(0, "panel talks: before it learns"), (2, "panel talks"), (3, "panel talks")]


def test_panel_deals_are_fixed_and_held_out(evaluated_run: tuple[Path, RecordingWatcher]) -> None:
    trained = {row["seed"] for row in RunReader(evaluated_run[0]).matches()}
    assert trained and not trained & set(draw_deal_seeds(0, 3))


def test_panel_equals_arena_eval(evaluated_run: tuple[Path, RecordingWatcher], tmp_path: Path) -> None:
    panel = tmp_path / "talks.yaml"
    panel.write_text("panel: talks\ngame: {name: negotiation}\nmembers: [random, fair_split]\ndeals: 3\n")
    result = arena("eval", evaluated_run[0], "--panel", panel, "--before", "--json", "--out", tmp_path / "out.json")
    assert result.code == 0, result.err
    data = json.loads(result.out)
    assert json.loads((tmp_path / "out.json").read_text()) == data
    first, *_, last = read_evaluations(evaluated_run[0])
    for stored, printed in ((first, data["before"]), (last, data["after"])):
        assert printed["key"] == stored.key
        assert [c["payoff"] for c in printed["cells"]] == [c.payoff for c in stored.cells]
    result = arena("eval", evaluated_run[0], "--panel", panel)
    assert "fair_split, opener" in result.out and "deal rate  valid per match" in result.out


@pytest.mark.slow_after(1)
@pytest.mark.parametrize("done", [1, 2])
def test_resumed_run_is_evaluated_once_per_iteration(
    evaluated_run: tuple[Path, RecordingWatcher], tmp_path: Path, done: int
) -> None:
    """Everything after the last commit is dropped and repeated."""
    folder = copy_run(evaluated_run[0], tmp_path / "run", done)
    watcher = RecordingWatcher()
    wait(open_lab(folder, EVALUATE, watcher=watcher).run())
    assert read_panel_lines(folder) == read_panel_lines(evaluated_run[0])
    assert_same_runs(folder, evaluated_run[0])
    assert sum("panel" in name for _, name in watcher.phases) == len([k for k in (2, 3) if k > done])


@pytest.mark.slow
@pytest.mark.parametrize("moment", [(0, "panel talks: before it learns"), (2, "panel talks"), (2, "commit")])
def test_interruption_around_an_evaluation_resumes_bit_equal(
    evaluated_run: tuple[Path, RecordingWatcher], tmp_path: Path, moment: tuple[int, str]
) -> None:
    folder = tmp_path / "run"
    with pytest.raises(KeyboardInterrupt):
        run_to_end(folder, EVALUATE, watcher=RecordingWatcher(lambda what, value: what == "phase" and value == moment))
    run_to_end(folder, EVALUATE)
    assert read_panel_lines(folder) == read_panel_lines(evaluated_run[0])
    assert_same_runs(folder, evaluated_run[0])


class ProgressWatcher(RecordingWatcher):
    """Watcher that records panel progress and can interrupt an evaluation."""

    def __init__(self, stop_at: int = 0) -> None:
        super().__init__()
        self.stop_at, self.progress_calls = stop_at, list[tuple[int, int]]()

    def progress(self, done: int, total: int) -> None:
        if self.phases and "panel" in self.phases[-1][1]:
            self.progress_calls.append((done, total))
            if self.phases[-1][0] == 2 and done == self.stop_at:
                raise KeyboardInterrupt


@pytest.mark.slow
def test_ctrl_c_during_an_evaluation(evaluated_run: tuple[Path, RecordingWatcher], tmp_path: Path) -> None:
    folder, watcher = tmp_path / "run", ProgressWatcher(stop_at=5)
    with pytest.raises(KeyboardInterrupt):
        run_to_end(folder, EVALUATE, watcher=watcher)
    assert watcher.progress_calls[:12] == [(n, 12) for n in range(1, 13)], "every match is reported"
    assert [line["iteration"] for line in read_panel_lines(folder)] == [0]
    run_to_end(folder, EVALUATE)
    assert read_panel_lines(folder) == read_panel_lines(evaluated_run[0])


@pytest.mark.slow
def test_panel_added_on_resume_starts_there(plain_run: Path, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    shutil.copytree(plain_run, folder)
    run_to_end(folder, EVALUATE)
    assert [line["iteration"] for line in read_panel_lines(folder)] == [3]
    run_to_end(folder, EVALUATE)
    assert [line["iteration"] for line in read_panel_lines(folder)] == [3], "once"
    run_to_end(folder, EVALUATE, "iterations=5")
    assert [line["iteration"] for line in read_panel_lines(folder)] == [3, 4, 5]
    run_to_end(folder, EVALUATE, "iterations=5", "evaluate.deals=2")
    assert [line["deals"] for line in read_panel_lines(folder)] == [3, 3, 3, 2], (
        "another panel has a beginning of its own"
    )


@pytest.mark.slow
def test_failing_panel_does_not_end_the_run(plain_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*args: Any) -> None:
        raise PlayError("12 of 12 matches failed")

    monkeypatch.setattr(PanelPlan, "play", fail)
    watcher = RecordingWatcher()
    folder = run_to_end(tmp_path / "run", EVALUATE, watcher=watcher)
    assert_same_runs(folder, plain_run)
    assert (0, "iteration 2 was not evaluated against the panel talks: 12 of 12 matches failed") in watcher.phases
    assert not any("panel" in row for row in RunReader(folder).metrics())


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda text: "garbage\n" + text, "panel.jsonl is not as it was written"),
        (lambda text: text.replace("fair_split", "fair_splat"), "panel.jsonl is not as it was written"),
        (lambda text: "", "panel.jsonl is not as it was written"),
    ],
)
def test_edited_panel_file_is_detected(
    evaluated_run: tuple[Path, RecordingWatcher], tmp_path: Path, damage: Any, message: str
) -> None:
    folder = tmp_path / "run"
    shutil.copytree(evaluated_run[0], folder)
    (folder / PANEL).write_text(damage((folder / PANEL).read_text()))
    assert message in get_refusal("show", folder)


@pytest.mark.parametrize("line", ["garbage", "{}", '{"iteration": 1}', '{"iteration": 2, "cells": [[[]]]}'])
def test_invalid_panel_line_is_reported(
    evaluated_run: tuple[Path, RecordingWatcher], tmp_path: Path, line: str
) -> None:
    folder = tmp_path / "run"
    shutil.copytree(evaluated_run[0], folder)
    with (folder / PANEL).open("a") as file:
        file.write(line + "\n" + line + "\n")
    assert "panel.jsonl:4: this line is" in get_refusal("show", folder)


# -- checks before play ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("section", "message"),
    [
        ("{panel: kuhn_pokr}", "evaluate.panel: unknown panel 'kuhn_pokr' — did you mean 'kuhn_poker'?"),
        ("{panel: {panel: p, game: {name: nim}, members: [randm]}}", "unknown contender 'randm'"),
        ("{panel: {panel: p, game: {name: nimm}, members: [random]}}", "unknown game 'nimm' — did you mean 'nim'?"),
        ("{panel: {panel: p, game: {name: kuhn_poker}, members: [minimax]}}", "minimax"),
        ("{panel: {panel: p, game: {name: maze}, members: [random]}}", "maze has one seat"),
        ("{panel: {panel: p, game: {name: nim, options: {illegal: no}}, members: [random]}}", "illegal must be"),
        ("{panel: {panel: p, game: {name: nim}, members: []}}", "evaluate.panel.members"),
        ("{panel: {panel: p, game: {name: nim}, membrs: [random]}}", "evaluate.panel.membrs"),
        ("{panel: kuhn_poker, deals: 0}", "evaluate.deals"),
        ("{panel: kuhn_poker, every: 0}", "evaluate.every"),
        ("{every: 3}", "give `panel: NAME`"),
        ("{games: [{name: nim}], every: 3}", "`every` belongs to `panel`"),
        ("{panel: {panel: p, game: {name: nim}, members: ['endpoint:']}}", "endpoint"),
    ],
)
def test_invalid_panel_is_refused_before_the_run(tmp_path: Path, section: str, message: str) -> None:
    out = tmp_path / "run"
    line = get_refusal(*COMMAND, "--set", f"evaluate={section}", "--out", out)
    assert message in line and not out.exists(), line


def test_unreachable_server_is_reported_before_the_run(tmp_path: Path) -> None:
    out = tmp_path / "run"
    settings = ["evaluate={panel: {panel: p, game: {name: nim}, members: ['endpoint:m']}}"]
    settings += ["endpoint.url=http://127.0.0.1:9/v1"]
    line = get_refusal(*COMMAND, *(part for setting in settings for part in ("--set", setting)), "--out", out)
    assert "127.0.0.1:9" in line and not out.exists()


def test_panel_needs_a_policy_for_its_game(tmp_path: Path) -> None:
    two = compose([text_layer("test", SEPARATE), set_layer("evaluate={panel: kuhn_poker}")])
    with pytest.raises(ConfigError, match=r"evaluate.panel: who plays kuhn_poker\? This run trains one and two"):
        check_panel(two)
    both = compose([text_layer("test", SEPARATE), set_layer("evaluate={panel: negotiation}")])
    check_panel(both)


def test_panel_members_of_runs_are_fixed_to_a_version(tmp_path: Path) -> None:
    """A run's newest weights are fixed when the run starts; the panel's file is not needed later."""
    other = make_checkpointed_run(tmp_path / "other", SHARED, _3="nano-3")
    panel = tmp_path / "mine.yaml"
    panel.write_text(f"panel: mine\ngame: {{name: kuhn_poker}}\nmembers: [nash, {other}, '{other}@3:shared']\n")
    fixed = with_fixed_panel(compose([text_layer("test", SHARED), set_layer(f"evaluate.panel={panel}")]))
    assert fixed.evaluate and fixed.evaluate.panel
    assert fixed.evaluate.panel.members == ["nash", f"{other}@3", f"{other}@3:shared"]
    check_panel(fixed)
    panel.unlink()
    assert compose([text_layer("kept", to_yaml(fixed))]) == fixed


# -- commands ----------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_run_reports_its_panel_and_resumes_with_another(tmp_path: Path) -> None:
    run = tmp_path / "run"
    league = "league={opponents: [{play: self}, {play: fixed, policy: nash}]}"
    settings = ["--set", league, "--set", "evaluate={panel: kuhn_poker, deals: 2, every: 1}"]
    command = [part for part in COMMAND if part != "--json"]
    result = arena(*command, *settings, "--out", run)
    assert result.code == 0, result.err
    panel, _, rest = result.out.partition("Iteration 1 against 2")
    assert "against the panel kuhn_poker" in panel and rest and "before" in panel and "iteration 2" in panel
    assert "nash*, first" in panel and "random†, second" in panel and "* met in training" in panel
    assert "panel by iteration: 0: " in panel
    assert any(line.startswith("it 1 ") and "  panel " in line for line in result.out.splitlines())
    assert "against the panel kuhn_poker" in arena("show", run).out
    line = get_refusal("resume", run, "--iterations", "3", "--set", "evaluate.panel=kuhn_pokr")
    assert "unknown panel 'kuhn_pokr'" in line
    members = "evaluate.panel.members=[random, negotiatr]"
    assert "unknown contender 'negotiatr'" in get_refusal("resume", run, "--iterations", "3", "--set", members)
    result = arena("resume", run, "--iterations", "3", "--set", "evaluate.every=null", "--json")
    assert result.code == 0, result.err
    summary = parse_json_lines(result.out)[-1]["panel"]
    assert [point["iteration"] for point in summary["curve"]] == [0, 1, 2, 3] and summary["met"] == ["nash"]
    assert summary["after"]["iteration"] == 3 and summary["before"]["iteration"] == 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--panel", "kuhn_poker", "--game", "nim"], "leave --game out"),
        (["--panel", "kuhn_poker", "--matches", "9", "--against", "nash"], "leave --against, --matches out"),
        (["--panel", "kuhn_pokr"], "did you mean 'kuhn_poker'?"),
        (["--deals", "3", "--game", "nim"], "--deals is for --panel"),
        ([], "name a --game"),
        (["--panel", "kuhn_poker", "--before"], "random has no first weights"),
        (["--panel", "negotiation", "--role", "nobody"], "nobody"),
    ],
)
def test_conflicting_arguments_are_refused(arguments: list[str], message: str) -> None:
    assert message in get_refusal("eval", "random", *arguments)


def test_panels_are_listed_and_shown() -> None:
    listed = arena("list", "panels", "--json")
    assert {row["panel"] for row in json.loads(listed.out)} >= {"kuhn_poker", "negotiation", "tic_tac_toe"}
    shown = arena("show", "panel", "negotiation")
    assert shown.code == 0 and "conceder" in shown.out and "32 deals (seed 0)" in shown.out
    assert json.loads(arena("show", "panel", "kuhn_poker", "--json").out)["members"][0] == "random"
    assert "did you mean 'kuhn_poker'?" in get_refusal("show", "panel", "kuhn_pokr")
