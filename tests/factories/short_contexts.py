"""Matches of free talk by a nano model with few positions, in any engine."""

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

from agents.memory import Memory
from agents.policy import Policy
from agents.published import FolderWeights
from agents.role import load_role
from agents.weights import resolve
from arena.play.contenders import ModelContender, play_one
from arena.play.match import Limits, MatchPlan
from arena.records import MatchRecord, Seating
from games.contracts import MatchId
from tests.factories.matches import ScriptedPayGame

POSITIONS = 400
ROLE = load_role("nano_player").model_copy(update={"memory": Memory()})


def save_short_nano(folder: Path) -> Path:
    """Write nano's files with `POSITIONS` positions."""
    shutil.copytree(resolve("nano"), folder)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"max_position_embeddings": POSITIONS}))
    return folder


async def play_talk(engine: Any, folder: Path, positions: int | None = None) -> MatchRecord:
    """Publish the folder as `short` and play a match; `positions` replaces what the player knows of the model."""
    policy = Policy.load("short", folder, folder, train=False)
    policy = policy if positions is None else replace(policy, positions=positions)
    await engine.publish("short", 3, FolderWeights(folder))
    contender = ModelContender("short", engine, lambda game, seat: (policy, ROLE))
    game = ScriptedPayGame(length=100)
    seats = {seat: Seating(ROLE.role, "short", 3, True, "model") for seat in game.seats}
    plan = MatchPlan(identity=MatchId(1, 0), game="beats", options={}, seed=1, seats=seats)
    return await play_one(plan, dict.fromkeys(game.seats, contender), 5, Limits(), game=game)


def assert_context_full(record: MatchRecord, positions: int = POSITIONS) -> None:
    """Assert that the match ended with a full context, after complete replies within the positions."""
    assert (record.status, record.report["ended"]) == ("finished", "context"), record.reason
    assert ": context limit: " in record.reason and record.reason.endswith(f" of {positions:,}")
    lengths = [len(stream) for streams in record.streams.values() for stream in streams]
    assert positions // 2 < max(lengths) <= positions and len(record.turns) > 3
    assert all(turn.tokens == ROLE.sampling.max_tokens for turn in record.turns if turn.finish == "length")
