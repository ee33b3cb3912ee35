"""A match's deal from its seed: what each seat knew at its first move, and the commands that show it."""

import json
from pathlib import Path

import pytest

from arena.errors import StoreError
from arena.evaluate.deal_facts import recover_facts, replay_facts
from arena.store.reader import RunReader
from games.contracts import Deal
from tests.factories.commands import arena
from tests.factories.matches import play_scripted


def test_facts_are_those_of_each_seats_first_move() -> None:
    match = play_scripted("negotiation", 5, {"opener": "conceder", "responder": "hard_liner"})
    acts = [(turn.seat, turn.action) for turn in match.turns]
    facts = replay_facts(Deal("negotiation", match.options, match.seed), acts)
    assert facts.private.keys() == {"opener", "responder"} and len(facts.public["pool"]) == 3
    for seat in facts.private:
        values = facts.private[seat]["values"]
        assert sum(n * worth for n, worth in zip(facts.public["pool"], values, strict=True)) == 10
    pool, *_ = facts.lines()
    assert pool.startswith(f"dealt to all: public.pool = {facts.public['pool']}") and "offer" not in pool
    assert replay_facts(Deal("negotiation", match.options, match.seed), acts[:1]).private.keys() == {"opener"}


def test_unreplayable_match_is_a_store_error(uninterrupted_run: Path) -> None:
    row = next(RunReader(uninterrupted_run).matches())
    assert recover_facts(uninterrupted_run, row).public["pool"]
    for edit in ({"rules": 99}, {"options": {"items": 3}}, {"game": "nobody"}, {"options": {"max_turns": "many"}}):
        with pytest.raises(StoreError, match="what was dealt cannot be shown"):
            recover_facts(uninterrupted_run, {**row, **edit})
    other_turns = [{**turn, "seat": "responder"} for turn in row["turns"]]
    assert recover_facts(uninterrupted_run, {**row, "turns": other_turns}).private == {}


def test_match_is_shown_with_its_deal_before_the_acts(uninterrupted_run: Path) -> None:
    match = next(RunReader(uninterrupted_run).matches())["id"]
    head, deal, *rest = arena("show", uninterrupted_run, match).out.splitlines()
    assert head.startswith("negotiation") and deal.startswith("    dealt to all: public.pool = [")
    assert rest[0].startswith("    dealt to opener: private.values = [")
    facts = json.loads(arena("show", uninterrupted_run, match, "--json").out)["facts"]
    assert f"public.pool = {facts['public']['pool']}" in deal and facts["private"]["opener"]["values"]


def test_scripted_match_begins_with_its_deal() -> None:
    result = arena("play", "--game", "kuhn_poker", "--seat", "0=nash", "--seat", "1=random", "--seed", 3)
    (_, everybody, first, second, *_) = result.out.splitlines()
    assert everybody == "    dealt to all: public.pot = 2"
    assert first.startswith("    dealt to first: private.card = ") and second.startswith("    dealt to second: ")
