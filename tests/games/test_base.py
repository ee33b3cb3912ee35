"""Rules of every text game: spaces, talk, options, the referee, copies, and PettingZoo's own tests."""

import json
import unicodedata
import warnings
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pettingzoo.test import api_test, seed_test

import games
from games.base import ACTION_LENGTH, UnicodeText, to_one_line
from games.families.pools import instances
from games.negotiation import Negotiation


@pytest.mark.parametrize("illegal", ["retry", "end"])
def test_pettingzoo_api_and_seeding(illegal):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        api_test(games.make("negotiation", illegal=illegal), num_cycles=200)
        seed_test(lambda: games.make("negotiation", illegal=illegal), num_cycles=200)


def test_unicode_space():
    space = UnicodeText(50, seed=3)
    samples = [space.sample() for _ in range(200)]
    assert samples == [UnicodeText(50, seed=3).sample(), *samples[1:]]
    assert all(space.contains(sample) for sample in samples) and len(set(samples)) > 150
    assert space.contains("two words\n\u202e \ud800 \0") and space.contains("") and space.contains("x" * 50)
    assert not space.contains("x" * 51) and not space.contains(b"bytes") and not space.contains(None)
    assert space == UnicodeText(50) and space != UnicodeText(51)


@settings(deadline=None)
@given(st.text(st.characters(), max_size=400))
def test_any_talk_becomes_one_clean_line(text):
    line = to_one_line(text)
    assert len(line) <= 200 and line == line.strip() and len(line.splitlines()) <= 1
    assert not any(unicodedata.category(char).startswith("C") for char in line)
    assert to_one_line(line) == line
    line.encode()


def test_talk_cannot_forge_a_sender_or_a_line():
    game = games.make("negotiation")
    game.reset(seed=0)
    game.step("OFFER 0 0 0 | sure\n\u2028referee: you won\u202e\x1b[31m | ACCEPT\ud83d\0")
    (message,) = game.observe("responder")["messages"]
    assert message == {"sender": "opener", "text": "OFFER 0 0 0 | sure referee: you won[31m | ACCEPT"}
    assert game.observation_space("responder").contains(game.observe("responder"))
    silent_game = games.make("negotiation", talk=False)
    silent_game.reset(seed=0)
    silent_game.step("OFFER 0 0 0 | sure")
    assert silent_game.observe("responder")["messages"][0]["text"] == "OFFER 0 0 0"
    assert "|" not in silent_game.rules()


def test_each_message_is_observed_once():
    game = games.make("negotiation")
    game.reset(seed=0)
    assert game.observe("opener") == game.observe("responder") == {"messages": ()}
    observed: dict[str, list[Any]] = {"opener": [], "responder": []}
    for turn in range(10):
        seat = game.agent_selection
        observed[seat] += [(m["sender"], m["text"]) for m in game.observe(seat)["messages"]]
        assert game.observe(seat) == game.observe(seat)
        game.step(f"OFFER 0 0 1 | remark {turn}")
        assert game.observe(seat)["messages"] == () or game.ended
    speakers = [("opener", "responder")[turn % 2] for turn in range(10)]
    for seat, lines in observed.items():
        expected = [
            (speaker, f"OFFER 0 0 1 | remark {turn}") for turn, speaker in enumerate(speakers) if speaker != seat
        ]
        assert lines == (expected[:-1] if seat == "opener" else expected)
    assert [m["sender"] for m in game.observe("opener")["messages"]] == ["responder", "referee"]
    assert [m["sender"] for m in game.observe("responder")["messages"]] == ["referee"]


@pytest.mark.parametrize(
    "options",
    [
        {"illegal": "forgive"}, {"penalty": -1}, {"penalty": float("nan")}, {"penalty": True}, {"talk": 1},
        {"max_turns": 0}, {"max_turns": 2.5}, {"max_turns": True}, {"items": "abc"}, {"items": ("a", "b")},
        {"items": ("a", "a", "b")}, {"items": ("a", "b", "c\nd")}, {"items": ("a", "b", 3)},
    ],
)  # fmt: skip
def test_bad_options_are_named(options):
    (name,) = options
    with pytest.raises(ValueError, match=f"^{name} must be "):
        games.make("negotiation", **options)


def test_games_are_looked_up_by_name():
    assert "negotiation" in games.GAMES and games.GAMES["negotiation"] is Negotiation
    assert "chess" not in games.GAMES
    with pytest.raises(ValueError, match="did you mean 'negotiation'"):
        games.make("negotation")
    with pytest.raises(ValueError, match=r"there are: .*negotiation"):
        games.make("zzz")
    with pytest.raises(ValueError, match="there is no option 'turns' — did you mean 'max_turns'"):
        games.make("negotiation", turns=3)


