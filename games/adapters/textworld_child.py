"""Child process that generates and compiles one TextWorld game, run by `games.adapters.textworld_games`.

It reads {kind, settings, seed, folder} as JSON from standard input, and writes game.json and game.z8 to the folder. If
that fails, it writes the reason to standard error and exits with code 1. Imports no other module of Arena.
"""

import json
import resource
import sys
from typing import Any

CPU_SECONDS = 120
MEMORY = 4 << 30
TRIES = 20
"""Maximum number of seeds to try, because some maps have no room for a quest of the wanted length."""


def generate(kind: str, settings: dict[str, Any], seed: int) -> Any:
    """Generate a game of this kind. Raises TextWorld's error if all `TRIES` seeds derived from `seed` fail."""
    import textworld
    from textworld.challenges import CHALLENGES
    from textworld.generator import make_game

    for attempt in range(TRIES):
        options = textworld.GameOptions()
        options.seeds = seed * TRIES + attempt
        try:
            if kind != "custom":
                return CHALLENGES[f"tw-{kind}"][1](settings, options)
            options.nb_rooms, options.nb_objects = settings["rooms"], settings["objects"]
            options.quest_length = settings["quest"]
            return make_game(options)
        except textworld.generator.QuestGenerationError:
            if attempt == TRIES - 1:
                raise
    return None


def main() -> None:
    """Generate and compile the game that standard input describes, within limits of CPU time and memory."""
    resource.setrlimit(resource.RLIMIT_CPU, (CPU_SECONDS, CPU_SECONDS))
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    request = json.load(sys.stdin)
    try:
        from textworld.generator import inform7

        game = generate(request["kind"], request["settings"], request["seed"])
        game.save(f"{request['folder']}/game.json")
        inform7.compile_inform7_game(inform7.generate_inform7_source(game), f"{request['folder']}/game.z8")
    except Exception as error:  # noqa: BLE001 the parent reports it in one line
        sys.exit(f"{type(error).__name__}: {error}")


if __name__ == "__main__":
    main()
