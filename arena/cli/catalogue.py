"""Rows of `arena list`, and previews of roles for `arena check role`."""

from __future__ import annotations

import importlib.util
import inspect
import itertools
import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import games
from agents.errors import RoleError
from arena.config.presets import PRESETS, Preset
from arena.errors import ConfigError
from games.adapters import loading
from games.contracts import View
from games.names import nearest
from games.sources import read_docstring

if TYPE_CHECKING:
    from agents.role_check import RolePreview

PARTS = (
    *("estimators", "stages", "transforms", "selectors", "critics", "schedules"),
    *("losses", "clips", "corrections", "aggregates", "regularisers", "replays", "parts"),
    "pipeline_stages",
)
"""Plural names of the kinds in `arena.config.kinds`, repeated here because loading that module is slow."""
KINDS = ("games", "roles", "policies", "models", "opponents", "engines", "panels", *PARTS, "presets", "recipes")
_OWN_PACKAGES = ("games.", "simulators.")
_SAMPLE_TURNS = 2
_SAMPLE_ACTS = 60
MODELINE = "# yaml-language-server:"
"""Start of the comment that names a file's JSON Schema for editors."""
_OPPONENTS = {
    "self": ("–", "Self-play: all seats as configured, with the newest weights."),
    "past": ("lag: N", "The frozen version from N updates ago."),
    "pfsp": ("–", "A past version, drawn in proportion to (1 - p)^2, with p the learner's win rate against it."),
    "fixed": ("policy: WHO", "A scripted policy, endpoint:MODEL, or a policy of the run with `train: false`."),
}
_CAPABILITY_LABELS = {
    "has_vision": "images", "serves_adapters": "adapters", "serves_several": "several policies",
    "records_entropy": "entropies", "uses_several_gpus": "several GPUs",
}  # fmt: skip
"""Labels of the engines' capabilities."""
_ADAPTED_GAMES = {
    "openspiel:NAME": "A game of OpenSpiel, such as openspiel:oh_hell(players=4).",
    "pettingzoo:NAME": "An AEC environment of PettingZoo (extra pettingzoo), such as pettingzoo:connect_four_v3.",
    "textarena:NAME": "An environment of TextArena (extra textarena), such as textarena:TicTacToe-v0.",
    "minigrid:NAME": "An environment of MiniGrid (extra minigrid), such as minigrid:DoorKey-5x5-v0.",
    "babyai:NAME": "A level of BabyAI (extra minigrid), such as babyai:GoToLocal-v0.",
    "textworld:NAME": "Generated games of TextWorld (extra textworld), such as textworld:coin_collector(level=5).",
    "gymnasium:NAME": "An environment of Gymnasium of few values, such as gymnasium:FrozenLake-v1(is_slippery=false).",
    "tau2:NAME": "A domain of tau2-bench (extra tau2): tau2:airline, tau2:retail or tau2:telecom.",
    "miniwob:NAME": "A page of MiniWoB++ (extra miniwob, and a browser), such as miniwob:click-button.",
    "gem:NAME": "A game of GEM (extra gem), such as gem:game:Minesweeper-v0-easy.",
    "overcooked:NAME": "A kitchen of Overcooked-AI (extra overcooked), such as overcooked:cramped_room.",
    "scienceworld:NAME": "A task of ScienceWorld (extra scienceworld, and Java), such as scienceworld:boil.",
    "verifiers:NAME": "An environment of verifiers 0.1, such as verifiers:wordle.",
    "openenv:NAME": "An environment that OpenEnv serves (extra openenv), such as openenv:http://127.0.0.1:8000.",
    "FILE.py:CLASS": "A class of your own, such as race.py:Race.",
}


