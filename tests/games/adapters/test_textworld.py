"""TextWorld: generated games by seed, the expert, rewards, splits, the cache of compiled games, and hostile acts."""

import os
import random
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import psutil
import pytest

import games
from arena.play.match import Limits
from games.adapters import textworld_games
from games.adapters.textworld import TextWorld, clean_feedback, is_held_out
from games.adapters.textworld_games import Kind, build, compile_game
from games.conformance.kit import check
from games.contracts import View
from tests.factories.faults import FAULTS, TIMES, ResourceCheck, play_attempts

pytest.importorskip("textworld")
SMALL = "textworld:coin_collector(level=2)"


@pytest.fixture(scope="module", autouse=True)
def cache(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Compiled games of these tests, in a folder of their own."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ARENA_HOME", str(tmp_path_factory.mktemp("home")))
        textworld_games._folder.cache_clear()
        yield textworld_games._folder()
    textworld_games._folder.cache_clear()


def started(name: str = SMALL, seed: int = 0, **options: Any) -> TextWorld:
    game = games.make(name, **{"games": 1, **options})
    assert isinstance(game, TextWorld)
    game.reset(seed=seed)
    return game


def finished(game: TextWorld, player: str, seed: int = 0) -> TextWorld:
    act = game.players[player](game, seed)
    while not game.ended:
        game.step(act(View.of(game, "agent", game.turns)))
    return game


def test_games_of_textworld_keep_our_promises() -> None:
    findings = check(lambda: games.make(SMALL, games=2, max_turns=12), seeds=2, acts=60)
    assert {finding.name: finding.ok for finding in findings if not finding.ok} == {"secrets": None}, findings


def test_the_expert_wins_and_is_paid_what_the_parts_say() -> None:
    game = finished(started("textworld:w2-o3-q4", pays=["win", "score", "dense"]), "expert")
    report = game.report()
    assert report["ended"] == "won" and report["success"] is True and report["turns"] == 4 and not report["faults"]
    assert report["score"] == report["dense"] == 1 and game.payoffs() == {"agent": 3.0}
    assert game._totals["agent"] == {"win": 1.0, "score": 1.0, "dense": pytest.approx(1.0)}
    assert finished(started("textworld:w2-o3-q4"), "expert").payoffs() == {"agent": 1.0}, "by default the win alone"


def test_a_step_away_from_the_goal_costs_and_a_step_back_pays() -> None:
    game = started("textworld:coin_collector(level=3)", pays=["dense"])
    forth = game.expert_act()
    back = {"north": "south", "south": "north", "east": "west", "west": "east"}[forth.removeprefix("go ")]
    paid = []
    for act in (forth, f"go {back}", "look", forth):
        game.step(act)
        paid.append(game.rewards["agent"])
    assert paid == [pytest.approx(share / 3) for share in (1, -1, 0, 1)]


def test_a_careless_player_wins_sometimes_and_its_seed_decides() -> None:
    played = [finished(started("textworld:coin_collector(level=3)", max_turns=6), "careless", n) for n in range(20)]
    assert 2 < sum(game.won for game in played) < 18
    again = finished(started("textworld:coin_collector(level=3)", max_turns=6), "careless", 3)
    assert again.render() == played[3].render()


def test_doing_nothing_ends_by_turns_and_pays_nothing() -> None:
    game = finished(started(max_turns=5), "noop")
    assert game.ended == "turns" and game.turns == 5 and game.payoffs() == {"agent": 0.0}
    assert game.public()["steps_left"] == 0 and game.env is None, "the interpreter is released"
    assert started().public()["steps_left"] == 50, "by default"


def test_the_seed_decides_and_the_kept_file_is_the_one_that_is_made(cache: Path) -> None:
    told = {seed: finished(started("textworld:w2-o3-q4", seed), "expert").render() for seed in (0, 1)}
    assert told[0] == told[1], "one game"
    asked = Kind("coin_collector", (("level", 2),)).to_request(0, False)
    kept = compile_game(Kind("coin_collector", (("level", 2),)), 0, False)
    assert kept.parent == cache and build(asked)[1] == kept.read_bytes()
    made = kept.stat().st_ino
    assert compile_game(Kind("coin_collector", (("level", 2),)), 0, False) == kept and kept.stat().st_ino == made, (
        "once"
    )


