"""A run's own game, role and data lie in its folder, are found there first, and run no code that nobody agreed to."""

import json
import re
import shutil
import sys
from pathlib import Path

import pytest

from agents.weights import resolve
from arena.store.manifest import digest
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
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A user's folder with a game, roles and data, where the user is; and an ARENA_HOME of its own."""
    models = resolve("nano").parent
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "models").symlink_to(models)
    monkeypatch.setenv("ARENA_HOME", str(tmp_path / "home"))
    here = tmp_path / "here"
    (here / "roles").mkdir(parents=True)
    guide = (ROOT / "docs" / "new-game.md").read_text("utf-8")
    for name, text in re.findall(r"`(race\.py|roles/racer\.yaml)`\n\n```\w+\n(.*?)```\n", guide, re.S):
        (here / name).write_text(text)
    (here / "race.py").write_text((here / "race.py").read_text() + WORDED)
    (here / "roles" / "other.yaml").write_text((here / "roles" / "racer.yaml").read_text().replace("racer", "other"))
    (here / "words.txt").write_text("Welcome.\n")
    (here / "race.yaml").write_text(CONFIG)
    monkeypatch.chdir(here)
    return here


@pytest.fixture
def run(place: Path) -> Path:
    told = arena(*LAUNCH, place.parent / "run")
    assert told.code == 0, told.err
    return place.parent / "run"


@pytest.mark.slow
def test_a_copied_folder_is_the_run(place: Path, run: Path) -> None:
    assert {str(p.relative_to(run)) for d in ("roles", "games", "data") for p in (run / d).iterdir()} == {
        "games/race.py", "roles/racer.yaml", "roles/other.yaml", "data/words.txt",
    }  # fmt: skip
    away = Path(shutil.copytree(run, place.parent / "away"))
    for gone in (run, place / "roles"):
        shutil.rmtree(gone)
    for name in ("race.py", "words.txt"):
        (place / name).unlink()
    told = arena("resume", away, "--iterations", "2", "--json")
    assert told.code == 0, told.err
    games = {row["game"] for row in RunReader(away).matches()}
    assert games == {f"{place}/race.py:Worded"}, "by the same name as before"
    for name in (f"{place}/race.py:Worded", "race.py:Worded", f"{away}/games/race.py:Worded"):
        told = arena("eval", away, "--game", name, "--matches", "2", "--json")
        assert told.code == 0 and told.err == "", told.err
        assert json.loads(told.out)["results"][0]["options"]["target"] == 5, "with the run's own options"


@pytest.mark.slow
def test_edits_outside_are_told_and_not_played(place: Path, run: Path) -> None:
    role = place / "roles" / "racer.yaml"
    role.write_text(role.read_text().replace("Answer with", "Please answer with"))
    (place / "words.txt").write_text("Go away.\n")
    told = arena("eval", run, "--game", "race.py:Worded", "--matches", "2", "--json")
    assert told.code == 0
    assert f"racer was edited since {run} began; the run uses its own copy, {run}/roles/racer.yaml" in told.err
    assert f"{place}/words.txt was edited since" in told.err
    told = arena("resume", run, "--iterations", "2", "--json")
    assert told.code == 0 and "racer was edited since" in told.err


@pytest.mark.slow_after(1)
@pytest.mark.parametrize("copy", ["roles/racer.yaml", "games/race.py", "data/words.txt"])
def test_a_copy_that_was_edited_or_lost_is_refused(run: Path, copy: str) -> None:
    (run / copy).write_text((run / copy).read_text() + "\n")
    assert get_refusal("resume", run).startswith(f"{run / copy} was edited since its run began")
    (run / copy).unlink()
    for command in (["resume", run], ["eval", run, "--game", "kuhn_poker"]):
        assert get_refusal(*command).startswith(f"{run / copy} cannot be read")


def test_a_strangers_code_runs_only_when_asked_for(place: Path, run: Path) -> None:
    """The folder comes to another machine, where nobody began it."""
    away = Path(shutil.copytree(run, place.parent / "away"))
    shutil.rmtree(place)
    place.mkdir()
    (place.parent / "home" / "trusted").unlink()
    resume, evaluate = (
        ["resume", away, "--iterations", "2"],
        ["eval", away, "--matches", "2", "--game", "race.py:Worded"],
    )
    before = {p: p.read_bytes() for p in away.rglob("*") if p.is_file()}
    for command in (resume, evaluate):
        line = get_refusal(*command)
        assert f"would run the code of {away}/games/race.py: read it, then pass --trust" in line
    assert {p: p.read_bytes() for p in away.rglob("*") if p.is_file()} == before
    assert arena("show", away).code == 0, "shows without any code"
    told = arena("eval", away, "--game", "kuhn_poker", "--role", "nano_kuhn", "--matches", "2")
    assert told.code == 0, "another game needs none of it"
    exploit = ["exploit", away, "--game", "kuhn_poker", "--role", "nano_kuhn", "--history"]
    assert "pass --trust" not in get_refusal(*exploit, "--game", "tic_tac_toe", "--trust"), "it takes the word"
    (place.parent / "home" / "trusted").unlink()
    assert arena(*evaluate, "--before", "--trust").code == 0
    assert arena(*resume, "--json").code == 0, "once is enough"


@pytest.mark.slow
def test_a_file_elsewhere_that_a_run_names_needs_trust_too(place: Path, run: Path) -> None:
    """A folder that hides its copies may name any file of the machine."""
    about = json.loads((run / "environment.json").read_text())
    for key in ("files", "commands", "experiment", "sha256"):
        del about[key]
    (run / "environment.json").write_text(json.dumps({**about, "sha256": digest(about)}))
    for folder in ("roles", "games", "data", "checkpoints", "log"):
        shutil.rmtree(run / folder)
    (place.parent / "home" / "trusted").unlink()
    assert f"would run the code of {place}/race.py" in get_refusal("resume", run, "--iterations", "2")


