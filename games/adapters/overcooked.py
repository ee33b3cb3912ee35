"""Overcooked-AI's kitchens as cooperative text games (Carroll et al. 2019)."""

from __future__ import annotations

import contextlib
import functools
import importlib
import types
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np

from games.adapters.foreign import ForeignGame, OwnRandom, import_library
from games.base import IllegalAct, choice, to_one_line, whole_number
from games.contracts import View
from games.names import nearest

SOUP, SHAPED = PARTS = ("soup", "shaped")
ACTS = {"north": (0, -1), "south": (0, 1), "east": (1, 0), "west": (-1, 0), "stay": (0, 0), "interact": "interact"}
"""Acts with their values in the library."""
FACING = {move: word for word, move in ACTS.items()}
TERRAIN = {"P": "pot", "O": "onions", "T": "tomatoes", "D": "dishes", "S": "serving hatch", "X": "counter"}
ONIONS = ("onion",) * 3
MODULE = "overcooked_ai_py"


def find_kitchen(name: str) -> str:
    """Return `name` if the library has a kitchen of that name, such as `cramped_room`.

    Raises ValueError, in one line, for an unknown kitchen, or if Overcooked-AI is not installed.
    """
    folder = import_library(f"{MODULE}.static", f"overcooked:{name}", "Overcooked-AI", "overcooked").LAYOUTS_DIR
    kitchens = sorted(path.stem for path in Path(folder).glob("*.layout"))
    if name not in kitchens:
        hint = nearest(name, kitchens) or f" (one of {len(kitchens)} is {kitchens[0]})"
        raise ValueError(f"Overcooked-AI has no kitchen '{to_one_line(name, 80)}'{hint}")
    return name


@functools.cache
def load_kitchen(name: str) -> Any:
    """Return the library's object with a kitchen's rules. Matches share it, because only its caches change."""
    module = _import_rules()
    module.Recipe.ALL_RECIPES_CACHE.clear()  # else this kitchen would get the orders of another one
    with OwnRandom(np.random.default_rng(0)).activate():
        rules = module.OvercookedGridworld.from_layout_name(name)
    rules.start_all_orders.sort(key=lambda order: tuple(order["ingredients"]))  # they may come from a set
    return rules


