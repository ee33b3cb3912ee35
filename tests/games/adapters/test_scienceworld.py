"""ScienceWorld: gold paths, splits, the order of listings, the pool of Java machines, and machines that die."""

import os
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
from tests.factories.faults import FAULTS, inject_faults

pytest.importorskip("scienceworld")
pytestmark = [pytest.mark.slow, pytest.mark.skipif(shutil.which("java") is None, reason="needs Java")]
PLANT = "scienceworld:find-plant"


def started(name: str = PLANT, seed: int = 0, **options: Any) -> ScienceWorld:
    game = games.make(name, **options)
    assert isinstance(game, ScienceWorld)
    game.reset(seed=seed)
    return game


def finished(game: ScienceWorld, player: str) -> ScienceWorld:
    act = game.players[player](game, 0)
    while not game.ended:
        game.step(act(View.of(game, "agent", game.turns)))
    return game


def test_tasks_keep_our_promises() -> None:
    findings = check(lambda: games.make(PLANT, max_turns=6), seeds=1, acts=30)
    assert {finding.name: finding.ok for finding in findings if not finding.ok} == {"secrets": None}, findings


def test_the_gold_path_reaches_the_full_score_and_is_paid() -> None:
    game = finished(started(pays=["score", "win"]), "expert")
    report = game.report()
    assert report["ended"] == "won" and report["success"] is True and report["score"] == 100 and not report["faults"]
    assert game._totals["agent"] == {"score": pytest.approx((100 - game.start) / 100), "win": 1.0}
    assert not finished(started(max_turns=3), "noop").report()["success"]


def test_a_gold_path_leaves_out_what_scienceworld_does_not_understand() -> None:
    path = worlds.find_gold_path("test-conductivity", 850, "easy")
    world = worlds.World("test-conductivity", 850, "easy", False)
    assert [world.step(act) for act in path][-1]["score"] == 100 and world.acts == path


def test_a_wrong_focus_fails_and_takes_back_what_was_paid() -> None:
    game = started()
    path = worlds.find_gold_path(game.task, game.variation, game.env.simplify)
    for act in path[: next(n for n, act in enumerate(path) if act.startswith("focus on"))]:
        game.step(act)
    assert game.payoffs()["agent"] > 0
    game.step("focus on air")
    assert game.ended == "lost" and game.report()["score"] == -100 and game.payoffs()["agent"] == pytest.approx(0)


def test_splits_share_no_variation_and_the_seed_decides() -> None:
    known = worlds.load_splits("find-plant")
    assert {split: len(found) for split, found in known.items()} == {"train": 150, "dev": 75, "test": 75}
    assert not ({*known["train"]} & {*known["dev"]}) and not ({*known["dev"]} & {*known["test"]})
    assert started(seed=3, split="test").variation in known["test"]
    assert started(seed=3).variation == started(seed=3).variation
    assert len({started("scienceworld:all", seed, listed=False).task for seed in range(4)}) > 1


def test_a_world_that_is_loaded_again_lists_things_in_the_same_order() -> None:
    first = worlds.World("boil", 3, "easy", True).load()
    for _ in range(3):
        worlds.World("melt", 1, "easy", False).load()
        assert worlds.World("boil", 3, "easy", True).load() == first


def test_what_is_not_understood_changes_nothing_and_what_is_not_listed_may_be() -> None:
    game = started("scienceworld:boil")
    before = game.env.copy().load()
    game.step("sing a song")
    assert game.infos["agent"]["valid"] is False and game.env.acts == () and game.env.copy().load() == before
    game.step("  LOOK   around ")
    assert game.infos["agent"]["valid"] is True and game.env.acts == ("look around",)
    free = started("scienceworld:boil", listed=False)
    assert free.legal("agent") is None
    free.step("open cupboard")
    assert free.turns <= 1 and not free.ended


def test_a_clone_needs_no_machine_until_it_is_played_and_goes_on_alone() -> None:
    game = started()
    game.step("look around")
    count = len(worlds.POOL.children)
    twins = [game.clone() for _ in range(5)]
    assert len(worlds.POOL.children) == count
    act = (game.legal("agent") or [""])[0]
    for each in (game, twins[0]):
        each.step(act)
    assert game.public() == twins[0].public() and game.private("agent") == twins[0].private("agent")
    assert twins[1].turns == 1


