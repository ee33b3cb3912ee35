"""Shipped roles in real matches: no forged messages, and nano prompts byte-equal to the published ones."""

import hashlib
import random
from collections.abc import Iterator
from typing import Any

import pytest

import games
from agents.reply import TALK, remove_invisible
from agents.role import list_roles, load_role
from agents.role_check import check_role
from games import base
from games.contracts import View

OPTIONS: dict[str, dict[str, Any]] = {"nano_desk_agent": {"terse": True}, "desk_clerk": {"terse": True},
           "nano_doctor": {"terse": True, "symptoms": 12, "diseases": 6},
           "nano_desk_customer": {"person": "free"}, "desk_customer": {"person": "render"},
           "nano_recommender": {"terse": True}, "nano_recommender_user": {"person": "free", "terse": True},
           "recommender_user": {"person": "render"},
           "nano_maze": {"view": "place"},
           "nano_rooms_viewer": {"acts": "letters"},
           "nano_frames_viewer": {"sheet": True}, "nano_pages_viewer": {"objects": True},
           "nano_patient": {"person": "free"}, "patient": {"person": "render"},
           "nano_point_viewer": {"act": "point", "bins": 9, "max_looks": 2}, "nano_transform_viewer": {"terse": True},
           "nano_sql_grounder": {"seats": "all", "terse": True}, "sql_grounder": {"seats": "all"},
           "nano_sql_writer": {"seats": "all", "terse": True}, "sql_writer": {"seats": "all"},
           "nano_sql_judge": {"seats": "all", "terse": True}, "sql_judge": {"seats": "all"},
           "page_reader": {"reader": "seat", "searches": 1}, "nano_page_reader": {"reader": "seat", "terse": True},
           "nano_strategist": {"strategist": True}, "nano_walker": {"strategist": True}}  # fmt: skip
SEATS = {name: name.rpartition("_")[2] for name in (*OPTIONS, "doctor", "nano_doctor", "desk_agent", "nano_desk_agent",
                                                    "proposer", "nano_proposer")}  # fmt: skip
SEATS |= {"desk_clerk": "agent", "desk_phone_clerk": "agent", "page_reader": "reader", "nano_page_reader": "reader",
          "critic": "critic", "nano_maze": "walker"}  # fmt: skip
PLAYED = {"desk_customer_played": "customer", "desk_caller_played": "customer",
          "patient_played": "patient", "nano_patient_played": "patient",
          "recommender_user_played": "user",
          "search_asker_played": "asker"}  # fmt: skip
OPTIONS |= {name: {"person": "played"} for name in PLAYED}
OPTIONS |= {"desk_caller_played": {"person": "played", "domain": "phone"},
            "desk_phone_clerk": {"terse": True, "domain": "phone"}}  # fmt: skip
SEATS |= PLAYED
GAMES = {"nano_solver": ["reasoning"], "solver": ["reasoning"], "searcher": ["search"], "nano_searcher": ["search"],
         "page_reader": ["search_planner"], "nano_page_reader": ["search_planner"]}  # fmt: skip
PUBLISHED = {
    "nano_desk_agent": "b379ac685e4935c9", "nano_desk_customer": "5efe988e45f2015e",
    "nano_doctor": "a28067baf8a91cb4", "nano_kuhn": "0e311f5bf624dda2", "nano_opener": "33ab71c790ec19ba",
    "nano_patient": "c12462898ac425cd", "nano_proposer": "cffc13aaee68ed98", "nano_responder": "333cc0a53b6efa3b",
    "nano_solver": "2b3dcc8e705457fd", "nano_tic_tac_toe": "2713948efc85a49a",
}  # fmt: skip
"""Hashes of the prompts of the studies in docs/results.md, which did not use nano_player."""


def play_views(game: str, is_hostile: bool, seeds: int = 3, most: int = 12, **options: Any) -> Iterator[View]:
    """Yield what every seat sees in matches of random acts, some illegal; with `is_hostile`, mostly hostile ones."""
    env = games.make(game, **options)
    for seed in range(seeds):
        env.reset(seed=seed)
        rng = random.Random(seed)
        for turn in range(most):
            seat = env.agent_selection
            if env.terminations[seat] or env.truncations[seat]:
                break
            view = View.of(env, seat, turn)
            yield view
            act = rng.choice(view.legal or ("x",))
            hostile_acts = [
                f"{act}\nFORGED",
                "FORGED",
                f"{act} | hi\nFORGED",
                act.replace(" ", "\u2028"),
                f"FORGED\n{act}",
            ]
            env.step(
                rng.choice([act, *hostile_acts])
                if is_hostile
                else rng.choice([act, act, act, f"{act} | hello", "what"])
            )


@pytest.mark.parametrize(
    "game", [*games.CLASSES, "clinic", "desk", "recommender", "reasoning", "proposer_solver", "debate"]
)
def test_no_act_reaches_another_seat_over_two_lines(game: str) -> None:
    """Nor as words of its own choice: other seats read the act as the game parsed it."""
    for view in play_views(game, is_hostile=True):
        for message in view.messages:
            assert "\n" not in remove_invisible(message.text, keep="\n")
            assert not message.text.lstrip().startswith("FORGED")


def hash_prompts(name: str) -> str:
    """Return the hash of the prompts that a role shows at its seats."""
    role, texts = load_role(name), []
    for game in [role.game] if role.game else GAMES.get(name, ["kuhn_poker", "nim"]):
        for view in play_views(str(game), is_hostile=False, **OPTIONS.get(name, {})):
            if view.seat == SEATS.get(name, view.seat):
                texts += [role.render_system(view), role.render_turn(view, True), role.render_turn(view, False)]
    assert texts
    return hashlib.sha256("\0".join(texts).encode()).hexdigest()[:16]


@pytest.mark.parametrize("name", PUBLISHED)
def test_published_prompts_stay_as_they_are(name: str) -> None:
    assert hash_prompts(name) == PUBLISHED[name]


@pytest.mark.parametrize("name", list_roles())
def test_shipped_roles_name_the_speaker(name: str) -> None:
    game = load_role(name).game or GAMES.get(name, ["kuhn_poker"])[0]
    if game.startswith("textworld:"):
        pytest.importorskip("textworld")
    seats = [
        v for v in play_views(game, is_hostile=False, **OPTIONS.get(name, {})) if v.seat == SEATS.get(name, v.seat)
    ]
    assert seats, f"no match reaches the seat of {name}: this would check nothing"
    assert not [finding for finding in check_role(name, seats[:2]).findings if "by whom" in finding]


def test_games_and_roles_speak_of_talk_in_the_same_words() -> None:
    assert base.TALK == TALK
