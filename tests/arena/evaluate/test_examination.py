"""A run that is judged by a panel while it learns: the same run as without, and judged once of everything."""

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
from tests.factories.labs import RecordingWatcher, make_experiment
from tests.factories.traces import RunTrace, assert_same, parse_json_lines, read_trace

TALKS = "{panel: talks, game: {name: negotiation}, members: [random, fair_split], deals: 3}"
ASKED = f"evaluate={{panel: {TALKS}, every: 2}}"
RUN = ("iterations=3", "checkpoint.keep=9")
COMMAND = ["run", "selfplay", "--recipe", "kuhn_poker-nano", "--json"]
COMMAND += [
    part
    for setting in ("iterations=2", "play.matches=8", "policies.shared.imitate.matches=16")
    for part in ("--set", setting)
]


def lab_of(folder: Path, *assignments: str, watcher: RecordingWatcher | None = None) -> Lab:
    asked = make_experiment(*RUN, *assignments)
    run = RunFolder.open(folder) if folder.exists() else None
    if run is None:
        run = RunFolder.create(folder, to_yaml(asked), {})
    return wait(Lab.open(run, asked, watcher or RecordingWatcher(), make_examination(run, asked)))


def finished(folder: Path, *assignments: str, watcher: RecordingWatcher | None = None) -> Path:
    wait(lab_of(folder, *assignments, watcher=watcher).run())
    return folder


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return finished(tmp_path_factory.mktemp("plain") / "run")


@pytest.fixture(scope="module")
def judged(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, RecordingWatcher]:
    folder, watcher = tmp_path_factory.mktemp("judged") / "run", RecordingWatcher()
    return finished(folder, ASKED, watcher=watcher), watcher


def without_panel(found: RunTrace) -> RunTrace:
    return RunTrace(
        found.matches,
        found.credit,
        [{k: v for k, v in row.items() if k != "panel"} for row in found.metrics],
        found.files,
    )


def lines(folder: Path) -> list[dict[str, Any]]:
    return [line | {"seconds": 0} for line in parse_json_lines((folder / PANEL).read_text())]


@pytest.mark.slow
def test_being_judged_changes_nothing(plain: Path, judged: tuple[Path, RecordingWatcher]) -> None:
    assert_same(without_panel(read_trace(judged[0])), read_trace(plain))
    assert not (plain / PANEL).exists()


def test_the_engine_is_as_it_was_afterwards(tmp_path: Path) -> None:
    lab = lab_of(tmp_path / "run", ASKED, "policies.shared.imitate=null")
    wait(lab.examine(0))
    served = lab.engine._served["shared"]  # type: ignore[attr-defined]
    assert (served.version, len(served.prefixes._caches), len(served.caches._caches)) == (0, 0, 0)
    assert lab.policies["shared"].version == 0 and read_evaluations(tmp_path / "run")


def test_a_run_is_judged_before_it_learns_now_and_then_and_at_its_end(judged: tuple[Path, RecordingWatcher]) -> None:
    folder, watcher = judged
    found = read_evaluations(folder)
    assert [e.iteration for e in found] == [0, 2, 3] and len({e.key for e in found}) == 1
    assert [(c.member, c.seat) for c in found[0].cells] == [
        (member, seat) for member in ("random", "fair_split") for seat in ("opener", "responder")
    ]
    rows = RunReader(folder).metrics()
    told = {"payoff", "valid", "deal"}
    assert [set(row.get("panel", {})) for row in rows] == [set(), told, told]
    values = [paid for cell in found[2].cells for paid in cell.payoff]
    assert rows[2]["panel"]["payoff"] == pytest.approx(sum(v or 0 for v in values) / 12)
    names = [phase for phase in watcher.phases if "panel" in phase[1]]
    assert names == [(0, "panel talks: before it learns"), (2, "panel talks"), (3, "panel talks")]


def test_its_deals_are_none_of_training_and_the_same_each_time(judged: tuple[Path, RecordingWatcher]) -> None:
    trained = {row["seed"] for row in RunReader(judged[0]).matches()}
    assert trained and not trained & set(draw_deal_seeds(0, 3))


def test_it_is_what_arena_eval_finds(judged: tuple[Path, RecordingWatcher], tmp_path: Path) -> None:
    panel = tmp_path / "talks.yaml"
    panel.write_text("panel: talks\ngame: {name: negotiation}\nmembers: [random, fair_split]\ndeals: 3\n")
    told = arena("eval", judged[0], "--panel", panel, "--before", "--json", "--out", tmp_path / "out.json")
    assert told.code == 0, told.err
    data = json.loads(told.out)
    assert json.loads((tmp_path / "out.json").read_text()) == data
    first, *_, last = read_evaluations(judged[0])
    for kept, found in ((first, data["before"]), (last, data["after"])):
        assert found["key"] == kept.key
        assert [c["payoff"] for c in found["cells"]] == [c.payoff for c in kept.cells]
    told = arena("eval", judged[0], "--panel", panel)
    assert "fair_split, opener" in told.out and "deal rate  valid per match" in told.out