@pytest.mark.slow
def test_other_seeds_give_other_games_and_the_splits_share_none() -> None:
    by_split: dict[str, set[object]] = {}
    for split in ("train", "test"):
        played = [started("textworld:w2-o3-q4", seed, games=10, split=split) for seed in range(6)]
        by_split[split] = {game.number for game in played}
        assert len({game.private("agent")["room"] for game in played}) == len(by_split[split]) > 1
        assert {is_held_out(game.number) for game in played} == {split == "test"}
    assert not by_split["train"] & by_split["test"]


def test_cooking_that_is_held_out_has_other_food() -> None:
    kind = Kind("cooking", (("recipe", 1),))
    assert '"split": "train"' in kind.to_request(3, False) and '"split": "test"' in kind.to_request(4, True)
    assert [n for n in range(12) if is_held_out(n)] == [4, 9]


@pytest.mark.slow
def test_cooking_can_be_lost_and_then_the_expert_waits() -> None:
    game = started("textworld:cooking(recipe=1,cook=true)")
    food = game.expert_act()
    assert finished(game, "expert").report()["success"] is True, food
    game = started("textworld:cooking(recipe=1,cook=true)", max_turns=40)
    eats = random.Random(0)
    while not game.ended:
        eat = [act for act in game.legal("agent") if act.startswith("eat ")]
        game.step(eats.choice(eat or game.legal("agent")))
    assert game.ended == "lost" and game.payoffs() == {"agent": 0.0} and game.expert_act() == "look"


