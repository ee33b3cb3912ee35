"""Simulated persons played by a policy: their faults fail a match for good, and they earn no credit."""

import asyncio
import json
from dataclasses import replace
from pathlib import Path

import pytest

from analysis.frames import load
from arena.cli.loop import wait
from arena.errors import ConfigError, PlayError
from arena.evaluate.matrix import Person, make_lineup, play_matrix, read_persons
from arena.play.contenders import ScriptedContender
from arena.play.match import MatchPlan
from arena.play.orchestrator import play_all
from arena.play.settings import GameSpec
from arena.records import MatchRecord
from games.contracts import MatchId
from tests.factories.commands import arena
from tests.factories.matches import play_scripted

STRICT = {"person": "played", "person_faults": 0, "person_retries": 0}


def test_match_whose_person_deviates_fails() -> None:
    record = play_scripted("clinic", 1, {"doctor": "asker", "patient": "noop"}, budget=6, **STRICT)
    assert record.status == "failed" and record.failure and record.failure.kind == "person"
    assert record.reason == "the player of the simulated person did not keep to its record"
    assert record.payoffs == {} and record.report == {} and record.turns, "nobody is paid, and the turns are kept"
    assert "person_withheld: 1" in record.failure.trace.splitlines()
    assert play_scripted("clinic", 1, {"doctor": "asker", "patient": "oracle"}, budget=6, **STRICT).status == "finished"


def test_failed_person_is_not_replayed_and_others_continue() -> None:
    async def play(plan: MatchPlan) -> MatchRecord:
        await asyncio.sleep(0)
        patient = "noop" if plan.identity.deal < faulty_count else "oracle"
        record = play_scripted("clinic", plan.seed, {"doctor": "asker", "patient": patient}, budget=6, **STRICT)
        return replace(record, identity=plan.identity)

    plans = [MatchPlan(identity=MatchId(1, n), game="clinic", options={}, seed=n, seats={}) for n in range(6)]
    reported: list[MatchRecord] = []
    faulty_count = 2
    assert len(asyncio.run(play_all(plans, play, reported.append, 2, 3))) == 4
    lost = [record for record in reported if record.failure]
    assert len(reported) == 6 and all(record.failure and record.failure.given_up for record in lost)
    faulty_count = 5
    with pytest.raises(PlayError, match="5 of 6 matches failed because of the person, the last time with: the player"):
        asyncio.run(play_all(plans, play, reported.append, 2, 3))


def test_persons_of_a_matrix_can_be_players() -> None:
    desk, search = GameSpec(name="desk"), GameSpec(name="search")
    assert read_persons(["terse", "terse+random", "terse=a=b+c"], desk) == [
        ("terse", "", "render"), ("terse", "random", "render"), ("terse", "a=b+c", "played"),
    ]  # fmt: skip
    assert read_persons(["=oracle"], search) == [("", "oracle", "played")]
    for text, message in (("=", "name the speaker"), ("+oracle", "no option `person` with the value render")):
        with pytest.raises(ConfigError, match=message):
            read_persons([text], search)
    spec = GameSpec(name="desk", options={"goals": 1})
    people = [Person("terse", ScriptedContender("oracle"), "played"), Person("terse")]
    assert [person.name for person in people] == ["terse=oracle", "terse"]
    agent = ScriptedContender("oracle")
    assert make_lineup(agent, people[0], spec) == {"agent": agent, "customer": people[0].voice}
    assert make_lineup(agent, people[1], spec) == {"agent": agent}

    async def play_cells() -> list[float]:
        played = play_matrix([ScriptedContender("oracle")], people, spec, tasks=3, trials=1, k=1, seed=0)
        return [cell.reliability(1).estimate async for cell in played]

    assert wait(play_cells()) == [1.0, 1.0]


@pytest.mark.slow_after(1)
def test_a_frozen_person_earns_no_credit_and_the_agent_learns(tmp_path: Path) -> None:
    run = tmp_path / "run"
    settings = [
        "stages.agent.play.iterations=1", "play.matches=4", "learn.token_budget=4096", "learn.minibatches=1",
        "precision=fp32", "threads=1", "stages.agent.play.policies.agent.imitate.matches=8",
        "game.options.person_faults=1000",
        "stages.agent.play.policies.agent.imitate.minibatches=2", "stages.agent.play.evaluate=null",
        "stages.customer.play.policies.customer.imitate.matches=8",
        "stages.customer.play.policies.customer.imitate.minibatches=2",
    ]  # fmt: skip
    result = arena(
        "run", "selfplay", "--recipe", "mua_rl-nano", "--out", run, *(p for each in settings for p in ("--set", each))
    )
    assert result.code == 0, result.err
    run = run / "stages" / "02-agent"
    (row,) = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    assert row["matches"] == 4 and row["report"]["person_texts"] > 0
    assert row["learn"].keys() == {"agent"}
    counts = load(run).turns.groupby("role")["advantage"].count()
    assert counts["nano_desk_agent"] > 0 and counts["nano_desk_customer"] == 0