@pytest.mark.slow_after(1)
@pytest.mark.parametrize("done", [1, 2])
def test_a_run_that_goes_on_is_judged_once_of_everything(
    judged: tuple[Path, RecordingWatcher], tmp_path: Path, done: int
) -> None:
    """Whatever comes after the commit is gone, and done again."""
    folder = tmp_path / "run"
    shutil.copytree(judged[0], folder)
    for later in range(done + 1, 4):
        shutil.rmtree(folder / "checkpoints" / f"{later:04d}")
    watcher = RecordingWatcher()
    wait(lab_of(folder, ASKED, watcher=watcher).run())
    assert lines(folder) == lines(judged[0])
    assert_same(read_trace(folder), read_trace(judged[0]))
    assert sum("panel" in name for _, name in watcher.phases) == len([k for k in (2, 3) if k > done])


@pytest.mark.slow
@pytest.mark.parametrize("moment", [(0, "panel talks: before it learns"), (2, "panel talks"), (2, "commit")])
def test_a_run_interrupted_around_an_evaluation_ends_as_the_unbroken(
    judged: tuple[Path, RecordingWatcher], tmp_path: Path, moment: tuple[int, str]
) -> None:
    folder = tmp_path / "run"
    with pytest.raises(KeyboardInterrupt):
        finished(folder, ASKED, watcher=RecordingWatcher(lambda what, value: what == "phase" and value == moment))
    finished(folder, ASKED)
    assert lines(folder) == lines(judged[0])
    assert_same(read_trace(folder), read_trace(judged[0]))


class Counting(RecordingWatcher):
    """Follows the progress of phases; stops in the middle of an evaluation."""

    def __init__(self, stop_at: int = 0) -> None:
        super().__init__()
        self.stop_at, self.told = stop_at, list[tuple[int, int]]()

    def progress(self, done: int, total: int) -> None:
        if self.phases and "panel" in self.phases[-1][1]:
            self.told.append((done, total))
            if self.phases[-1][0] == 2 and done == self.stop_at:
                raise KeyboardInterrupt


@pytest.mark.slow
def test_ctrl_c_in_the_middle_of_an_evaluation(judged: tuple[Path, RecordingWatcher], tmp_path: Path) -> None:
    folder, watcher = tmp_path / "run", Counting(stop_at=5)
    with pytest.raises(KeyboardInterrupt):
        finished(folder, ASKED, watcher=watcher)
    assert watcher.told[:12] == [(n, 12) for n in range(1, 13)], "every match is told"
    assert [line["iteration"] for line in lines(folder)] == [0]
    finished(folder, ASKED)
    assert lines(folder) == lines(judged[0])