@pytest.mark.parametrize(
    ("game", "told"),
    [
        ('{name: "pettingzoo:strangers_own.game"}', "has no function env()"),
        ('{name: "pettingzoo:connect_four_v3", options: {env: strangers_own.game}}', "has no function env()"),
        ('{name: "gymnasium:strangers_own.game:Own-v0(a=gymnasium:1)"}', "has no environment 'Own-v0'"),
        ('{name: "gymnasium:FrozenLake-v1", options: {env: "strangers_own.game:Own-v0"}}', "no environment 'Own-v0'"),
    ],
)
def test_a_module_that_a_strangers_run_names_asks_first(
    place: Path, monkeypatch: pytest.MonkeyPatch, game: str, told: str
) -> None:
    (place / "strangers_own").mkdir()
    (place / "strangers_own" / "game.py").write_text(f"open({str(place / 'ran')!r}, 'w')\n")
    monkeypatch.syspath_prepend(place)
    for name in ("strangers_own", "strangers_own.game"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    config = SHARED.replace("{name: kuhn_poker, options: {illegal: end, penalty: 2}}", game)
    assert game in config
    run = RunFolder.create(place / "strangers", config, {}).path
    loading.reset()
    line = get_refusal("resume", run)
    assert "would run the code of the module strangers_own.game: read it, then pass --trust" in line
    assert not (place / "ran").exists()
    loading.reset()
    assert told in get_refusal("resume", run, "--trust")
    assert (place / "ran").exists()


def test_what_is_no_name_of_a_module_is_refused_in_one_line() -> None:
    for name in ("../x", "..", ".x", "a..b", "xml.nothing"):
        assert "module" in get_refusal("check", "game", f"pettingzoo:{name}")


PLAYERS = """
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
def players(place: Path) -> Path:
    """The same folder with players of the user's own: one that the game brings, and one of another file."""
    (place / "own.py").write_text(PLAYERS)
    (place / "race.py").write_text(
        f"{(place / 'race.py').read_text()}{PLAYERS}\n\nWorded.players = {{'careful': careful}}\n"
    )
    return place


def test_own_players_sit_wherever_a_name_does(players: Path) -> None:
    game = ["--game", "race.py:Worded", "--option", "words=words.txt", "--option", "target=5"]
    told = arena("eval", "careful", *game, "--against", "own.py:numb", "--matches", "4", "--json")
    assert told.code == 0, told.err
    assert json.loads(told.out)["results"][0]["payoff_by_seat"]["first"][0] == 1.0, "from 0 of 5 the first seat wins"
    told = arena("tournament", "own.py:numb", "careful", "random", *game, "--matches", "4", "--json")
    assert told.code == 0, told.err
    told = arena("play", *game, "--seat", "first=careful", "--seat", "second=own.py:numb", "--json")
    assert json.loads(told.out)["payoffs"] == {"first": 1.0, "second": -1.0}


@pytest.mark.parametrize(
    ("who", "says"),
    [
        ("own.py:nubm", "has no function 'nubm' — did you mean 'numb'?"),
        ("own.py:Nobody", "has no function 'Nobody' (its functions: careful, numb)"),
        ("gone.py:numb", "there is no file"),
        ("reckless", "unknown contender 'reckless'"),
    ],
)
def test_players_that_there_are_not_are_refused(players: Path, who: str, says: str) -> None:
    assert says in get_refusal(
        "eval", who, "--game", "race.py:Worded", "--option", "words=words.txt", "--against", "random"
    )


@pytest.mark.parametrize(
    ("code", "says"),
    [
        (
            "def own(view): return 'ADD 1'",
            "own.py:own: too many positional arguments: it is called with the game and a",
        ),
        (
            "def own(game, seed): raise LookupError('no\\nbook')",
            "own.py:own failed: LookupError: no book: it is called",
        ),
        ("def own(game, seed): return None", "own.py:own made a NoneType: it is called with the game and a seed"),
    ],
)
def test_own_players_that_cannot_be_made_are_one_line(players: Path, code: str, says: str) -> None:
    (players / "own.py").write_text(code)
    game = ["--game", "race.py:Worded", "--option", "words=words.txt"]
    assert says in get_refusal("eval", "own.py:own", *game, "--against", "random")
    told = arena("play", *game, "--seat", "first=own.py:own", "--seat", "second=careful")
    assert told.code == 2 and says in told.err and len(told.err.splitlines()) == 1


def test_a_games_own_player_plays_no_other_game(players: Path) -> None:
    both = ["--game", "race.py:Worded,nim", "--option", "words=words.txt"]
    assert arena("eval", "random", *both, "--against", "careful").code == 2


@pytest.mark.slow
def test_a_run_keeps_its_own_players(players: Path) -> None:
    (players / "race.yaml").write_text(SEATED)
    run = players.parent / "run"
    told = arena(*LAUNCH, run)
    assert told.code == 0, told.err
    assert (run / "parts" / "own.py").read_text() == PLAYERS
    rows = list(RunReader(run).matches())
    assert {s["policy"] for row in rows for s in row["seats"].values()} == {
        "shared",
        "careful",
        f"{players}/own.py:numb",
    }
    (players / "own.py").write_text("no Python\n")
    told = arena("resume", run, "--iterations", "2", "--json")
    assert told.code == 0 and f"{players}/own.py was edited since {run} began" in told.err, told.err
    (run / "parts" / "own.py").write_text("no Python\n")
    assert get_refusal("resume", run, "--iterations", "3").startswith(
        f"{run}/parts/own.py was edited since its run began"
    )