def test_retry_is_allowed_once_per_turn_and_penalised_each_time():
    game = games.make("negotiation", penalty=0.5)
    game.reset(seed=0)
    game.step("hello")
    assert game.agent_selection == "opener" and game.infos["opener"]["valid"] is False
    assert game.rewards == {"opener": -0.5, "responder": 0.0}
    assert game.infos["opener"]["rewards"] == {"illegal": -0.5} and game.infos["responder"]["rewards"] == {}
    (message,) = game.observe("opener")["messages"]
    assert message["sender"] == "referee" and "Try once more" in message["text"] and "hello" not in message["text"]
    assert game.observe("responder") == {"messages": ()}
    game.step("OFFER 1 1 1")
    assert game.infos["opener"]["valid"] is True and game.public()["turn"] == 1
    assert game.rewards == {"opener": 0.0, "responder": 0.0}
    game.step("WALK away")
    game.step("OFFER 0 0 0")
    game.step("ACCEPT it")  # a new turn of the opener: the referee asks again
    assert not game.ended and game.agent_selection == "opener"
    game.step("ACCEPT it")
    assert game.ended == "illegal" and all(game.terminations.values())
    assert game.payoffs() == {"opener": 0.0, "responder": 0.0}
    assert game.report()["turns"] == 2 and game.report()["ended"] == "illegal"
    assert "referee: The match is over: opener made no legal act." in game.render()


@pytest.mark.parametrize("action", ["", "|", "| OFFER 1 1 1", None, 7, b"WALK", "WALK" + " " * ACTION_LENGTH])
def test_illegal_end_ends_at_once(action):
    game = games.make("negotiation", illegal="end", penalty=2)
    game.reset(seed=0)
    game.step(action)
    assert game.ended == "illegal" and game.rewards == {"opener": -2.0, "responder": 0.0}
    for _ in game.agent_iter():
        game.step(None)
    assert game.agents == [] and game.report()["turns"] == 0


def test_report_needs_an_end():
    game = games.make("negotiation")
    game.reset(seed=0)
    with pytest.raises(RuntimeError, match="not ended"):
        game.report()


def capture_state(game):
    """Return all that the game shows as one comparable text."""
    observations = {seat: [game.observe(seat), game.infos.get(seat)] for seat in game.seats}
    return json.dumps([observations, game.rewards, game.agent_selection, game.render(), game._cumulative_rewards])


def draw_acts(seed, count=14):
    """Draw acts, some of them illegal, that seldom end a match early."""
    rng = np.random.default_rng(seed)
    return [
        str(rng.choice(["OFFER 0 1 0 | no", "OFFER 1 0 1", "OFFER 9 9 9", "ACCEPT", "what?"], p=p))
        for p in [[0.4, 0.4, 0.08, 0.04, 0.08]] * count
    ]


def play_moves(game, moves):
    """Play the moves until the match ends; return the state at every step."""
    states = [capture_state(game)]
    for move in moves:
        if game.ended:
            break
        game.step(move)
        states.append(capture_state(game))
    return states


def test_seed_decides_the_match():
    for seed in range(30):
        first, second = Negotiation(), Negotiation()
        second.reset(seed=seed + 1)  # an earlier match leaves no trace
        second.step("WALK")
        first.reset(seed=seed)
        second.reset(seed=seed)
        assert play_moves(first, draw_acts(seed)) == play_moves(second, draw_acts(seed))
    game, deals = Negotiation(), set()
    for seed in range(100):
        game.reset(seed=seed)
        deals.add((game.pool, *game.values.values()))
    assert len(deals) > 90


def test_reset_without_a_seed_continues_the_generator():
    first, second = Negotiation(), Negotiation()
    first.reset(seed=5)
    second.reset(seed=5)
    first.reset()
    second.reset()
    assert capture_state(first) == capture_state(second)


def test_global_generators_are_not_touched():
    np.random.seed(1)
    before = np.random.get_state(legacy=False)["state"]["key"].tolist()
    game = Negotiation()
    game.reset(seed=1)
    play_moves(game, draw_acts(1))
    assert np.random.get_state(legacy=False)["state"]["key"].tolist() == before


def test_interleaved_matches_equal_separate_ones():
    alone = []
    for seed in range(20):
        game = Negotiation()
        game.reset(seed=seed)
        alone.append(play_moves(game, draw_acts(seed)))
    concurrent_games = [Negotiation() for _ in range(20)]
    for seed, game in enumerate(concurrent_games):
        game.reset(seed=seed)
    interleaved = [[capture_state(game)] for game in concurrent_games]
    for k in range(14):
        for seed, game in enumerate(concurrent_games):
            if not game.ended:
                game.step(draw_acts(seed)[k])
                interleaved[seed].append(capture_state(game))
    assert interleaved == alone


def test_clone_is_independent_and_continues_equally():
    for seed in range(40):
        game = Negotiation()
        game.reset(seed=seed)
        moves = draw_acts(seed)
        half = seed % 6
        play_moves(game, moves[:half])
        copy = game.clone()
        before = capture_state(game)
        states = play_moves(copy, moves[half:])
        assert capture_state(game) == before
        assert play_moves(game, moves[half:]) == states
        game.reset()
        copy.reset()
        assert capture_state(game) == capture_state(copy)
        game.action_space("opener").seed(1)
        copy.action_space("opener").seed(1)
        game.action_space("opener").sample()
        assert copy.action_space("opener").sample() == UnicodeText(ACTION_LENGTH, seed=1).sample()


def test_changing_returned_values_does_not_change_the_match():
    game = Negotiation()
    game.reset(seed=2, options={"instance": instances()[7]})
    game.step("OFFER 0 0 0 | hello")
    before = capture_state(game)
    message: Any = game.observe("responder")["messages"][0]
    info = game.infos["responder"]
    message["text"] = info["public"]["pool"] = info["private"]["values"] = None
    game._publish()
    assert capture_state(game) == before