@pytest.mark.slow
def test_a_run_that_goes_on_with_a_panel_is_judged_from_there(plain: Path, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    shutil.copytree(plain, folder)
    finished(folder, ASKED)
    assert [line["iteration"] for line in lines(folder)] == [3]
    finished(folder, ASKED)
    assert [line["iteration"] for line in lines(folder)] == [3], "once"
    finished(folder, ASKED, "iterations=5")
    assert [line["iteration"] for line in lines(folder)] == [3, 4, 5]
    finished(folder, ASKED, "iterations=5", "evaluate.deals=2")
    assert [line["deals"] for line in lines(folder)] == [3, 3, 3, 2], "another panel has a beginning of its own"


@pytest.mark.slow
def test_a_panel_that_cannot_be_played_does_not_end_the_run(
    plain: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def down(*args: Any) -> None:
        raise PlayError("12 of 12 matches failed")

    monkeypatch.setattr(PanelPlan, "play", down)
    watcher = RecordingWatcher()
    folder = finished(tmp_path / "run", ASKED, watcher=watcher)
    assert_same(read_trace(folder), read_trace(plain))
    assert (0, "iteration 2 was not evaluated against the panel talks: 12 of 12 matches failed") in watcher.phases
    assert not any("panel" in row for row in RunReader(folder).metrics())


@pytest.mark.parametrize(
    ("damage", "says"),
    [
        (lambda text: "garbage\n" + text, "panel.jsonl is not as it was written"),
        (lambda text: text.replace("fair_split", "fair_splat"), "panel.jsonl is not as it was written"),
        (lambda text: "", "panel.jsonl is not as it was written"),
    ],
)
def test_an_edited_file_is_seen_as_edited_metrics_are(
    judged: tuple[Path, RecordingWatcher], tmp_path: Path, damage: Any, says: str
) -> None:
    folder = tmp_path / "run"
    shutil.copytree(judged[0], folder)
    (folder / PANEL).write_text(damage((folder / PANEL).read_text()))
    assert says in get_refusal("show", folder)


@pytest.mark.parametrize("line", ["garbage", "{}", '{"iteration": 1}', '{"iteration": 2, "cells": [[[]]]}'])
def test_a_line_that_is_no_evaluation_is_told(judged: tuple[Path, RecordingWatcher], tmp_path: Path, line: str) -> None:
    folder = tmp_path / "run"
    shutil.copytree(judged[0], folder)
    with (folder / PANEL).open("a") as file:
        file.write(line + "\n" + line + "\n")
    assert "panel.jsonl:4: this line is" in get_refusal("show", folder)


# -- before anything is played -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("asked", "says"),
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
def test_what_cannot_judge_is_refused_before_the_run(tmp_path: Path, asked: str, says: str) -> None:
    out = tmp_path / "run"
    line = get_refusal(*COMMAND, "--set", f"evaluate={asked}", "--out", out)
    assert says in line and not out.exists(), line


def test_a_server_that_is_down_is_told_before_the_run(tmp_path: Path) -> None:
    out = tmp_path / "run"
    settings = ["evaluate={panel: {panel: p, game: {name: nim}, members: ['endpoint:m']}}"]
    settings += ["endpoint.url=http://127.0.0.1:9/v1"]
    line = get_refusal(*COMMAND, *(part for setting in settings for part in ("--set", setting)), "--out", out)
    assert "127.0.0.1:9" in line and not out.exists()


def test_who_plays_a_game_of_nobody_has_to_be_known(tmp_path: Path) -> None:
    two = compose([text_layer("test", SEPARATE), set_layer("evaluate={panel: kuhn_poker}")])
    with pytest.raises(ConfigError, match=r"evaluate.panel: who plays kuhn_poker\? This run trains one and two"):
        check_panel(two)
    both = compose([text_layer("test", SEPARATE), set_layer("evaluate={panel: negotiation}")])
    check_panel(both)


def test_a_member_that_may_still_learn_is_held_fast(tmp_path: Path) -> None:
    """A run's newest weights are those of now, wherever the command goes on; its own file need not be there later."""
    other = make_checkpointed_run(tmp_path / "other", SHARED, _3="nano-3")
    panel = tmp_path / "mine.yaml"
    panel.write_text(f"panel: mine\ngame: {{name: kuhn_poker}}\nmembers: [nash, {other}, '{other}@3:shared']\n")
    asked = with_fixed_panel(compose([text_layer("test", SHARED), set_layer(f"evaluate.panel={panel}")]))
    assert asked.evaluate and asked.evaluate.panel
    assert asked.evaluate.panel.members == ["nash", f"{other}@3", f"{other}@3:shared"]
    check_panel(asked)
    panel.unlink()
    assert compose([text_layer("kept", to_yaml(asked))]) == asked


# -- as a user sees it -------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_run_ends_with_its_panel_first_and_goes_on_with_another(tmp_path: Path) -> None:
    run = tmp_path / "run"
    league = "league={opponents: [{play: self}, {play: fixed, policy: nash}]}"
    settings = ["--set", league, "--set", "evaluate={panel: kuhn_poker, deals: 2, every: 1}"]
    command = [part for part in COMMAND if part != "--json"]
    told = arena(*command, *settings, "--out", run)
    assert told.code == 0, told.err
    panel, _, rest = told.out.partition("Iteration 1 against 2")
    assert "against the panel kuhn_poker" in panel and rest and "before" in panel and "iteration 2" in panel
    assert "nash*, first" in panel and "random†, second" in panel and "* met in training" in panel
    assert "panel by iteration: 0: " in panel
    assert any(line.startswith("it 1 ") and "  panel " in line for line in told.out.splitlines())
    assert "against the panel kuhn_poker" in arena("show", run).out
    line = get_refusal("resume", run, "--iterations", "3", "--set", "evaluate.panel=kuhn_pokr")
    assert "unknown panel 'kuhn_pokr'" in line
    members = "evaluate.panel.members=[random, negotiatr]"
    assert "unknown contender 'negotiatr'" in get_refusal("resume", run, "--iterations", "3", "--set", members)
    told = arena("resume", run, "--iterations", "3", "--set", "evaluate.every=null", "--json")
    assert told.code == 0, told.err
    summary = parse_json_lines(told.out)[-1]["panel"]
    assert [point["iteration"] for point in summary["curve"]] == [0, 1, 2, 3] and summary["met"] == ["nash"]
    assert summary["after"]["iteration"] == 3 and summary["before"]["iteration"] == 0


@pytest.mark.parametrize(
    ("arguments", "says"),
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
def test_a_command_that_cannot_be_meant_is_refused(arguments: list[str], says: str) -> None:
    assert says in get_refusal("eval", "random", *arguments)


def test_panels_are_listed_and_shown() -> None:
    listed = arena("list", "panels", "--json")
    assert {row["panel"] for row in json.loads(listed.out)} >= {"kuhn_poker", "negotiation", "tic_tac_toe"}
    shown = arena("show", "panel", "negotiation")
    assert shown.code == 0 and "conceder" in shown.out and "32 deals (seed 0)" in shown.out
    assert json.loads(arena("show", "panel", "kuhn_poker", "--json").out)["members"][0] == "random"
    assert "did you mean 'kuhn_poker'?" in get_refusal("show", "panel", "kuhn_pokr")
