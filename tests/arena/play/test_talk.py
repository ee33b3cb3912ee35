"""Talk as a game option: demonstrated, learned, heard by the other seat and logged."""

import asyncio
import re
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from agents.players.model import ChatPlayer
from agents.players.scripted import make_scripted
from agents.players.writers import make_demonstration_writer
from agents.role import load_role
from arena.cli.loop import wait
from arena.play.match import Limits, MatchPlan, play_match
from arena.records import Seating
from arena.store.reader import RunReader
from games.contracts import MatchId, Message
from games.negotiation import Negotiation
from tests.factories.babble import FRAME
from tests.factories.commands import arena
from tests.factories.demonstrations import decode_turns, open_lab

ACT = re.compile(r"(OFFER \d \d \d|ACCEPT)( \| \S.{0,58}\S)?")
ROLES = ("seats.opener.role=opener", "seats.responder.role=responder", "seats.responder.policy=shared")


def list_demonstrated(folder: Path, *settings: str, script: str = "conceder") -> list[str]:
    lab = open_lab(folder, "game.options.max_turns=4", *settings)
    return [
        text
        for sample in wait(lab.parts.demonstrations.play_scripted("shared", 0, [script], 12))
        for text in decode_turns(sample)
    ]


def test_demonstrations_talk_if_the_game_allows_it(tmp_path: Path) -> None:
    """The acts are the same with and without talk."""
    talk = list_demonstrated(tmp_path / "talk", *ROLES, "game.options.talk=true")
    silent = list_demonstrated(tmp_path / "silent", *ROLES, "game.options.talk=false")
    assert all((found := ACT.fullmatch(text)) and found[2] for text in talk), talk
    assert [text.partition(" | ")[0] for text in talk] == silent
    assert not any("|" in text for text in silent) and len(set(talk)) > len(set(silent))


def test_role_without_tokens_for_talk_imitates_none(tmp_path: Path) -> None:
    """`nano_opener` writes 8 tokens: more would be cut in its own play."""
    for text in list_demonstrated(tmp_path / "run", "game.options.talk=true", "seats.responder.policy=shared"):
        assert ACT.fullmatch(text) and len(FRAME.encode(text)) < 8, text


@pytest.mark.parametrize("name", ["opener", "responder"])
def test_roles_have_room_for_every_remark(name: str) -> None:
    """Prompts mention talk only if the game allows it."""
    role = load_role(name)
    for seed in range(40):
        talk, silent = (Negotiation(talk=on, max_turns=4) for on in (True, False))
        texts: dict[bool, list[Any]] = {True: [], False: []}
        for on, game in (True, talk), (False, silent):
            cast = {seat: load_role(seat) for seat in game.seats}
            players = {
                seat: ChatPlayer(
                    role=cast[seat], frame=FRAME, policy="p", key=seat, seed=(0,),
                    write=make_demonstration_writer(make_scripted("talkative:conceder", seed, game), cast[seat], FRAME),
                )
                for seat in game.seats
            }  # fmt: skip
            seats = {seat: Seating(seat, "p", 0, True, "model") for seat in game.seats}
            plan = MatchPlan(identity=MatchId(0, 0), game="negotiation", options={}, seed=seed, seats=seats)
            record = asyncio.run(play_match(plan, game, players, Limits()))
            texts[on] = list(record.turns)
            prompt = FRAME.decode(record.streams[name][0].ids[:200]) if record.streams[name] else ""
            assert not prompt or ("After | you may add a short remark." in prompt) == on
        assert [t.action.partition(" | ")[0] for t in texts[True]] == [t.action for t in texts[False]]
        assert all(t.public and t.tokens < role.sampling.max_tokens for t in texts[True])
        for before, after in pairwise(texts[True]):
            assert after.messages[-1] == Message.of(before.seat, before.action)


@pytest.mark.slow
def test_trained_model_talks_and_is_heard(tmp_path: Path) -> None:
    """After seconds of imitation a nano model's remarks reach the other seat and the log."""
    settings = [
        "game.options.talk=true", "play.matches=8", "policies.shared.imitate.scripted=[hard_liner]",
        "policies.shared.imitate.matches=64", "policies.shared.imitate.epochs=4",
        "policies.shared.imitate.minibatches=8", "policies.shared.imitate.lr=6e-3", *ROLES[:2],
    ]  # fmt: skip
    command = ["run", "selfplay", "--recipe", "negotiation-nano", "--iterations", "1", "--out", tmp_path / "run"]
    result = arena(*command, *[part for setting in settings for part in ("--set", setting)])
    assert result.code == 0, result
    turns = [match["turns"] for match in RunReader(tmp_path / "run").matches()]
    spoken = [turn for match in turns for turn in match if turn["public"]]
    assert len(spoken) > 4 and all(turn["action"].endswith(f"| {turn['public']}") for turn in spoken)
    heard = [
        (before, after) for match in turns for before, after in pairwise(match) if before["valid"] and before["public"]
    ]
    assert heard, "nobody answered who heard a remark"
    for before, after in heard:
        assert {"sender": before["seat"], "text": before["action"]} in after["messages"]
