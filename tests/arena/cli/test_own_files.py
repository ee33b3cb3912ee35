"""A run's own game, roles and data lie in its folder, are found there first, and run no untrusted code."""

import json
import re
import shutil
import sys
from pathlib import Path

import pytest

from agents.weights import resolve
from arena.store.manifest import write_sealed
from arena.store.reader import RunReader
from arena.store.run import RunFolder
from games.adapters import loading
from tests.factories.commands import arena, get_refusal
from tests.factories.kept_run import SHARED
from tests.pages import ROOT

WORDED = '''
from pathlib import Path


class Worded(Race):
    """Race with a word of welcome from a file."""

    def __init__(self, *, words, **options):
        super().__init__(**options)
        self.welcome = Path(words).read_text().strip()

    def rules(self):
        return f"{self.welcome} {super().rules()}"
'''
CONFIG = """\
name: race
iterations: 1
game: {name: "race.py:Worded", options: {illegal: end, target: 5, words: words.txt}}
policies: {shared: {model: nano}}
seats:
  first: {role: racer, policy: shared}
  second: {role: roles/other.yaml, policy: random}
play: {matches: 2}
evaluate: {games: [{name: "race.py:Worded", options: {target: 5, words: words.txt}}], matches: 2}
"""
LAUNCH = ["run", "selfplay", "--config", "race.yaml", "--roles", "roles", "--json", "--out"]


@pytest.fixture
def user_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the user's working folder with a game, roles and data; ARENA_HOME is beside it."""
    models = resolve("nano").parent
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "models").symlink_to(models)
    monkeypatch.setenv("ARENA_HOME", str(tmp_path / "home"))
    folder = tmp_path / "here"
    (folder / "roles").mkdir(parents=True)
    guide = (ROOT / "docs" / "new-game.md").read_text("utf-8")
    for name, text in re.findall(r"`(race\.py|roles/racer\.yaml)`\n\n```\w+\n(.*?)```\n", guide, re.S):
        (folder / name).write_text(text)
    (folder / "race.py").write_text((folder / "race.py").read_text() + WORDED)
    (folder / "roles" / "other.yaml").write_text(
        (folder / "roles" / "racer.yaml").read_text().replace("racer", "other")
    )
    (folder / "words.txt").write_text("Welcome.\n")
    (folder / "race.yaml").write_text(CONFIG)
    monkeypatch.chdir(folder)
    return folder


@pytest.fixture
def run(user_folder: Path) -> Path:
    result = arena(*LAUNCH, user_folder.parent / "run")
    assert result.code == 0, result.err
    return user_folder.parent / "run"


@pytest.mark.slow
def test_a_copied_folder_is_the_run(user_folder: Path, run: Path) -> None:
    assert {str(p.relative_to(run)) for d in ("roles", "games", "data") for p in (run / d).iterdir()} == {
        "games/race.py", "roles/racer.yaml", "roles/other.yaml", "data/words.txt",
    }  # fmt: skip
    moved = Path(shutil.copytree(run, user_folder.parent / "away"))
    for gone in (run, user_folder / "roles"):
        shutil.rmtree(gone)
    for name in ("race.py", "words.txt"):
        (user_folder / name).unlink()
    result = arena("resume", moved, "--iterations", "2", "--json")
    assert result.code == 0, result.err
    games = {row["game"] for row in RunReader(moved).matches()}
    assert games == {f"{user_folder}/race.py:Worded"}, "by the same name as before"
    for name in (f"{user_folder}/race.py:Worded", "race.py:Worded", f"{moved}/games/race.py:Worded"):
        result = arena("eval", moved, "--game", name, "--matches", "2", "--json")
        assert result.code == 0 and result.err == "", result.err
        assert json.loads(result.out)["results"][0]["options"]["target"] == 5, "with the run's own options"


@pytest.mark.slow
def test_edits_outside_the_run_are_reported_and_not_used(user_folder: Path, run: Path) -> None:
    role = user_folder / "roles" / "racer.yaml"
    role.write_text(role.read_text().replace("Answer with", "Please answer with"))
    (user_folder / "words.txt").write_text("Go away.\n")
    result = arena("eval", run, "--game", "race.py:Worded", "--matches", "2", "--json")
    assert result.code == 0
    assert f"racer was edited since {run} began; the run uses its own copy, {run}/roles/racer.yaml" in result.err
    assert f"{user_folder}/words.txt was edited since" in result.err
    result = arena("resume", run, "--iterations", "2", "--json")
    assert result.code == 0 and "racer was edited since" in result.err


