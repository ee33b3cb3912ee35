"""Loops over other libraries without Arena, for `benchmarks/others.py`.

`rest` is a game's name after the library's prefix. Each loop performs about `acts` acts and returns their number.
"""

import atexit
import contextlib
import importlib
import os
import random
from typing import Any

MAX_ACTS = 100
"""Maximum acts of an episode, in both arms."""


def play_overcooked(rest: str, acts: int) -> int:
    """Step Overcooked-AI's rules alone, as its environment class does."""
    rules = importlib.import_module("overcooked_ai_py.mdp.overcooked_mdp").OvercookedGridworld.from_layout_name(rest)
    state, rng = rules.get_standard_start_state(), random.Random(0)
    actions = ["interact", (0, 0), (0, 1), (0, -1), (1, 0), (-1, 0)]
    for _ in range(acts // 2):
        state, _ = rules.get_state_transition(state, (rng.choice(actions), rng.choice(actions)))
    return acts


def play_mpe2(rest: str, acts: int) -> int:
    """Step MPE2 alone, with an observation before each act."""
    env = importlib.import_module(rest).env()
    rng, done = random.Random(0), 0
    while done < acts:
        env.reset(seed=done)
        for agent in env.agent_iter():
            _, _, is_over, is_cut, _ = env.last()
            env.step(None if is_over or is_cut else rng.randrange(int(env.action_space(agent).n)))
            done += 1
    return done


def play_scienceworld(rest: str, acts: int) -> int:
    """Step ScienceWorld alone, in this process. Each step also lists the valid acts."""
    from games.adapters.scienceworld_worlds import JAVA

    if not _SCIENCE:
        os.environ["JAVA_TOOL_OPTIONS"] = JAVA
        _SCIENCE.append(importlib.import_module("scienceworld").ScienceWorldEnv("", envStepLimit=10**6))
    env, rng, done = _SCIENCE[0], random.Random(0), 0
    while done < acts:
        env.load(rest, done % 5, "easy")
        _, info = env.reset()
        for _ in range(MAX_ACTS):
            _, _, is_over, info = env.step(rng.choice(info["valid"]))
            done += 1
            if is_over or done >= acts:
                break
    return done


_SCIENCE: list[Any] = []


def play_openenv(rest: str, acts: int) -> int:
    """Step the same server through the same kind of session, without a game."""
    from games.adapters.openenv_server import begin_session

    session, _ = begin_session(rest, 0)
    for _ in range(acts):
        session.ask("step", {"message": "hello"})
    session.close()
    return acts


def play_textworld(rest: str, acts: int) -> int:
    """Play the same compiled games with TextWorld alone, which also lists commands and the plan."""
    from games.adapters.textworld import is_held_out, start_game
    from games.adapters.textworld_games import compile_game, parse_name

    rng, done = random.Random(0), 0
    while done < acts:
        number = 5 * rng.randrange(5) + 4
        env, state = start_game(compile_game(parse_name(rest), number, is_held_out(number)))
        for _ in range(MAX_ACTS):
            state, _, is_over = env.step(rng.choice(state.admissible_commands))
            done += 1
            if is_over or done >= acts:
                break
        env.close()
    return done


def play_babyai(rest: str, acts: int) -> int:
    """Step BabyAI alone, in a new environment for each episode."""
    gymnasium, rng, done = importlib.import_module("gymnasium"), random.Random(0), 0
    importlib.import_module("minigrid")
    while done < acts:
        env = gymnasium.make(f"BabyAI-{rest}", disable_env_checker=True)
        env.reset(seed=done)
        is_over = is_cut = False
        while not (is_over or is_cut or done >= acts):
            _, _, is_over, is_cut, _ = env.step(rng.randrange(7))
            done += 1
    return done


def play_miniwob(rest: str, acts: int) -> int:
    """Click at random in MiniWoB++ alone, in one browser."""
    gymnasium, miniwob = importlib.import_module("gymnasium"), importlib.import_module("miniwob")
    click = importlib.import_module("miniwob.action").ActionTypes.CLICK_ELEMENT
    if rest not in _PAGES:
        gymnasium.register_envs(miniwob)
        _PAGES[rest] = gymnasium.make(f"miniwob/{rest}-v1", disable_env_checker=True)
        atexit.register(_PAGES[rest].close)
    env, rng, done = _PAGES[rest], random.Random(0), 0
    while done < acts:
        observation, _ = env.reset(seed=done)
        for _ in range(10):
            element = rng.choice(observation["dom_elements"])
            with contextlib.suppress(Exception):  # selenium cannot click on covered elements
                observation, _, is_over, _, _ = env.step(env.unwrapped.create_action(click, ref=element["ref"]))
                if is_over:
                    break
            done += 1
    return done


_PAGES: dict[str, Any] = {}


def play_tau2(rest: str, acts: int) -> int:
    """Make the calls of three of tau2's solutions in this process, and score them. Returns `acts` unchanged.

    Messages take no time here. The rates compare episodes, because the game's arm also plays three per round.
    """
    from games.adapters.tau2_child import Server

    if rest not in _DOMAINS:
        _DOMAINS[rest] = Server()
        _DOMAINS[rest].answer({"load": rest})
    server = _DOMAINS[rest]
    for number, task in enumerate(random.sample(sorted(server.tasks), 3)):
        rollout = server.answer({"rollout": number, "task": task})
        for n, call in enumerate(rollout["solution"]):
            call_request = {"id": str(n), "name": call["name"], "arguments": call["arguments"]}
            server.answer({"rollout": number, "reply": {"by": call["by"], "calls": [call_request]}})
        server.answer({"rollout": number, "reply": {"by": "user", "text": "###STOP###", "end": "user_stop"}})
    return acts


_DOMAINS: dict[str, Any] = {}
