"""Matches of scripted players in Arena, to be replayed through environments of other libraries."""

import asyncio
import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

from arena.export.environments.episode import Task
from arena.play.contenders import ScriptedContender, play_one
from arena.play.match import Limits, MatchPlan
from arena.records import MatchRecord
from games.contracts import MatchId
from tests.factories.commands import arena


class FinishedMatch(NamedTuple):
    """A finished match: the learner's acts, all acts in order, and the payoffs by seat."""

    seed: int
    own: list[str]
    acts: list[str]
    payoffs: dict[str, float]


def play_match(task: Task, seed: int, learner: str) -> MatchRecord:
    """Play the match of `arena play --seed` in which the scripted policy `learner` has the task's seat."""
    game = task.make()
    contenders = {
        seat: ScriptedContender(learner if seat == task.seat else task.against) for seat in game.possible_agents
    }
    seats = {seat: contender.seating(task.game, seat) for seat, contender in contenders.items()}
    plan = MatchPlan(identity=MatchId(0, 0), game=task.game, options=dict(task.options), seed=seed, seats=seats)
    return asyncio.run(play_one(plan, contenders, seed, Limits()))


def play_matches(task: Task, learner: str, number: int = 5) -> list[FinishedMatch]:
    """Return the first matches, by seed, in which the learner moves."""
    matches = []
    for seed in range(10 * number):
        record = play_match(task, seed, learner)
        assert record.status == "finished", record.reason
        acts = [turn.action for turn in record.turns if turn.seat == task.seat]
        if acts:
            matches.append(FinishedMatch(seed, acts, [turn.action for turn in record.turns], record.payoffs))
        if len(matches) == number:
            return matches
    raise AssertionError("too few matches in which the learner moves")


def export_environment(name: str, library: str, folder: Path, *options: str) -> ModuleType:
    """Write the game as an environment by the command, and import the module."""
    result = arena("export-env", name, "--as", library, "--to", folder, *options)
    assert result.code == 0, result.err
    (path,) = folder.glob("*.py")
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    return module