def list_entries(kind: str, role_folders: Sequence[Path] = ()) -> list[dict[str, str]]:
    """Return the rows of `arena list KIND`, each a text by column. `role_folders` are folders of the user's roles."""
    if kind == "games":
        places = games.CLASSES | {name: entry.value for name, entry in loading.find_entry_points().items()}
        lines = {name: _summarize_game(name, place) for name, place in places.items()}
        return [{"game": name, "description": line} for name, line in (lines | _ADAPTED_GAMES).items()]
    if kind == "roles":
        from agents.role import list_roles, load_role

        roles = list_roles(role_folders)
        return [
            {"role": name, "game": load_role(name, role_folders).game or "any"}
            | {"description": _read_comment(path.read_text("utf-8")), "file": str(path)}
            for name, path in roles.items()
        ]
    if kind == "policies":
        return _list_policies()
    if kind == "models":
        return _list_models()
    if kind == "opponents":
        return [{"play": name, "needs": needs, "description": line} for name, (needs, line) in _OPPONENTS.items()]
    if kind == "engines":
        from agents.engines.kinds import ENGINES

        return [_describe_engine(name) for name in ENGINES]
    if kind == "recipes":
        from arena.config.sources import recipe_names

        return [_describe_recipe(name) for name in recipe_names()]
    if kind == "panels":
        from arena.cli.panel import list_panels

        return list_panels()
    if kind == "presets":
        return [_describe_preset(name, preset) for name, preset in PRESETS.items()]
    from arena.config.kinds import KINDS as part_kinds
    from arena.parts.part_config import describe_parts

    return next(describe_parts(known) for known in part_kinds.values() if known.plural == kind)


def list_runnable() -> list[dict[str, str]]:
    """Return a row per recipe with the command that runs it, and one for any other game."""
    from arena.config.sources import recipe_names

    command = "arena run selfplay"
    options = {name: "--game" if name in games.CLASSES else "--recipe" for name in recipe_names()}
    rows = [{"command": f"{command} {o} {name}", "description": _summarize_recipe(name)} for name, o in options.items()]
    any_game = "Any other game, with SmolLM2-135M at all seats (arena list games)."
    return [*rows, {"command": f"{command} --game tic_tac_toe", "description": any_game}]


def _describe_preset(name: str, preset: Preset) -> dict[str, str]:
    """Return a preset's row of `arena list presets`, with its settings as written in YAML."""
    rule = preset.learn["loss"]["policy_gradient"]
    weight = preset.learn["regularisers"]["kl"]["weight"]
    return {
        "learn.loss": name, "ratio": rule["ratio"], "clip": _format_flow(rule["clip"]),
        "aggregate": _format_flow(preset.learn["aggregate"]), "kl": f"{weight:g}", "goes with": preset.goes_with,
        "from": preset.source,
    }  # fmt: skip


def _format_flow(value: Any) -> str:
    """Return a value in YAML flow style: `ppo: {low: 0.2, high: 0.2}`."""
    text = json.dumps(value).replace('"', "")
    return text[1:-1].removesuffix(": {}") if isinstance(value, dict) else text


def _summarize_game(name: str, place: str) -> str:
    """Return the first line of a game's docstring, or the reason why it cannot be loaded.

    Arena's own games are not imported.
    """
    if place.startswith(_OWN_PACKAGES) and (line := read_docstring(place)):
        return line
    complaint = games.find_problem(name)
    return complaint or _first_docstring_line(games.find_factory(name)) or f"From a package: {place}."


def _describe_engine(name: str) -> dict[str, str]:
    """Return an engine's row: capabilities, repeatability with the same seed, and whether it is installed."""
    from agents.engines.kinds import import_engine

    engine = import_engine(name)
    capabilities = engine.capabilities
    is_missing = importlib.util.find_spec(capabilities.package or "agents") is None
    labels = [label for field, label in _CAPABILITY_LABELS.items() if getattr(capabilities, field)]
    repeats = capabilities.is_batch_invariant or not capabilities.batches_continuously  # else batches depend on timing
    return {
        "engine": name,
        "serves": ", ".join(labels) or "one policy",
        "a seed repeats": "bit by bit" if repeats else "up to rounding",
        "state": f"not installed: {capabilities.install}" if is_missing else "installed",
        "description": _first_docstring_line(engine),
    }


def _list_models() -> list[dict[str, str]]:
    from agents.weights import list_models

    return [
        {"name": m.name, "parameters": f"{m.parameters / 1e6:.1f}M", "state": m.state, "from": m.source}
        | {"path": str(m.path)}
        for m in list_models()
    ]