@pytest.mark.parametrize(
    "act", ["save", "script", "quit", "restart", "undo", "tw-extra-infos score", "go", "", "look\nsave", "take " * 700]
)
def test_what_is_not_listed_never_reaches_the_interpreter(
    act: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    game = started()
    before = game.situation("agent"), game.private("agent")
    game.step(act)
    assert game.infos["agent"]["valid"] is False and (game.situation("agent"), game.private("agent")) == before
    assert [*tmp_path.iterdir()] == [], "nor does it write a file"


def test_case_and_blanks_of_a_command_do_not_matter() -> None:
    game = started()
    game.step(f"  {game.expert_act().upper().replace(' ', '  ')} ")
    assert game.infos["agent"]["valid"] is True and game.turns == 1


def test_a_clone_goes_on_alone_and_an_ended_match_has_clones_too() -> None:
    game = started("textworld:w2-o3-q4")
    twin, before = game.clone(), game.situation("agent")
    finished(twin, "expert")
    assert game.situation("agent") == before != twin.situation("agent") and not game.ended
    assert finished(game, "expert").render() == twin.render() == twin.clone().render()


def test_what_the_interpreter_appends_is_not_told() -> None:
    said = (
        "\nYou take the coin.\x07\n\n\n\n*** The End ***\n\nWould you like to RESTART, RESTORE a saved game, QUIT?\n>"
    )
    assert clean_feedback(said + " " * 40 + "-= Studio =-0/4") == "You take the coin.\n*** The End ***"
    assert (
        clean_feedback("-= Studio =-\nYou are in a studio.\n\n>   -= Studio =-0/1")
        == "-= Studio =-\nYou are in a studio."
    )


def test_compiled_games_are_bounded_and_those_in_use_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(textworld_games, "KEPT", 2)
    now = time.time()
    for name, age in ("old", 9000), ("older", 9999), ("used", 5):
        for ending in (".z8", ".json"):
            (tmp_path / name).with_suffix(ending).write_bytes(b"x")
        os.utime(tmp_path / f"{name}.z8", (now - age, now - age))
    textworld_games._save(tmp_path / "new.z8", (b"{}", b"z"))
    assert {path.name for path in tmp_path.iterdir()} == {"used.z8", "used.json", "new.z8", "new.json"}


def test_a_game_that_takes_too_long_or_cannot_be_made_is_told_in_a_line(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = Kind("coin_collector", (("level", 250),)).to_request(0, False)  # which `parse_name` refuses
    with pytest.raises(RuntimeError, match="TextWorld cannot make the game") as error:
        build(asked)
    assert "\n" not in str(error.value)
    begun: list[subprocess.Popen[bytes]] = []
    popen = subprocess.Popen

    def noted(*args: Any, **options: Any) -> subprocess.Popen[bytes]:
        begun.append(popen(*args, **options))
        return begun[-1]

    monkeypatch.setattr(textworld_games, "SECONDS", 0.05)
    monkeypatch.setattr(subprocess, "Popen", noted)
    with pytest.raises(RuntimeError, match="made no game within"):
        build(asked)
    assert begun[0].returncode == -9, "and the child is gone"


@pytest.mark.slow
@pytest.mark.thorough
@pytest.mark.parametrize("fault", sorted(FAULTS))
def test_a_match_whose_game_is_not_made_is_played_again(
    cache: Path, fault: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    children: list[psutil.Process] = []
    popen, kept, first = subprocess.Popen, ResourceCheck(), False

    def begin(*args: Any, **options: Any) -> subprocess.Popen[bytes]:
        child = popen(*args, **options)
        children[:] = [psutil.Process(child.pid)]
        if first:
            child.send_signal(FAULTS[fault])
        return child

    def before(is_first: bool) -> Limits:
        nonlocal first
        first = is_first
        monkeypatch.setattr(textworld_games, "SECONDS", 1.0 if first and fault == "hang" else 100.0)
        return Limits()

    monkeypatch.setattr(subprocess, "Popen", begin)
    for number in range(TIMES):
        for file in cache.iterdir():
            file.unlink()
        options = {"games": 1, "max_turns": 2}
        kept.check(play_attempts("textworld:coin_collector(level=1)", options, ["look"], number, before), children)
    told = "made no game within 1 s" if fault == "hang" else "TextWorld cannot make the game"
    assert all(told in reason for reason in kept.reasons), kept.reasons


@pytest.mark.parametrize(
    ("name", "options", "told"),
    [
        ("textworld:w2", {}, "TextWorld's games are w2-o3-q4"),
        ("textworld:w99-o3-q4", {}, "rooms must be a whole number from 1 to 50"),
        ("textworld:w2-o3-q4(level=1)", {}, "has no setting 'level'"),
        ("textworld:coin_collector(level=200)", {}, "level must be a whole number from 1 to 150"),
        ("textworld:coin_collector(lvl=2)", {}, "has no setting 'lvl'; there are: level"),
        ("textworld:treasure_hunter(level=31)", {}, "from 1 to 30"),
        ("textworld:cooking(take=2)", {}, "take must be a whole number from 0 to 1"),
        ("textworld:cooking(go=2)", {}, "go must be one of 1, 6, 9, 12"),
        ("textworld:cooking(open=1)", {}, "open must be true or false"),
        (SMALL, {"games": 4, "split": "test"}, "games must be at least 5"),
        (SMALL, {"pays": ["wins"]}, "pays must be"),
        (SMALL, {"level": 3}, "settings are part of the name"),
    ],
)
def test_what_is_no_game_of_textworld_is_told_in_a_line(name: str, options: dict[str, Any], told: str) -> None:
    with pytest.raises(ValueError) as refused:
        games.make(name, **options)
    assert told in str(refused.value) and "\n" not in str(refused.value)


TRACE = """
import random, games
game = games.make("textworld:w2-o3-q4", games=1)
game.reset(seed=0)
rng = random.Random(0)
while not game.ended and game.turns < 15:
    print(game.public(), game.private("agent"), game.legal("agent"), game.expert_act(), game.situation("agent"))
    game.step(rng.choice(game.legal("agent")))
"""


@pytest.mark.slow
def test_the_match_is_the_same_in_another_process(cache: Path) -> None:
    told = []
    for seed in ("0", "7"):
        surroundings = {**os.environ, "ARENA_HOME": str(cache.parent), "PYTHONHASHSEED": seed}
        command = [sys.executable, "-W", "ignore", "-c", TRACE]
        told.append(subprocess.run(command, env=surroundings, capture_output=True, text=True, check=True).stdout)
    assert told[0] == told[1] and told[0].count("\n") > 3
