"""Remarks of scripted negotiators: short, true, varied, seeded, and without effect on acts."""

import re
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agents.errors import ScriptedPolicyError
from agents.players.remarks import MAX_REMARK_LENGTH, Situation, remark
from agents.players.scripted import BARGAINERS, add_remarks, check_scripted, make_scripted
from games.contracts import View
from games.families.pools import instances, remainder, worth
from games.kuhn_poker import KuhnPoker
from games.negotiation import Negotiation
from tests.factories.thorough import count_cases

ITEMS = ("books", "hats", "balls")
INSTANCES = st.integers(0, len(instances()) - 1).map(lambda number: instances()[number])
SEEDS = st.integers(0, 2**32 - 1)
CLAIMS = {
    r"I care most about the (\w+)\.": "favourite",
    r"Each of the (\w+) is worth (\d+) to me\.": "each",
    r"I take the (\w+), you take the (\w+)\.": "swap",
    r"I have no use for the (\w+)\.": "useless",
    r"All the (\w+) are yours\.": "given",
    r"You would keep all the (\w+), my favourites\.": "kept",
    r"Deal: I get all the (\w+), my favourites\.": "won",
    r"That is worth (\d+) of 10 to me\.": "own",
    r"I come down to (\d+) of 10\.": "lower",
    r"I ask for less than before\.": "less",
    r"I stay with my offer\.": "same",
    r"Only (\d+) of 10 for me\? I want more\.": "offered",
    r"Close: (\d+) of 10 for me\. I want a little more\.": "offered",
    r"Only (\d+) of 10 for me, but I take it\.": "offered",
    r"Agreed, that is (\d+) of 10 to me\.": "offered",
    r"Gladly: (\d+) of 10 is good for me\.": "offered",
    r"You leave me too little\.": "little",
    r"Time is running out, take this\.": "late",
    r"Time is up, a pity\.": "last",
    r"Let us begin with this\.": "first",
    r"With pleasure!|Agreed\.|Deal\.": "taken",
}
"""Pattern of each remark and the claim that it makes."""


def is_true(text, seen):
    """Whether a remark is true; fails for unknown words."""
    (claim_match,) = [(kind, match) for claim, kind in CLAIMS.items() if (match := re.fullmatch(claim, text))]
    kind, groups = claim_match
    pool, values = seen.pool, seen.values
    which = [ITEMS.index(word) for word in groups.groups() if word in ITEMS]
    number = next((int(word) for word in groups.groups() if word.isdigit()), None)
    own: Any = worth(values, seen.demand) if seen.demand is not None else None
    earlier: Any = worth(values, seen.last_demand) if seen.last_demand is not None else None
    offered = 0 if seen.offer is None else worth(values, remainder(pool, seen.offer))
    best = [k for k in range(3) if all(values[k] > values[other] for other in range(3) if other != k)]
    if kind in ("favourite", "each", "kept", "won", "swap"):
        assert which[:1] == best
    return {
        "favourite": lambda: True,
        "each": lambda: values[which[0]] == number,
        "swap": lambda: seen.demand[which[0]] == pool[which[0]] and seen.demand[which[1]] == 0,
        "useless": lambda: values[which[0]] == 0,
        "given": lambda: seen.demand[which[0]] == 0,
        "kept": lambda: seen.offer[which[0]] == pool[which[0]],
        "won": lambda: seen.demand is None and seen.offer[which[0]] == 0,
        "own": lambda: number == own,
        "lower": lambda: number == own < earlier,
        "less": lambda: own < earlier,
        "same": lambda: seen.demand == seen.last_demand,
        "offered": lambda: number == offered,
        "little": lambda: offered < own,
        "late": lambda: seen.turns_left <= 3,
        "last": lambda: seen.turns_left == 1,
        "first": lambda: seen.offer is None,
        "taken": lambda: seen.demand is None,
    }[kind]()


def make_view(game):
    return View.of(game, game.agent_selection, game.turns)


def play_match(names, seeds, instance, **options):
    """Return the views and texts of a match between scripted policies."""
    game = Negotiation(values="public", **options)
    game.reset(seed=0, options={"instance": instance})
    scripted = {
        seat: make_scripted(name, seed, game) for seat, name, seed in zip(game.seats, names, seeds, strict=True)
    }
    heard = []
    while not game.ended:
        view = make_view(game)
        heard.append((view, scripted[view.seat].act(view)))
        game.step(heard[-1][1])
    return heard, game.payoffs()


@given(INSTANCES, st.tuples(st.sampled_from(BARGAINERS[:6]), st.sampled_from(BARGAINERS)), st.tuples(SEEDS, SEEDS),
       st.integers(1, 6))  # fmt: skip
def test_a_remark_is_true_and_short_and_changes_no_act(instance, names, seeds, turns):
    plain, payoffs = play_match(names, seeds, instance, max_turns=turns)
    talk, same = play_match([f"talkative:{name}" for name in names], seeds, instance, max_turns=turns)
    assert [text.partition(" | ")[0] for _, text in talk] == [text for _, text in plain] and same == payoffs
    before: dict[Any, Any] = {}
    heard: dict[Any, Any] = {}
    for view, text in talk:
        act, _, words = text.partition(" | ")
        assert (
            0 < len(words) <= MAX_REMARK_LENGTH and words.isprintable() and "|" not in words and words == words.strip()
        )
        share = tuple(map(int, act.split()[1:])) or None
        facts = view.public
        standing = tuple(map(int, facts["offer"].split())) if facts["offer"] else None
        pool, values = tuple(facts["pool"]), tuple(view.private["values"])
        seen = Situation(ITEMS, pool, values, standing, share, before.get(view.seat), facts["turns_left"])
        assert is_true(words, seen), (words, seen)
        before[view.seat] = share
        heard.setdefault(view.seat, []).append(words)


