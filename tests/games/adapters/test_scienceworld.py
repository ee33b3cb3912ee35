"""ScienceWorld: gold paths, splits, order of listings, the pool of Java processes, and crashed processes."""

import os
import re
import shutil
import signal
import time
from pathlib import Path
from typing import Any

import pytest

import games
from arena.play.match import Limits
from games.adapters import scienceworld_worlds as worlds
from games.adapters.child import ChildError
from games.adapters.pool import Pool
from games.adapters.scienceworld import ScienceWorld, clean_text
from games.conformance.kit import check
from games.contracts import View
from tests.factories.faults import FAULTS, FaultTarget, inject_faults

pytest.importorskip("scienceworld")
pytestmark = [pytest.mark.slow, pytest.mark.skipif(shutil.which("java") is None, reason="needs Java")]
PLANT = "scienceworld:find-plant"
PLANT_PROCESS = FaultTarget(
    game=PLANT, options={"listed": False}, acts=["look around"], pid=lambda _: worlds.POOL.children[0].pid,
    timeouts=[(worlds, "SECONDS")],
)  # fmt: skip


def start_game(name: str = PLANT, seed: int = 0, **options: Any) -> ScienceWorld:
    game = games.make(name, **options)
    assert isinstance(game, ScienceWorld)
    game.reset(seed=seed)
    return game


def play_with(game: ScienceWorld, player: str) -> ScienceWorld:
    act = game.players[player](game, 0)
    while not game.ended:
        game.step(act(View.of(game, "agent", game.turns)))
    return game


def test_tasks_pass_the_conformance_kit() -> None:
    findings = check(lambda: games.make(PLANT, max_turns=6), seeds=1, acts=30)
    assert {finding.name: finding.ok for finding in findings if not finding.ok} == {"secrets": None}, findings


def test_gold_path_reaches_and_pays_the_full_score() -> None:
    game = play_with(start_game(pays=["score", "win"]), "expert")
    report = game.report()
    assert report["ended"] == "won" and report["success"] is True and report["score"] == 100 and not report["faults"]
    assert game._totals["agent"] == {"score": pytest.approx((100 - game.start) / 100), "win": 1.0}
    assert not play_with(start_game(max_turns=3), "noop").report()["success"]


def test_gold_path_omits_acts_that_scienceworld_cannot_parse() -> None:
    path = worlds.find_gold_path("test-conductivity", 850, "easy")
    world = worlds.World("test-conductivity", 850, "easy", False)
    assert [world.step(act) for act in path][-1]["score"] == 100 and world.acts == path


def test_wrong_focus_loses_and_takes_rewards_back() -> None:
    game = start_game()
    path = worlds.find_gold_path(game.task, game.variation, game.env.simplify)
    for act in path[: next(n for n, act in enumerate(path) if act.startswith("focus on"))]:
        game.step(act)
    assert game.payoffs()["agent"] > 0
    game.step("focus on air")
    assert game.ended == "lost" and game.report()["score"] == -100 and game.payoffs()["agent"] == pytest.approx(0)


def test_splits_share_no_variation_and_seed_decides_it() -> None:
    variations = worlds.load_splits("find-plant")
    assert {split: len(numbers) for split, numbers in variations.items()} == {"train": 150, "dev": 75, "test": 75}
    assert not ({*variations["train"]} & {*variations["dev"]}) and not ({*variations["dev"]} & {*variations["test"]})
    assert start_game(seed=3, split="test").variation in variations["test"]
    assert start_game(seed=3).variation == start_game(seed=3).variation
    assert len({start_game("scienceworld:all", seed, listed=False).task for seed in range(4)}) > 1


def test_reloaded_world_lists_things_in_the_same_order() -> None:
    first = worlds.World("boil", 3, "easy", True).load()
    for _ in range(3):
        worlds.World("melt", 1, "easy", False).load()
        assert worlds.World("boil", 3, "easy", True).load() == first


def test_unknown_act_changes_nothing_and_unlisted_act_may_be_allowed() -> None:
    game = start_game("scienceworld:boil")
    before = game.env.copy().load()
    game.step("sing a song")
    assert game.infos["agent"]["valid"] is False and game.env.acts == () and game.env.copy().load() == before
    game.step("  LOOK   around ")
    assert game.infos["agent"]["valid"] is True and game.env.acts == ("look around",)
    unlisted_game = start_game("scienceworld:boil", listed=False)
    assert unlisted_game.legal("agent") is None
    unlisted_game.step("open cupboard")
    assert unlisted_game.turns <= 1 and not unlisted_game.ended