@pytest.mark.slow_after(1)
@pytest.mark.parametrize("copy", ["roles/racer.yaml", "games/race.py", "data/words.txt"])
def test_a_copy_that_was_edited_or_lost_is_refused(run: Path, copy: str) -> None:
    (run / copy).write_text((run / copy).read_text() + "\n")
    assert get_refusal("resume", run).startswith(f"{run / copy} was edited since its run began")
    (run / copy).unlink()
    for command in (["resume", run], ["eval", run, "--game", "kuhn_poker"]):
        assert get_refusal(*command).startswith(f"{run / copy} cannot be read")


def test_foreign_code_runs_only_with_trust(user_folder: Path, run: Path) -> None:
    """The folder was copied to a machine where nobody started the run."""
    moved = Path(shutil.copytree(run, user_folder.parent / "away"))
    shutil.rmtree(user_folder)
    user_folder.mkdir()
    (user_folder.parent / "home" / "trusted").unlink()
    resume, evaluate = (
        ["resume", moved, "--iterations", "2"],
        ["eval", moved, "--matches", "2", "--game", "race.py:Worded"],
    )
    before = {p: p.read_bytes() for p in moved.rglob("*") if p.is_file()}
    for command in (resume, evaluate):
        line = get_refusal(*command)
        assert f"would run the code of {moved}/games/race.py: read it, then pass --trust" in line
    assert {p: p.read_bytes() for p in moved.rglob("*") if p.is_file()} == before
    assert arena("show", moved).code == 0, "shows without any code"
    result = arena("eval", moved, "--game", "kuhn_poker", "--role", "nano_kuhn", "--matches", "2")
    assert result.code == 0, "another game needs none of it"
    exploit = ["exploit", moved, "--game", "kuhn_poker", "--role", "nano_kuhn", "--history"]
    assert "pass --trust" not in get_refusal(*exploit, "--game", "tic_tac_toe", "--trust"), "--trust is accepted"
    (user_folder.parent / "home" / "trusted").unlink()
    assert arena(*evaluate, "--before", "--trust").code == 0
    assert arena(*resume, "--json").code == 0, "trust is remembered"


@pytest.mark.slow
def test_file_outside_the_run_needs_trust_too(user_folder: Path, run: Path) -> None:
    """A run folder without its copies could name any file of the machine."""
    environment = json.loads((run / "environment.json").read_text())
    for key in ("files", "commands", "experiment", "sha256"):
        del environment[key]
    write_sealed(run / "environment.json", environment)
    for folder in ("roles", "games", "data", "checkpoints", "log"):
        shutil.rmtree(run / folder)
    (user_folder.parent / "home" / "trusted").unlink()
    assert f"would run the code of {user_folder}/race.py" in get_refusal("resume", run, "--iterations", "2")