@pytest.mark.slow
@settings(max_examples=count_cases(70, 300), deadline=None)
@given(INSTANCES, st.data(), SEEDS)
def test_every_situation_has_a_remark(instance, data, seed):
    """Also situations that scripted policies never reach; remarks repeat only when none is left."""
    pool, (own, _) = instance
    share = st.tuples(*(st.integers(0, count) for count in pool))
    standing, asked = data.draw(st.none() | share), data.draw(share)
    asked = asked if standing is None or data.draw(st.booleans()) else None
    seen = Situation(ITEMS, pool, own, standing, asked, data.draw(st.none() | share), data.draw(st.integers(1, 10)))
    rng = np.random.default_rng(seed)
    remarks: list[Any] = []
    for _ in range(30):
        remarks.append(remark(seen, rng, frozenset(remarks)))
        assert is_true(remarks[-1], seen), (remarks[-1], seen)
    assert len(set(remarks)) == len(set(remarks[: len(set(remarks))]))


@given(INSTANCES, SEEDS, st.lists(st.text(max_size=90), min_size=3, max_size=3))
def test_any_item_names_are_supported(instance, seed, names):
    pool, (own, _) = instance
    for share, standing in ((pool, None), (None, pool), (None, (0, 0, 0)), ((0, 0, 0), pool)):
        words = remark(Situation(tuple(names), pool, own, standing, share, pool, 5), np.random.default_rng(seed))
        assert words and len(words) <= MAX_REMARK_LENGTH and words.isprintable() and "|" not in words


def test_remarks_do_not_reveal_the_other_sides_values():
    """Remarks do not depend on the other side's values while the acts are equal."""
    pool, own = (1, 2, 3), (1, 3, 1)
    others = [two for where, (first, two) in instances() if (where, first) == (pool, own)]
    remarks = set()
    for other in others:
        game = Negotiation(values="public")
        game.reset(seed=0, options={"instance": (pool, (own, other))})
        remarks.add(make_scripted("talkative:conceder", 5, game).act(make_view(game)))
    assert len(others) > 1 and len(remarks) == 1


def test_remarks_vary():
    """Dozens over many matches; in one match hardly any twice."""
    remarks, repeated, total = set(), 0, 0
    for seed in range(60):
        turns, _ = play_match(["talkative:conceder", "talkative:hard_liner"], (seed, seed + 1), instances()[seed * 90])
        for seat in range(2):
            words = [text.partition(" | ")[2] for _, text in turns[seat::2]]
            repeated, total = repeated + len(words) - len(set(words)), total + len(words)
            remarks |= set(words)
    assert len(remarks) > 40 and repeated < total / 10


def test_seed_determines_remarks():
    remarks = {
        seed: play_match(["talkative:conceder"] * 2, (seed, seed), instances()[700])[0][0][1] for seed in range(30)
    }
    repeated = {
        seed: play_match(["talkative:conceder"] * 2, (seed, seed), instances()[700])[0][0][1] for seed in range(30)
    }
    assert remarks == repeated and len(set(remarks.values())) > 2


def test_no_remarks_without_talk():
    names = ["talkative:naive", "talkative:conceder"]
    silent, _ = play_match(names, (1, 2), instances()[9], talk=False)
    plain, _ = play_match(["naive", "conceder"], (1, 2), instances()[9], talk=False)
    assert silent == plain and not any("|" in text for _, text in silent)


def test_talking_players_remark():
    public, private, silent = Negotiation(values="public"), Negotiation(), Negotiation(talk=False)
    assert add_remarks("conceder", private) == "talkative:conceder"
    assert add_remarks("nash_bargaining", public) == "talkative:nash_bargaining"
    assert add_remarks("conceder", silent) == "conceder" and add_remarks("random", private) == "random"
    assert add_remarks("cfr", KuhnPoker()) == "cfr" and add_remarks("runs/latest", private) == "runs/latest"
    for name in BARGAINERS:
        check_scripted(f"talkative:{name}", public, "opener")


@pytest.mark.parametrize(
    ("spec", "game", "says"),
    [
        ("talkative", Negotiation(), "scripted policy 'talkative': write talkative:NAME, NAME one of "),
        ("talkative:concedr", Negotiation(), "did you mean 'conceder'?"),
        ("talkative:random", Negotiation(), "write talkative:NAME"),
        ("talkative:nash_bargaining", Negotiation(), "nash_bargaining plays negotiation with public values"),
        ("talkative:conceder", KuhnPoker(), "talkative:conceder plays negotiation, not kuhn_poker"),
    ],
)
def test_silent_players_do_not_remark(spec, game, says):
    with pytest.raises(ScriptedPolicyError, match=re.escape(says)):
        make_scripted(spec, 0, game)
    with pytest.raises(ScriptedPolicyError, match=re.escape(says)):
        check_scripted(spec, game)
