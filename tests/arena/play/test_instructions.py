"""Populations of instructions: drawn by success, renewed by a writer policy, and saved with the run."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from agents.role import Role
from arena.cli.loop import wait
from arena.evaluate.specs import ContenderLoader
from arena.parts.part_config import choose
from arena.play.contenders import ModelContender, add_instruction
from arena.play.match import MatchPlan
from arena.play.parts import ROLLOUT_PART
from arena.play.parts.base import read_instructions
from arena.play.parts.instructions import Instructions
from arena.play.parts.reflection import make_prompt
from arena.records import MatchRecord, Seating
from games.contracts import MatchId, View
from tests.factories.commands import TINY, arena
from tests.factories.labs import check_resume, make_warm_experiment, read_log, reopen_lab
from tests.factories.records import make_match_record, make_turn
from tests.factories.rollout_parts import make_part

TEXTS = ["Guess.", "Look first.", "Answer at once.", "Look twice and then answer."]
ROLE = "solver"


def make_population(texts: list[str] = TEXTS, **settings: Any) -> Instructions:
    part: Instructions = make_part("instructions", seed=3, roles={ROLE: {"texts": texts, **settings}})
    return part


def make_plans(k: int, deals: int, group: int = 1) -> list[MatchPlan]:
    seat = Seating(ROLE, "learner", k, True, "model")
    seats = {"solver": seat, "other": replace(seat, role="x")}
    return [
        MatchPlan(identity=MatchId(k, deal * group + n), game="search", options={}, seed=1000 * k + deal, seats=seats)
        for deal in range(deals)
        for n in range(group)
    ]


def make_record(plan: MatchPlan, payoff: float) -> MatchRecord:
    payoffs = {"solver": payoff, "other": 0.0}
    return make_match_record(identity=plan.identity, game="search", seed=plan.seed, seats=plan.seats, payoffs=payoffs)


def run_bandit(draw: Any, iterations: int = 60, seed: int = 0) -> float:
    """Return the mean payoff (0 or 1 per match) of a way to draw while the best instruction changes halfway."""
    rng, payoffs = np.random.default_rng(seed), []
    for k in range(1, iterations + 1):
        best = TEXTS[1] if k <= iterations // 2 else TEXTS[3]
        played = draw.assign(k, make_plans(k, 16))
        chances = [0.8 if plan.seats["solver"].instruction == best else 0.3 for plan in played]
        records = [make_record(p, float(rng.random() < chance)) for p, chance in zip(played, chances, strict=True)]
        draw.observe(k, records)
        payoffs += [item.payoffs["solver"] for item in records]
    return float(np.mean(payoffs))


class FixedInstructions:
    """Instructions drawn uniformly, whatever they earn."""

    def __init__(self, texts: list[str]) -> None:
        self.rules = make_population(texts, temperature=1e6)

    def assign(self, k: int, unassigned: list[MatchPlan]) -> list[MatchPlan]:
        return self.rules.assign(k, unassigned)

    def observe(self, k: int, records: list[MatchRecord]) -> None:
        pass


@pytest.mark.slow
def test_population_follows_a_changing_best_instruction() -> None:
    found = [run_bandit(make_population(), seed=seed) for seed in range(5)]
    fixed = max(run_bandit(FixedInstructions([TEXTS[n]])) for n in (1, 3))  # the best at the beginning, or in the end
    chance = [run_bandit(FixedInstructions(TEXTS), seed=seed) for seed in range(5)]
    assert min(found) > 0.6 > fixed, "each of the two is the best for half of the time: .55"
    assert max(chance) < 0.5 < min(found) - 0.1


def test_matches_of_a_deal_share_an_instruction() -> None:
    drawn = make_population().assign(1, make_plans(1, 12, group=4))
    by_deal = [{p.seats["solver"].instruction for p in drawn if p.seed == 1000 + deal} for deal in range(12)]
    assert all(len(each) == 1 for each in by_deal) and len(set.union(*by_deal)) > 1
    assert {p.seats["other"].instruction for p in drawn} == {""}
    assert make_population().assign(1, make_plans(1, 12, group=4)) == drawn, "the same seed draws the same"


def test_new_instruction_replaces_the_worst_and_is_drawn_first() -> None:
    part = make_population(size=4, every=2)
    part.observe(
        1, [make_record(p, float(p.seats["solver"].instruction == TEXTS[1])) for p in part.assign(1, make_plans(1, 40))]
    )
    worst = min(part.populations[ROLE], key=lambda item: item.weight).text
    assert part.find_due(2) == [] and part.find_due(3) == [ROLE]
    assert part.add(3, ROLE, " Look\nfor a name. ") == "Look for a name."
    texts = [item.text for item in part.populations[ROLE]]
    assert len(texts) == 4 and worst not in texts and TEXTS[1] in texts
    assert max(part.probabilities(ROLE)) == part.probabilities(ROLE)[-1]
    crossed = part.add(5, ROLE, "Look for a name.")  # already known, so two are crossed instead
    assert crossed and {*crossed.split()} <= {word for text in texts for word in text.split()}
    again = make_population(size=4, every=2)
    again.load(json.loads(json.dumps(part.state())))
    assert again.populations == part.populations


def test_a_new_instruction_is_verified_before_the_worst_goes() -> None:
    part = make_population(size=4, every=2, verify=5)

    def play(k: int, good: set[str]) -> list[str]:
        played = part.assign(k, make_plans(k, 40, group=2))
        part.observe(k, [make_record(plan, float(plan.seats["solver"].instruction in good)) for plan in played])
        return [plan.seats["solver"].instruction for plan in played]

    play(1, {TEXTS[1]})
    before = [item.text for item in part.populations[ROLE]]
    assert part.propose(3, ROLE, "Look for trouble.") and "Look for trouble." not in before
    played = play(3, set(TEXTS))
    assert played[:10] == ["Look for trouble."] * 10 and "Look for trouble." not in played[10:]
    assert [item.text for item in part.populations[ROLE]] == before and not part.candidates, (
        "it earned less than the worst"
    )
    part.propose(5, ROLE, "Look for a name.")
    play(5, {TEXTS[1], "Look for a name."})
    assert "Look for a name." in [item.text for item in part.populations[ROLE]] and len(part.populations[ROLE]) == 4


def test_the_writer_reads_the_worst_matches_of_the_latest_iterations() -> None:
    part = make_population(replay=2)
    for k in (1, 2, 3):
        turn = make_turn(0, {}, "solver", policy="learner", version=0, raw=f"try {k}")
        (plan,) = part.assign(k, make_plans(k, 1))
        part.observe(k, [replace(make_record(plan, 0.0), turns=(turn,))])
    assert [text.rpartition("It wrote: ")[2] for text in part.failed[ROLE]] == ["try 2", "try 3"]
    assert make_prompt([(0.5, "Guess.")], part.failed[ROLE]).count("A bad match.") == 2


def test_an_instruction_is_text_and_no_template() -> None:
    role = add_instruction(Role(role="solver", system="You search."), "{{ rules }} {% for x in y %}")
    view = View("solver", 0, (), "the rules", {}, {}, None)
    assert role.render_system(view) == "You search.\n{{ rules }} {% for x in y %}"


def test_outside_of_training_the_best_played_instruction_is_used() -> None:
    chosen = choose(ROLLOUT_PART, "instructions", roles={ROLE: {"texts": TEXTS}})
    part = make_population()
    assert read_instructions([chosen], [part.state()]) == {}, "none was played"
    played = part.assign(1, make_plans(1, 40))
    part.observe(1, [make_record(plan, float(plan.seats["solver"].instruction == TEXTS[2])) for plan in played])
    assert read_instructions([chosen], [json.loads(json.dumps(part.state()))]) == {ROLE: TEXTS[2]}


@pytest.mark.parametrize(
    "rows",
    [[], [{"text": ""}], [{"text": 5}], [{"text": "x" * 501}], [{"text": "a", "weight": float("nan")}],
     [{"text": "a", "iterations": -1}], [{"weight": 0.5}], "abc"],
)  # fmt: skip
def test_a_damaged_population_is_refused(rows: Any) -> None:
    part = make_population()
    with pytest.raises((ValueError, TypeError, KeyError)):
        part.load({"tried": {ROLE: rows}, "failed": {}})
    assert [one.text for one in part.populations[ROLE]] == TEXTS


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ("{nano_stranger: {texts: [a]}}", "no policy plays the role nano_stranger"),
        ("{nano_opener: {texts: [a, a]}}", "must all differ"),
        ("{nano_opener: {texts: [a, b], size: 1}}", "more than `size`"),
        ("{nano_opener: {texts: [a], writer: nobody}}", "unknown policy 'nobody'"),
    ],
)
def test_invalid_settings_give_one_line(settings: str, message: str, tmp_path: Path) -> None:
    result = arena(*TINY, "--set", f"play.parts=[{{instructions: {{roles: {settings}}}}}]", "--out", tmp_path / "run")
    assert result.code == 2 and message in result.err and "Traceback" not in result.err


@pytest.mark.slow
def test_run_logs_its_instructions_and_resumes_bit_equal(warm: str, tmp_path: Path) -> None:
    rule = "{nano_opener: {texts: [take more, share all], every: 1, size: 3, writer: shared}}"
    config = make_warm_experiment(
        warm, "play.matches=8", f"play.parts=[{{instructions: {{roles: {rule}}}}}]", "iterations=3", "checkpoint.keep=9"
    )
    check_resume(config, tmp_path)
    rows = read_log(tmp_path / "whole")
    instructions = [
        {row["seats"]["opener"].get("instruction", "") for row in rows if row["iteration"] == k} for k in (1, 2, 3)
    ]
    assert instructions[0] <= {"take more", "share all"} and "" not in set.union(*instructions)
    assert not any(row["seats"]["responder"].get("instruction") for row in rows)
    (state,) = reopen_lab(tmp_path / "whole", config).parts.play.state(3)["parts"]
    population = state["tried"]["nano_opener"]
    assert len(population) == 3 and {item["text"] for item in population} - {"take more", "share all"}, (
        "the writer's instruction is tried"
    )
    assert sum(item["iterations"] for item in population) > 0 and state["failed"]["nano_opener"][0].startswith(
        "It read: "
    )
    best = max((item for item in population if item["iterations"]), key=lambda item: item["weight"])["text"]
    for loader, spec, expected in [
        (ContenderLoader(), "whole", best),
        (ContenderLoader(), "whole@0", ""),
        (ContenderLoader(role="nano_opener"), "whole", ""),
    ]:
        (contender,) = wait(loader.load(str(tmp_path / spec)))
        assert isinstance(contender, ModelContender)
        roles = {seat: contender.cast("negotiation", seat)[1] for seat in ("opener", "responder")}
        assert getattr(roles["opener"], "instruction", "") == expected
        assert not hasattr(roles["responder"], "instruction")
        seated = {seat: contender.seating("negotiation", seat).instruction for seat in roles}
        assert seated == {"opener": expected, "responder": ""}, "match records name the instruction"