def test_clone_is_independent_and_needs_no_process_until_played() -> None:
    game = start_game()
    game.step("look around")
    count = len(worlds.POOL.children)
    twins = [game.clone() for _ in range(5)]
    assert len(worlds.POOL.children) == count
    act = (game.legal("agent") or [""])[0]
    for either in (game, twins[0]):
        either.step(act)
    assert game.public() == twins[0].public() and game.private("agent") == twins[0].private("agent")
    assert twins[1].turns == 1


def test_more_worlds_than_processes_share_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worlds, "POOL", Pool(worlds._start_process, 2))
    matches = [start_game(seed=seed, listed=False) for seed in range(4)]
    reference = start_game(seed=0, listed=False)
    for _ in range(2):
        for game in [*matches, reference]:
            game.step("inventory")
        assert len(worlds.POOL.children) == 2
    reference.step("look around")
    matches[0].step("look around")
    assert matches[0].private("agent") == reference.private("agent") and matches[0].messages(
        "agent"
    ) == reference.messages("agent")


def test_killed_process_fails_the_match_and_leaves_no_children(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worlds, "POOL", Pool(worlds._start_process, 8))
    game = start_game(listed=False)
    (process,) = worlds.POOL.children
    java_pids = list_child_pids(process.pid)
    assert len(java_pids) == 1
    os.kill(java_pids[0], signal.SIGKILL)
    with pytest.raises(ChildError):
        game.step("look around")
    assert not process.is_alive
    assert not start_game(listed=False).ended and process not in worlds.POOL.children
    (second_process,) = worlds.POOL.children
    java_pid = list_child_pids(second_process.pid)[0]
    second_process.close()
    with pytest.raises(OSError):
        os.kill(second_process.pid, 0)
    stat = Path(f"/proc/{java_pid}/stat")
    for _ in range(200):  # may take a while on a busy machine
        if not stat.exists() or stat.read_text().rpartition(")")[2].split()[0] == "Z":
            break
        time.sleep(0.1)
    else:
        raise AssertionError("the Java process still runs")


def list_child_pids(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


@pytest.mark.thorough
@pytest.mark.parametrize("fault", sorted(FAULTS))
def test_match_with_a_failing_process_is_retried(fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worlds, "POOL", Pool(worlds._start_process, 8))
    reasons = inject_faults(PLANT_PROCESS, fault)
    messages = {"kill": "has ended|Broken pipe", "hang": "no answer in time", "crash": "Py4J"}
    assert all(re.search(messages[fault], reason) for reason in reasons), reasons


def test_process_that_exceeds_the_turn_limit_is_ended_and_not_reused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worlds, "POOL", Pool(worlds._start_process, 8))
    start_game(listed=False).close()
    reasons = inject_faults(PLANT_PROCESS, "hang", Limits(turn_seconds=20.0))
    assert len(reasons) == 1 and "turn time limit" in min(reasons)


def test_hanging_process_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worlds, "POOL", Pool(worlds._start_process, 8))
    game = start_game(listed=False)
    (process,) = worlds.POOL.children
    os.kill(list_child_pids(process.pid)[0], signal.SIGSTOP)
    monkeypatch.setattr(worlds, "SECONDS", 1.0)
    with pytest.raises(ChildError, match="no answer in time"):
        game.step("look around")
    assert not process.is_alive and worlds.POOL.children == []


def test_texts_have_no_empty_lines_and_no_control_characters() -> None:
    assert clean_text("In it, you see: \n\tthe agent\x07\n\n\tair") == "In it, you see:\nthe agent\nair"


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("scienceworld:boill", {}, "did you mean 'boil'?"),
        (PLANT, {"simplify": "hard"}, "simplify must be"),
        (PLANT, {"split": "val"}, "split must be"),
        (PLANT, {"pays": ["wins"]}, "pays must be"),
        (PLANT, {"task": 1}, "has no option 'task'"),
    ],
)
def test_unknown_task_or_option_is_refused_in_one_line(name: str, options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError) as refused:
        games.make(name, **options)
    assert message in str(refused.value) and "\n" not in str(refused.value)


def test_missing_java_is_reported_with_the_install_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda name: None)
    assert "apt-get install default-jre-headless" in (games.find_problem(PLANT) or "")
