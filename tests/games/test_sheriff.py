"""Sheriff: payoffs by hand and by OpenSpiel, the hidden cargo, and each seat's security level."""

import json

import numpy as np
import pyspiel
import pytest

import games
from games.sheriff import Sheriff


def play_acts(*acts, **options):
    game = games.make("sheriff", **options)
    game.reset(seed=0)
    for act in acts:
        game.step(act)
    return game


@pytest.mark.parametrize(
    ("acts", "payoffs", "ended"),
    [
        ("LOAD 3,BRIBE 2,PASS", (3 - 2, 2), "pass"),
        ("LOAD 0,BRIBE 0,PASS", (0, 0), "pass"),
        ("LOAD 0,BRIBE 3,PASS", (-3, 3), "pass"),
        ("LOAD 3,BRIBE 1,INSPECT", (-6, 6), "inspect"),  # the bribe is not paid
        ("LOAD 1,BRIBE 0,INSPECT", (-2, 2), "inspect"),
        ("LOAD 0,BRIBE 3,INSPECT", (3, -3), "inspect"),
    ],
)
def test_payoffs_by_hand(acts, payoffs, ended):
    game = play_acts(*acts.split(","), num_rounds=1)
    assert tuple(game.payoffs().values()) == payoffs
    report = game.report()
    assert report["ended"] == ended and report["inspected"] == (ended == "inspect")
    assert (report["items"], report["bribe"]) == (int(acts[5]), int(acts[13]))


def test_only_the_last_round_counts():
    game = play_acts("load 2", " bribe  3 ", "PASS", "BRIBE 1", "INSPECT", "BRIBE 1", num_rounds=3, item_value=5)
    assert game.public() == {"bribes": [3, 1, 1], "answers": ["PASS", "INSPECT"], "rounds_left": 1}
    assert game.payoffs() == {"smuggler": 0, "sheriff": 0}
    game.step("pass")
    assert game.payoffs() == {"smuggler": 2 * 5 - 1, "sheriff": 1}
    assert game.public()["rounds_left"] == 0


SETTINGS = pytest.mark.parametrize(
    "options",
    [
        {},
        {"num_rounds": 1, "max_bribe": 0},
        {
            "max_items": 7, "max_bribe": 9, "num_rounds": 2, "item_value": 2.5, "item_penalty": 0,
            "sheriff_penalty": 1e-7,
        },
    ],
)  # fmt: skip


@SETTINGS
def test_equal_to_openspiel(options):
    """OpenSpiel numbers the acts: 0 pass, 1 inspect, then the loads from 0, then the bribes from 0."""
    coins = {k: float(v) if "_value" in k or "penalty" in k else v for k, v in options.items()}
    spiel, game = pyspiel.load_game("sheriff", coins), Sheriff(**options)
    rng, end_reasons, losses = np.random.default_rng(1), set(), []
    words = ["PASS", "INSPECT"]
    words += [f"LOAD {n}" for n in range(game.max_items + 1)] + [f"BRIBE {n}" for n in range(game.max_bribe + 1)]
    for seed in range(300):
        spiel_state = spiel.new_initial_state()
        game.reset(seed=seed)
        while not spiel_state.is_terminal():
            assert game.agent_selection == game.seats[spiel_state.current_player()] and not game.ended
            assert game.infos[game.agent_selection]["legal"] == [
                words[action] for action in spiel_state.legal_actions()
            ]
            action = int(rng.choice(spiel_state.legal_actions()))
            spiel_state.apply_action(action)
            game.step(words[action])
        assert list(game.payoffs().values()) == pytest.approx(spiel_state.returns())
        end_reasons.add(game.ended)
        losses.append(-min(spiel_state.returns()))
    assert end_reasons == {"pass", "inspect"} and max(losses) <= game.stakes == -spiel.min_utility()


def test_sheriff_sees_the_cargo_only_by_inspecting():
    rng = np.random.default_rng(3)
    for _ in range(300):
        first, second = (play_acts(f"LOAD {n}") for n in rng.choice(4, 2, replace=False))
        assert first.private("smuggler") != second.private("smuggler")
        while not (first.ended or second.ended):
            views = [
                [g.public(), g.private("sheriff"), g.observe("sheriff"), g.infos["sheriff"]] for g in (first, second)
            ]
            assert json.dumps(views[0]) == json.dumps(views[1])
            act = str(rng.choice(first.infos[first.agent_selection]["legal"]))
            first.step(act)
            second.step(act)
        assert first.ended == second.ended
        texts = [[message["text"] for message in game.observe("sheriff")["messages"]] for game in (first, second)]
        assert (texts[0] == texts[1]) == (first.ended == "pass")
    assert play_acts("LOAD 2").private("smuggler") == {"items": 2}
    assert play_acts("LOAD 2").observe("sheriff")["messages"] == ()
    assert play_acts("LOAD 2 | nothing in it").observe("sheriff")["messages"][0]["text"] == "| nothing in it"


@pytest.mark.parametrize("rounds", [1, 4])
def test_security_levels(rounds):
    """Check the security levels of mixed plans against every act of the other side; the saddle point is 0.75."""
    theory = games.make("sheriff").theory

    def compute_payoffs(load, bribe, answer):
        return tuple(
            play_acts(f"LOAD {load}", *[f"BRIBE {bribe}", answer] * rounds, num_rounds=rounds).payoffs().values()
        )

    answers, plans = ("PASS", "INSPECT"), [(load, bribe) for load in range(4) for bribe in range(4)]
    empty = 3 * (1 + 2) / (3 + 3 * 1 + 3 * 2)
    empty_values = [
        empty * compute_payoffs(0, 0, answer)[0] + (1 - empty) * compute_payoffs(3, 0, answer)[0] for answer in answers
    ]
    assert min(empty_values) == pytest.approx(theory["secure_smuggler"])
    inspect = 3 * 1 / (3 + 3 * 1 + 3 * 2)
    values = [
        (1 - inspect) * compute_payoffs(*plan, "PASS")[0] + inspect * compute_payoffs(*plan, "INSPECT")[0]
        for plan in plans
    ]
    assert max(values) == pytest.approx(theory["secure_smuggler"])
    assert min(compute_payoffs(*plan, "PASS")[1] for plan in plans) == theory["secure_sheriff"]
    assert (
        max(compute_payoffs(0, 0, answer)[1] for answer in answers) == theory["secure_sheriff"]
    )  # and no more than that


def test_illegal_first_act_ends_the_match():
    game = play_acts("BRIBE 3", illegal="end")
    assert game.report() == {"ended": "illegal", "turns": 0, "items": -1, "bribe": -1, "inspected": False}
    assert game.payoffs() == {"smuggler": -6.0, "sheriff": 0.0}  # the stake


def test_refuses_invalid_options():
    for options in ({"max_items": 0}, {"max_bribe": -1}, {"num_rounds": 0}, {"item_value": -1}, {"item_penalty": "2"}):
        (name,) = options
        with pytest.raises(ValueError, match=f"{name} must be"):
            games.make("sheriff", **options)