class Overcooked(ForeignGame):
    """Cooperative game in the Overcooked-AI kitchen `env`. The cooks act at the same time and share the reward.

    The seats write their acts in turn, hidden from each other; then all acts are applied together. Options besides
    TextGame's: horizon, the steps of a match (default 400, as published); start "layout" or "random", the cooks'
    initial positions; pays, the reward parts to pay: "soup" (default) and "shaped", the library's own rewards for
    subgoals, which go to the cook that reached them.
    """

    name = "overcooked"
    library = "Overcooked-AI"
    rivals = False
    stakes = 0.0
    metadata: ClassVar[dict[str, Any]] = {"name": "overcooked_v0", "render_modes": ["ansi"]}
    reward_parts: Mapping[str, str] = {
        SOUP: "to each cook, the points of a soup that was served",
        SHAPED: "to the cook that did it: 3 points for filling a pot or taking a useful dish, 5 for taking a soup",
    }

    def __init__(
        self,
        env: str,
        *,
        horizon: int = 400,
        start: Literal["layout", "random"] = "layout",
        pays: Sequence[str] = (SOUP,),
        **options: Any,
    ) -> None:
        self.horizon = whole_number("horizon", horizon, least=1, most=10_000)
        self.start = choice("start", start, "layout", "random")
        self.pays = tuple(choice("pays", part, *PARTS) for part in ([pays] if isinstance(pays, str) else pays))
        self.cooperative = SHAPED not in self.pays
        self.kitchen_name = find_kitchen(env)
        cooks = range(1, load_kitchen(self.kitchen_name).num_players + 1)
        super().__init__(env, tuple(f"cook_{number}" for number in cooks), **options)

    def set_up(self, rng: np.random.Generator, options: Mapping[str, Any]) -> None:
        """Create the initial state, with the cooks placed as the option `start` sets."""
        self._acts: list[Any] = []
        self.points, self.soups, self.shaped = 0.0, 0, dict.fromkeys(self.seats, 0.0)
        with self._set_recipes() as rules, OwnRandom(rng).activate():
            if self.start == "random":
                self.env = rules.get_random_start_state_fn(random_start_pos=True)()
            else:
                self.env = rules.get_standard_start_state().deepcopy()
        self._visible_facts = self._list_facts()

    def rules(self) -> str:
        """Return how to act, the legend of the drawing, and the orders."""
        cells = "".join(map("".join, load_kitchen(self.kitchen_name).terrain_mtx))
        letters = ", ".join(f"{letter} {thing}" for letter, thing in TERRAIN.items() if letter in cells)
        return (
            f"You are one of the cooks in a kitchen: {letters}. All act at the same time and share the points. Each "
            f"turn write one of {', '.join(ACTS)}. A direction moves you there, or only turns you if the way is not "
            "free. interact uses what you face: take an onion, tomato or dish; put something down on a counter or pick "
            "it up; put an onion or tomato into a pot; with empty hands start the cooking; with a dish take a soup "
            f"that is ready; serve a soup at the hatch. Orders: {self._describe_orders('all_orders')}."
        )

    def public(self) -> dict[str, Any]:
        """Return a drawing of the `kitchen`, the `cooks`, the contents of `pots` and `counters`, points and steps left.

        Positions are column,row, counted from 0 at the upper left. Bonus orders, if any, pay double.
        """
        return dict(self._visible_facts)

    def legal(self, seat: str) -> list[str]:
        """Return the six acts, whether or not they have an effect now."""
        return list(ACTS)

    def situation(self, seat: str) -> str:
        """Return the kitchen's state as text, without the time."""
        with self._set_recipes():
            return repr({key: value for key, value in self.env.to_dict().items() if key != "timestep"})

    def play(self, seat: str, act: str) -> str:
        """Store the seat's act; once all cooks have acted, apply the acts together. Returns "".

        Raises IllegalAct for an unknown act.
        """
        word = act.strip().lower()
        if word not in ACTS:
            raise IllegalAct(f"write one of {', '.join(ACTS)}")
        self._acts.append(ACTS[word])
        if len(self._acts) < len(self.seats):
            return ""
        with self._set_recipes() as rules:
            self.env, news = rules.get_state_transition(self.env, tuple(self._acts))
        self._acts = []
        self._pay(news)
        self._visible_facts = self._list_facts()
        if self.env.timestep >= self.horizon:
            self.end("turns", f"The match is over: {self.points:g} points.")
        return ""

    def figures(self) -> dict[str, float | bool | str]:
        """Return `faults`, `points`, the number of `soups` served, and `shaped_SEAT`, each cook's shaped reward."""
        shaped = {f"shaped_{seat}": points for seat, points in self.shaped.items()}
        return {**super().figures(), "points": self.points, "soups": self.soups, **shaped}

    def copy_env(self) -> Any:
        """Return an independent copy of the kitchen's state."""
        if self.env is None:
            return None
        with self._set_recipes():
            return self.env.deepcopy()

    def _pay(self, news: Mapping[str, Any]) -> None:
        """Pay the rewards that the option `pays` selects, and announce served soups."""
        served = float(sum(news["sparse_reward_by_agent"]))
        self.points += served
        for seat, shaped, has_served in zip(
            self.seats, news["shaped_reward_by_agent"], news["event_infos"]["soup_delivery"], strict=True
        ):
            self.shaped[seat] += float(shaped)
            self.soups += bool(has_served)
            if served and SOUP in self.pays:
                self.pay(seat, SOUP, served)
            if shaped and SHAPED in self.pays:
                self.pay(seat, SHAPED, float(shaped))
            if has_served:
                self.tell(f"{seat} served a soup.")

    def _list_facts(self) -> dict[str, Any]:
        with self._set_recipes() as rules:
            cooks = "; ".join(map(_describe_cook, self.seats, self.env.players))
            objects = {place: _describe_object(item) for place, item in sorted(self.env.objects.items())}
            pots = [
                f"{_format_place(place)}: {objects.get(place, 'empty')}" for place in sorted(rules.get_pot_locations())
            ]
            counters = [
                f"{_format_place(place)}: {item}"
                for place, item in objects.items()
                if place not in rules.get_pot_locations()
            ]
        bonus = self._describe_orders("bonus_orders")
        return {
            "kitchen": self._draw_kitchen(),
            "cooks": cooks,
            "pots": "; ".join(pots),
            **({"counters": "; ".join(counters)} if counters else {}),
            **({"bonus_orders": bonus} if bonus else {}),
            "points": self.points,
            "steps_left": self.horizon - int(self.env.timestep),
        }

    def _draw_kitchen(self) -> str:
        cells = [list(row) for row in load_kitchen(self.kitchen_name).terrain_mtx]
        for number, cook in enumerate(self.env.players, 1):
            cells[cook.position[1]][cook.position[0]] = str(number)
        return "\n".join(" ".join(cell if cell != " " else "." for cell in row) for row in cells)

    def _describe_orders(self, kind: str) -> str:
        """Return the orders of a kind (`all_orders` or `bonus_orders`) as text, with their points and cooking times."""
        with self._set_recipes():
            orders = sorted(getattr(self.env, kind), key=lambda recipe: recipe.ingredients)
            return "; ".join(
                f"{_describe_ingredients(recipe.ingredients)} ({recipe.value} points, cooks {recipe.time} steps)"
                for recipe in orders
            )

    @contextlib.contextmanager
    def _set_recipes(self) -> Iterator[Any]:
        """Activate this kitchen's recipes in the library, and yield its rules. Recipes are global in the library."""
        rules, recipes = load_kitchen(self.kitchen_name), _import_rules().Recipe
        if recipes.configuration is not rules.recipe_config:
            recipes.configure(rules.recipe_config)
        yield rules