def _list_policies() -> list[dict[str, str]]:
    """Return the rows of models, scripted policies, endpoints and people, with the games they can play."""
    from agents.players.scripted import SCRIPTED
    from agents.weights import list_models

    rows = [(model.name, "any game", f"{model.parameters / 1e6:.1f}M, {model.state}") for model in list_models()]
    rows += [(name, kind.plays, kind.description) for name, kind in SCRIPTED.items()]
    rows.append(("endpoint:MODEL", "any game", "A model behind an OpenAI-compatible endpoint (endpoint@SERVER:MODEL)."))
    rows.append(("human", "any game", "You, in `arena play`."))
    return [dict(zip(("policy", "plays", "description"), row, strict=True)) for row in rows]


def _first_docstring_line(value: Any) -> str:
    """Return the first line of an object's docstring, or of the function in a partial; "" without one."""
    target = getattr(value, "func", value)
    return (inspect.getdoc(target) or "").split("\n", 1)[0]


def _describe_recipe(name: str) -> dict[str, str]:
    """Return a recipe's row with the family, minutes and paper of its study."""
    from arena.config.sources import recipe_layer

    study = recipe_layer(name).data.get("study", {})
    minutes = f"{study['minutes']:g}" if study.get("minutes") else ""
    details = {"family": study.get("family", ""), "minutes": minutes, "replicates": study.get("replicates", "")}
    return {"recipe": name, **details, "description": _summarize_recipe(name)}


def _summarize_recipe(name: str) -> str:
    from arena.config.sources import recipe_layer

    layer = recipe_layer(name)
    comment = re.split(r"(?<=[.:;]) ", _read_comment(layer.text))[0].rstrip(".:;")
    models = ", ".join(sorted({policy["model"] for policy in layer.data["policies"].values()}))
    size = f"{len(layer.data['stages'])} stages" if "stages" in layer.data else f"{layer.data['iterations']} iterations"
    return f"{comment} ({models}, {size})"


def _read_comment(text: str) -> str:
    """Return the comment at the start of a YAML file as one line, without the line that names its schema."""
    comments = itertools.takewhile(lambda line: line.startswith("#"), text.splitlines())
    return " ".join(line.lstrip("# ") for line in comments if not line.startswith(MODELINE))


def preview_role(name: str, game: str, seat: str, role_folders: Sequence[Path] = ()) -> RolePreview:
    """Render a role's prompts in a sample match of `game`, or by default of the role's own game.

    Raises RoleError if a template fails.
    """
    from agents.role import load_role
    from agents.role_check import check_role

    role = load_role(name, role_folders)
    title = game or role.game or ""
    sample = title or next(iter(games.GAMES))
    views = sample_views(sample, seat, role.role)
    try:
        return check_role(name, views, role_folders)
    except RoleError as error:
        if not title:
            raise RoleError(f"{error} (in {sample}; name the role's own game with --game)") from None
        at = f" (at the seats {', '.join(dict.fromkeys(view.seat for view in views))}: name its own with --seat)"
        raise RoleError(f"{error}{at if len({view.seat for view in views}) > 1 else ''}") from None


def sample_views(game: str, seat: str, role: str) -> list[View]:
    """Return the seat's first two views (observations) of a match in which all players take the first legal act.

    Without `seat`, return those of the seat with whose name `role` ends, such as `nano_opener`, or else of every seat.
    Raises ConfigError if the game cannot be made.
    """
    from arena.evaluate.evaluation import make_game
    from arena.play.settings import GameSpec

    env = make_game(GameSpec(name=game))
    seats = list(env.possible_agents)
    if seat and seat not in seats:
        raise ConfigError(f"{game} has no seat '{seat}'{nearest(seat, seats)} (its seats: {', '.join(seats)})")
    wanted = [seat] if seat else [s for s in seats if role.endswith(s)][:1] or seats
    views: dict[str, list[View]] = {s: [] for s in wanted}
    env.reset(seed=0)
    for turn in range(_SAMPLE_ACTS):
        if not env.agents or all(len(seen) >= _SAMPLE_TURNS for seen in views.values()):
            break
        mover = env.agent_selection
        if env.terminations[mover] or env.truncations[mover]:
            break
        if len(views.get(mover, [()] * _SAMPLE_TURNS)) < _SAMPLE_TURNS:
            views[mover].append(View.of(env, mover, turn))
        env.step((env.infos[mover]["legal"] or [""])[0])
    return [view for seen in views.values() for view in seen]