def test_more_worlds_than_machines_take_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worlds, "POOL", Pool(worlds._start_process, 2))
    crowd = [started(seed=seed, listed=False) for seed in range(4)]
    alone = started(seed=0, listed=False)
    for _ in range(2):
        for game in [*crowd, alone]:
            game.step("inventory")
        assert len(worlds.POOL.children) == 2
    alone.step("look around")
    crowd[0].step("look around")
    assert crowd[0].private("agent") == alone.private("agent") and crowd[0].messages("agent") == alone.messages("agent")


def test_a_machine_that_is_killed_fails_the_match_and_leaves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worlds, "POOL", Pool(worlds._start_process, 8))
    game = started(listed=False)
    (machine,) = worlds.POOL.children
    javas = _children(machine.pid)
    assert len(javas) == 1
    os.kill(javas[0], signal.SIGKILL)
    with pytest.raises(ChildError):
        game.step("look around")
    assert not machine.is_alive
    assert not started(listed=False).ended and machine not in worlds.POOL.children
    (other,) = worlds.POOL.children
    java = _children(other.pid)[0]
    other.close()
    with pytest.raises(OSError):
        os.kill(other.pid, 0)
    stat = Path(f"/proc/{java}/stat")
    for _ in range(200):  # a busy machine takes a while to end it
        if not stat.exists() or stat.read_text().rpartition(")")[2].split()[0] == "Z":
            break
        time.sleep(0.1)
    else:
        raise AssertionError("the Java machine goes on")


def _children(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


@pytest.mark.thorough
@pytest.mark.parametrize("fault", sorted(FAULTS))
def test_a_match_whose_machine_fails_is_played_again(fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worlds, "POOL", Pool(worlds._start_process, 8))
    options = {"listed": False, "max_turns": 3}
    reasons = inject_faults(
        PLANT, options, ["look around"], fault, lambda _: worlds.POOL.children[0].pid, (worlds, "SECONDS")
    )
    told = {"kill": "has ended", "hang": "no answer in time", "crash": "Py4J"}
    assert len(reasons) == 1 and told[fault] in min(reasons)
    assert len(worlds.POOL.children) == 1


def test_a_machine_that_exceeds_a_turns_limit_is_ended_and_not_lent_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worlds, "POOL", Pool(worlds._start_process, 8))
    started(listed=False).close()
    reasons = inject_faults(
        PLANT, {"listed": False, "max_turns": 3}, ["look around"], "hang", lambda _: worlds.POOL.children[0].pid,
        (worlds, "SECONDS"), Limits(turn_seconds=20.0),
    )  # fmt: skip
    assert len(reasons) == 1 and "turn time limit" in min(reasons)


def test_a_machine_that_hangs_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worlds, "POOL", Pool(worlds._start_process, 8))
    game = started(listed=False)
    (machine,) = worlds.POOL.children
    os.kill(_children(machine.pid)[0], signal.SIGSTOP)
    monkeypatch.setattr(worlds, "SECONDS", 1.0)
    with pytest.raises(ChildError, match="no answer in time"):
        game.step("look around")
    assert not machine.is_alive and worlds.POOL.children == []


def test_texts_have_no_empty_lines_and_no_control_characters() -> None:
    assert clean_text("In it, you see: \n\tthe agent\x07\n\n\tair") == "In it, you see:\nthe agent\nair"


@pytest.mark.parametrize(
    ("name", "options", "told"),
    [
        ("scienceworld:boill", {}, "did you mean 'boil'?"),
        (PLANT, {"simplify": "hard"}, "simplify must be"),
        (PLANT, {"split": "val"}, "split must be"),
        (PLANT, {"pays": ["wins"]}, "pays must be"),
        (PLANT, {"task": 1}, "has no option 'task'"),
    ],
)
def test_what_is_no_task_is_told_in_a_line(name: str, options: dict[str, Any], told: str) -> None:
    with pytest.raises(ValueError) as refused:
        games.make(name, **options)
    assert told in str(refused.value) and "\n" not in str(refused.value)


def test_without_java_a_line_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda name: None)
    assert "apt-get install default-jre-headless" in (games.find_problem(PLANT) or "")