@functools.cache
def _import_rules() -> Any:
    return importlib.import_module(f"{MODULE}.mdp.overcooked_mdp")


def _format_place(place: tuple[int, int]) -> str:
    return f"{place[0]},{place[1]}"


def _describe_ingredients(ingredients: Sequence[str]) -> str:
    """Return ingredients as text, such as "2 onions, 1 tomato"."""
    plurals = {"onion": "onions", "tomato": "tomatoes"}
    counts = {name: list(ingredients).count(name) for name in plurals}
    return ", ".join(f"{n} {plurals[name] if n > 1 else name}" for name, n in counts.items() if n) or "nothing"


def _describe_object(thing: Any) -> str:
    """Return an object's name; for a soup, also its ingredients and whether it is ready."""
    if thing.name != "soup":
        return str(thing.name)
    state = "not cooking" if thing.is_idle else "ready" if thing.is_ready else f"ready in {thing.cook_time_remaining}"
    return f"soup of {_describe_ingredients(thing.ingredients)}, {state}"


def _describe_cook(seat: str, cook: Any) -> str:
    holds = f", holding {_describe_object(cook.held_object)}" if cook.held_object else ""
    return f"{seat} at {_format_place(cook.position)} facing {FACING[cook.orientation]}{holds}"


class _OldNumpy(types.ModuleType):
    """numpy with the name `Inf`, which the library's planners use but numpy 2 removed."""

    Inf = np.inf

    def __getattr__(self, name: str) -> Any:
        return getattr(np, name)


@functools.cache
def _make_planner(name: str) -> Any:
    """Return a kitchen's path planner for the library's greedy cook, computed once per process.

    Joint plans are omitted, because this cook does not use them. The library would take up to 15 s for them and write
    them into its own folder.
    """
    planners: Any = importlib.import_module(f"{MODULE}.planning.planners")
    agents: Any = importlib.import_module(f"{MODULE}.agents.agent")
    planners.np = agents.np = _OldNumpy("numpy")
    manager = object.__new__(planners.MediumLevelActionManager)
    manager.mdp = load_kitchen(name)
    manager.motion_planner = planners.MotionPlanner(load_kitchen(name), [])
    manager.joint_motion_planner = types.SimpleNamespace(motion_planner=manager.motion_planner)
    return manager


class Greedy:
    """Player that acts as Overcooked-AI's GreedyHumanModel, which at each step heads for the nearest urgent target.

    Raises ValueError for a kitchen that the model cannot play.
    """

    def __init__(self, game: Overcooked, seed: int) -> None:
        orders = load_kitchen(game.kitchen_name).start_all_orders
        if [tuple(order["ingredients"]) for order in orders] != [ONIONS] or len(game.seats) != 2:
            raise ValueError(f"expert plays only kitchens of two whose only order is three onions, not {game.title}")
        self.game, self._chance = game, OwnRandom(np.random.default_rng(seed))
        with self._chance.activate():
            planner = _make_planner(game.kitchen_name)
            self._cook = importlib.import_module(f"{MODULE}.agents.agent").GreedyHumanModel(planner)

    def __call__(self, view: View) -> str:
        """Return the next act. If the library fails, append the error to `game.faults` and return "stay"."""
        game = self.game
        self._cook.set_agent_index(game.seats.index(view.seat))
        try:
            with game._set_recipes(), self._chance.activate():
                act, _ = self._cook.action(game.env)
        except Exception as error:  # noqa: BLE001 some kitchens break the library's assertions
            game.faults.append(f"expert: {to_one_line(f'{type(error).__name__}: {error}')}")
            return "stay"
        return FACING[act]


Overcooked.players = {"noop": lambda game, seed: lambda view: "stay", "expert": Greedy}
