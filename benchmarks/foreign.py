"""Acts per second of adapted environments, beside the bare package: random legal play, one match after the other.

    make test-adapters                                   # makes .venv-adapters, which has the packages
    .venv-adapters/bin/python benchmarks/foreign.py      # two minutes
    .venv-adapters/bin/python benchmarks/foreign.py --quick

Our arm measures a game's `reset` and `step` with a seat's whole view. The bare arm asks the package for the same, such
as TextWorld's room, inventory, commands and plan. TextWorld's games are compiled beforehand. In both arms a match
begins with a new environment, because state may outlive a match. Times are CPU times of this process; the arms
alternate. Writes results/foreign.json.
"""

import argparse
import json
import random
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import games
from arena.doctor import describe_environment
from games.contracts import View

RESULTS = Path(__file__).parent / "results"
ROUNDS, MATCHES, MOST_ACTS = 5, {"textworld": 6, "gymnasium": 40, "gem": 40}, 50
NAMES = (
    "textworld:w2-o3-q4", "textworld:cooking(recipe=2,take=1,open=true,cook=true,cut=true,go=6)",
    "gymnasium:FrozenLake-v1", "gymnasium:Taxi-v4", "gymnasium:CartPole-v1",
    "gem:game:Minesweeper-v0-easy", "gem:game:Game2048-v0-easy", "gem:game:Sokoban-v0-easy",
)  # fmt: skip


def ours(name: str, matches: int) -> int:
    """Play matches of the adapted game and return the number of acts."""
    options = {"games": 1} if name.startswith("textworld:") else {}
    game, acts = games.make(name, **options), 0
    for seed in range(matches):
        game.reset(seed=seed)
        rng, player = random.Random(seed), game.players.get("random")
        act = player(game, seed) if player else lambda view, rng=rng: rng.choice(view.legal)
        while not game.ended and game.turns < MOST_ACTS:
            game.step(act(View.of(game, "agent", game.turns)))
            acts += 1
    return acts


def bare_textworld(name: str, matches: int) -> int:
    """Play the same compiled game with TextWorld alone."""
    from games.adapters.textworld import is_held_out, start
    from games.adapters.textworld_games import compiled_path, found

    path, acts = compiled_path(found(name), 0, is_held_out(0)), 0
    for seed in range(matches):
        env, state = start(path)
        rng = random.Random(seed)
        for _ in range(MOST_ACTS):
            state, _, is_over = env.step(rng.choice(state.admissible_commands))
            acts += 1
            if is_over:
                break
        env.close()
    return acts


def bare_gymnasium(name: str, matches: int) -> int:
    """Play with Gymnasium alone, among the actions that its mask allows."""
    import gymnasium

    acts = 0
    for seed in range(matches):
        env = gymnasium.make(name, disable_env_checker=True)
        _, info = env.reset(seed=seed)
        env.action_space.seed(seed)
        for _ in range(MOST_ACTS):
            _, _, is_over, is_cut, info = env.step(env.action_space.sample(info.get("action_mask")))
            acts += 1
            if is_over or is_cut:
                break
    return acts


def bare_gem(name: str, matches: int) -> int:
    """Play GEM's random acts with GEM alone."""
    import gem

    acts = 0
    for seed in range(matches):
        env = gem.make(name)
        env.reset(seed=seed)
        for _ in range(MOST_ACTS):
            _, _, is_over, is_cut, _ = env.step(env.sample_random_action())
            acts += 1
            if is_over or is_cut:
                break
    return acts


BARE: dict[str, Callable[[str, int], int]] = {
    "textworld": bare_textworld, "gymnasium": bare_gymnasium, "gem": bare_gem
}  # fmt: skip


def rate(play: Callable[[str, int], int], name: str, matches: int) -> float:
    """Return the acts per second of CPU time."""
    begun = time.process_time()
    acts = play(name, matches)
    return acts / (time.process_time() - begun)


def measure(name: str, rounds: int, share: float) -> dict[str, Any]:
    """Return the median rates of both arms, and the median ratio of a round."""
    library, _, rest = name.partition(":")
    matches = max(1, round(MATCHES[library] * share))
    for play, label in ((ours, name), (BARE[library], rest)):
        play(label, 1)  # compiles and imports
    pairs = [(rate(ours, name, matches), rate(BARE[library], rest, matches)) for _ in range(rounds)]
    return {
        "ours": median(own for own, _ in pairs),
        "bare": median(bare for _, bare in pairs),
        "ratio": median(own / bare for own, bare in pairs),
        "added_us": 1e6 * median(1 / own - 1 / bare for own, bare in pairs),
    }


def main() -> None:
    """Measure all games, and write and print the results."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true")
    quick = parser.parse_args().quick
    found = {name: measure(name, 1 if quick else ROUNDS, 0.1 if quick else 1.0) for name in NAMES}
    result = {"command": "python benchmarks/foreign.py", "machine": describe_environment(), "games": found}
    (RESULTS / f"foreign{'-quick' if quick else ''}.json").write_text(json.dumps(result, indent=1) + "\n")
    for name, row in found.items():
        print(
            f"{name:72} {row['ours']:8.0f} of {row['bare']:8.0f} acts/s: {row['ratio']:.2f}, +{row['added_us']:.0f} µs"
        )


if __name__ == "__main__":
    main()