@pytest.mark.parametrize(
    ("game", "message"),
    [
        ('{name: "pettingzoo:strangers_own.game"}', "has no function env()"),
        ('{name: "pettingzoo:connect_four_v3", options: {env: strangers_own.game}}', "has no function env()"),
        ('{name: "gymnasium:strangers_own.game:Own-v0(a=gymnasium:1)"}', "has no environment 'Own-v0'"),
        ('{name: "gymnasium:FrozenLake-v1", options: {env: "strangers_own.game:Own-v0"}}', "no environment 'Own-v0'"),
    ],
)
def test_module_named_by_a_foreign_run_needs_trust(
    user_folder: Path, monkeypatch: pytest.MonkeyPatch, game: str, message: str
) -> None:
    (user_folder / "strangers_own").mkdir()
    (user_folder / "strangers_own" / "game.py").write_text(f"open({str(user_folder / 'ran')!r}, 'w')\n")
    monkeypatch.syspath_prepend(user_folder)
    for name in ("strangers_own", "strangers_own.game"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    config = SHARED.replace("{name: kuhn_poker, options: {illegal: end, penalty: 2}}", game)
    assert game in config
    run = RunFolder.create(user_folder / "strangers", config, {}).path
    loading.reset()
    line = get_refusal("resume", run)
    assert "would run the code of the module strangers_own.game: read it, then pass --trust" in line
    assert not (user_folder / "ran").exists()
    loading.reset()
    assert message in get_refusal("resume", run, "--trust")
    assert (user_folder / "ran").exists()


def test_invalid_module_name_is_refused() -> None:
    for name in ("../x", "..", ".x", "a..b", "xml.nothing"):
        assert "module" in get_refusal("check", "game", f"pettingzoo:{name}")


PLAYER_CODE = """
def careful(game, seed):
    return lambda view: f"ADD {(view.public['target'] - view.public['total']) % 4 or 1}"


def numb(game, seed):
    return lambda view: "ADD 1"


class Nobody:
    pass
"""
SEATED = """\
name: race
iterations: 1
game: {name: "race.py:Worded", options: {illegal: end, target: 5, words: words.txt}}
policies: {shared: {model: nano, imitate: {scripted: [careful, "own.py:numb"], matches: 4, minibatches: 1}}}
seats: {first: {role: racer, policy: shared}, second: {role: racer, policy: shared}}
league: {opponents: [{play: fixed, policy: careful}, {play: fixed, policy: "own.py:numb"}]}
play: {matches: 8}
evaluate:
  games: [{name: "race.py:Worded", options: {words: words.txt}}]
  against: [careful, "own.py:numb"]
  matches: 2
"""


@pytest.fixture
def user_players(user_folder: Path) -> Path:
    """Return the user's folder with players of its own: one in the game's file, one in another file."""
    (user_folder / "own.py").write_text(PLAYER_CODE)
    (user_folder / "race.py").write_text(
        f"{(user_folder / 'race.py').read_text()}{PLAYER_CODE}\n\nWorded.players = {{'careful': careful}}\n"
    )
    return user_folder


def test_own_players_work_wherever_a_name_does(user_players: Path) -> None:
    game = ["--game", "race.py:Worded", "--option", "words=words.txt", "--option", "target=5"]
    result = arena("eval", "careful", *game, "--against", "own.py:numb", "--matches", "4", "--json")
    assert result.code == 0, result.err
    assert json.loads(result.out)["results"][0]["payoff_by_seat"]["first"][0] == 1.0, "from 0 of 5 the first seat wins"
    result = arena("tournament", "own.py:numb", "careful", "random", *game, "--matches", "4", "--json")
    assert result.code == 0, result.err
    result = arena("play", *game, "--seat", "first=careful", "--seat", "second=own.py:numb", "--json")
    assert json.loads(result.out)["payoffs"] == {"first": 1.0, "second": -1.0}


@pytest.mark.parametrize(
    ("player", "message"),
    [
        ("own.py:nubm", "has no function 'nubm' — did you mean 'numb'?"),
        ("own.py:Nobody", "has no function 'Nobody' (its functions: careful, numb)"),
        ("gone.py:numb", "there is no file"),
        ("reckless", "unknown contender 'reckless'"),
    ],
)
def test_unknown_players_are_refused(user_players: Path, player: str, message: str) -> None:
    assert message in get_refusal(
        "eval", player, "--game", "race.py:Worded", "--option", "words=words.txt", "--against", "random"
    )


@pytest.mark.parametrize(
    ("code", "message"),
    [
        (
            "def own(view): return 'ADD 1'",
            "own.py:own: too many positional arguments: it is called with the game and a",
        ),
        (
            "def own(game, seed): raise LookupError('no\\nbook')",
            "own.py:own failed: LookupError: no book: it is called",
        ),
        ("def own(game, seed): return None", "own.py:own returned a NoneType: it is called with the game and a seed"),
    ],
)
def test_own_player_that_fails_gives_one_line(user_players: Path, code: str, message: str) -> None:
    (user_players / "own.py").write_text(code)
    game = ["--game", "race.py:Worded", "--option", "words=words.txt"]
    assert message in get_refusal("eval", "own.py:own", *game, "--against", "random")
    result = arena("play", *game, "--seat", "first=own.py:own", "--seat", "second=careful")
    assert result.code == 2 and message in result.err and len(result.err.splitlines()) == 1


def test_a_games_own_player_plays_no_other_game(user_players: Path) -> None:
    both = ["--game", "race.py:Worded,nim", "--option", "words=words.txt"]
    assert arena("eval", "random", *both, "--against", "careful").code == 2


@pytest.mark.slow
def test_a_run_keeps_its_own_players(user_players: Path) -> None:
    (user_players / "race.yaml").write_text(SEATED)
    run = user_players.parent / "run"
    result = arena(*LAUNCH, run)
    assert result.code == 0, result.err
    assert (run / "parts" / "own.py").read_text() == PLAYER_CODE
    rows = list(RunReader(run).matches())
    assert {s["policy"] for row in rows for s in row["seats"].values()} == {
        "shared",
        "careful",
        f"{user_players}/own.py:numb",
    }
    (user_players / "own.py").write_text("no Python\n")
    result = arena("resume", run, "--iterations", "2", "--json")
    assert result.code == 0 and f"{user_players}/own.py was edited since {run} began" in result.err, result.err
    (run / "parts" / "own.py").write_text("no Python\n")
    assert get_refusal("resume", run, "--iterations", "3").startswith(
        f"{run}/parts/own.py was edited since its run began"
    )
