"""Acts per second of adapted environments and of the bare packages: random legal play, one match after another.

    make test-adapters                                   # makes .venv-adapters, which has the packages
    .venv-adapters/bin/python benchmarks/foreign.py      # two minutes
    .venv-adapters/bin/python benchmarks/foreign.py --quick

Arena's arm measures a game's `reset` and `step`, including a seat's complete view. The bare arm requests the same from
the package, such as TextWorld's room, inventory, commands and plan. TextWorld's games are compiled beforehand. In both
arms each match has a new environment, because a used one may keep state. Times are CPU times of this process; the arms
alternate. Writes results/foreign.json.
"""

import argparse
import random
import time
from collections.abc import Callable
from statistics import median
from typing import Any

from reporting import write_result

import games
from arena.doctor import describe_environment
from games.contracts import View

ROUNDS, MATCHES, MAX_ACTS = 5, {"textworld": 6, "gymnasium": 40, "gem": 40}, 50
NAMES = (
    "textworld:w2-o3-q4", "textworld:cooking(recipe=2,take=1,open=true,cook=true,cut=true,go=6)",
    "gymnasium:FrozenLake-v1", "gymnasium:Taxi-v4", "gymnasium:CartPole-v1",
    "gem:game:Minesweeper-v0-easy", "gem:game:Game2048-v0-easy", "gem:game:Sokoban-v0-easy",
)  # fmt: skip


def play_adapted(name: str, matches: int) -> int:
    """Play matches of the adapted game and return the number of acts."""
    options = {"games": 1} if name.startswith("textworld:") else {}
    game, acts = games.make(name, **options), 0
    for seed in range(matches):
        game.reset(seed=seed)
        rng, player = random.Random(seed), game.players.get("random")
        act = player(game, seed) if player else lambda view, rng=rng: rng.choice(view.legal)
        while not game.ended and game.turns < MAX_ACTS:
            game.step(act(View.of(game, "agent", game.turns)))
            acts += 1
    return acts


def play_textworld(name: str, matches: int) -> int:
    """Play matches of the same compiled game with TextWorld alone, and return the number of acts."""
    from games.adapters.textworld import is_held_out, start_game
    from games.adapters.textworld_games import compile_game, parse_name

    path, acts = compile_game(parse_name(name), 0, is_held_out(0)), 0
    for seed in range(matches):
        env, state = start_game(path)
        rng = random.Random(seed)
        for _ in range(MAX_ACTS):
            state, _, is_over = env.step(rng.choice(state.admissible_commands))
            acts += 1
            if is_over:
                break
        env.close()
    return acts


def play_gymnasium(name: str, matches: int) -> int:
    """Play random allowed actions with Gymnasium alone, and return their number."""
    import gymnasium

    acts = 0
    for seed in range(matches):
        env = gymnasium.make(name, disable_env_checker=True)
        _, info = env.reset(seed=seed)
        env.action_space.seed(seed)
        for _ in range(MAX_ACTS):
            _, _, is_over, is_cut, info = env.step(env.action_space.sample(info.get("action_mask")))
            acts += 1
            if is_over or is_cut:
                break
    return acts


def play_gem(name: str, matches: int) -> int:
    """Play GEM's random acts with GEM alone, and return their number."""
    import gem

    acts = 0
    for seed in range(matches):
        env = gem.make(name)
        env.reset(seed=seed)
        for _ in range(MAX_ACTS):
            _, _, is_over, is_cut, _ = env.step(env.sample_random_action())
            acts += 1
            if is_over or is_cut:
                break
    return acts


BARE: dict[str, Callable[[str, int], int]] = {
    "textworld": play_textworld, "gymnasium": play_gymnasium, "gem": play_gem
}  # fmt: skip


def measure_rate(play: Callable[[str, int], int], name: str, matches: int) -> float:
    """Play matches and return the acts per CPU second."""
    start = time.process_time()
    acts = play(name, matches)
    return acts / (time.process_time() - start)


def measure(name: str, rounds: int, share: float) -> dict[str, Any]:
    """Return both arms' median rates, the median of the rounds' ratios, and the added microseconds per act.

    Plays the share `share` of the library's number of matches in each round.
    """
    library, _, rest = name.partition(":")
    matches = max(1, round(MATCHES[library] * share))
    for play, label in ((play_adapted, name), (BARE[library], rest)):
        play(label, 1)  # compiles and imports
    pairs = [
        (measure_rate(play_adapted, name, matches), measure_rate(BARE[library], rest, matches)) for _ in range(rounds)
    ]
    return {
        "ours": median(ours for ours, _ in pairs),
        "bare": median(bare for _, bare in pairs),
        "ratio": median(ours / bare for ours, bare in pairs),
        "added_us": 1e6 * median(1 / ours - 1 / bare for ours, bare in pairs),
    }


def main() -> None:
    """Measure all games and write the results."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true")
    quick = parser.parse_args().quick
    found = {name: measure(name, 1 if quick else ROUNDS, 0.1 if quick else 1.0) for name in NAMES}
    result = {"command": "python benchmarks/foreign.py", "machine": describe_environment(), "games": found}
    write_result("foreign", result, quick)
    for name, row in found.items():
        print(
            f"{name:72} {row['ours']:8.0f} of {row['bare']:8.0f} acts/s: {row['ratio']:.2f}, +{row['added_us']:.0f} µs"
        )


if __name__ == "__main__":
    main()
