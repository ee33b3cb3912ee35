"""Scripted players of single-seat games, as baselines. They know the rules and only what their seat sees."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Mapping

from agents.player import ScriptedPolicy
from games.contracts import View

Cell = tuple[int, int]
STEPS = {"NORTH": (0, -1), "EAST": (1, 0), "SOUTH": (0, 1), "WEST": (-1, 0)}
DIRECTIONS = tuple(STEPS)  # clockwise


def step(cell: Cell, direction: str) -> Cell:
    """Return the adjacent cell (x, y) in a direction: NORTH, EAST, SOUTH or WEST."""
    return cell[0] + STEPS[direction][0], cell[1] + STEPS[direction][1]


def find_first_steps(doors: Mapping[Cell, list[str]], start: Cell) -> dict[Cell, str]:
    """Return the first step of a shortest path to every reachable cell, as a direction; "" for the start itself.

    `doors` maps each cell to the directions in which it can be left.
    """
    first_steps, queue = {start: ""}, [start]
    for cell in queue:
        for way in doors.get(cell, ()):
            target = step(cell, way)
            if target not in first_steps:
                first_steps[target] = first_steps[cell] or way
                queue.append(target)
    return first_steps


class Halver:
    """Player of twenty questions: asks the question that splits the remaining things most evenly; guesses the last two.

    Needs the list of all things with their facts (game option open_book). Without it, plays a random untried act.
    """

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)

    def act(self, view: View) -> str:
        """Return an ASK or GUESS act."""
        answers, legal = view.public["answers"], view.legal or ("",)
        untried = [act for act in legal if act not in answers] or list(legal)
        if "book" not in view.public:
            return self.rng.choice(untried)
        book = {name: frozenset(facts) for name, facts in view.public["book"].items()}
        possible = {facts: name for name, facts in book.items() if self._fits(facts, book, answers)}
        if len(possible) <= 2:
            return f"GUESS {next(iter(possible.values()))}" if possible else self.rng.choice(untried)
        counts = Counter(question for facts in possible for question in facts)
        return f"ASK {min(sorted(counts), key=lambda question: abs(2 * counts[question] - len(possible)))}"

    def _fits(self, facts: frozenset[str], book: Mapping[str, frozenset[str]], answers: Mapping[str, str]) -> bool:
        for act, answer in answers.items():
            kind, _, subject = act.partition(" ")
            yes = subject in facts if kind == "ASK" else facts == book.get(subject)
            if yes != (answer == "yes"):
                return False
        return True


def mark_guess(guess: str, word: str) -> str:
    """Return Wordle's marks for a guess, one per letter: G (right place), Y (elsewhere in the word) or -.

    Each letter of the word allows only one G or Y. G has priority, then Y from left to right.
    """
    spare = Counter(hidden for letter, hidden in zip(guess, word, strict=True) if letter != hidden)
    marks = ""
    for letter, hidden in zip(guess, word, strict=True):
        marks += "G" if letter == hidden else "Y" if spare[letter] > 0 else "-"
        spare[letter] -= letter != hidden
    return marks


class ConsistentGuesser:
    """Wordle player: guesses a random listed word that is consistent with all marks so far."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)

    def act(self, view: View) -> str:
        """Return a GUESS act with a word; "" if no acts are listed."""
        guesses = [line.split() for line in view.public["guesses"]]
        legal = view.legal or ("",)
        fitting = [act for act in legal if all(mark_guess(guess, act.split()[-1]) == marks for guess, marks in guesses)]
        return self.rng.choice(fitting or legal)


class Careless:
    """Player that takes a random legal act with probability 1/3, and the act of another player otherwise.

    Its matches are data of mixed quality for offline learning.
    """

    def __init__(self, seed: int, player: ScriptedPolicy) -> None:
        self.rng, self.player = random.Random(f"careless {seed}"), player

    def act(self, view: View) -> str:
        """Return the other player's act, or a random listed act."""
        act = self.player.act(view)
        return self.rng.choice(view.legal or (act,)) if self.rng.random() < 1 / 3 else act


class MapReader:
    """Maze player with the full view: follows a shortest path. Ignores the seed."""

    def __init__(self, seed: int = 0) -> None:
        pass

    def act(self, view: View) -> str:
        """Return the direction of the next step."""
        grid = {(x, y): mark for y, row in enumerate(view.public["map"].split("\n")) for x, mark in enumerate(row)}
        cells = {mark: cell for cell, mark in grid.items()}
        doors = {cell: [way for way in DIRECTIONS if grid.get(step(cell, way), "#") != "#"] for cell in grid}
        return find_first_steps(doors, cells["W"])[cells["G"]]


class WallFollower:
    """Maze player for any view: keeps its right hand on the wall. Ignores the seed."""

    def __init__(self, seed: int = 0) -> None:
        self.facing = 0

    def act(self, view: View) -> str:
        """Return the direction to the right if it is open, else ahead, else left, else back, and turn to it."""
        turns = [(self.facing + turn) % 4 for turn in (1, 0, 3, 2)]
        self.facing = next(turn for turn in turns if DIRECTIONS[turn] in view.public["exits"])
        return DIRECTIONS[self.facing]


class Fetcher:
    """Text-navigation player: explores depth first, then carries the item to the goal by the shortest known path."""

    def __init__(self, seed: int = 0) -> None:
        self.position: Cell = (0, 0)
        self.doors: dict[Cell, list[str]] = {}
        self.rooms: dict[str, Cell] = {}
        self.path_back: list[str] = []  # directions of the way back to the first room

    def act(self, view: View) -> str:
        """Update the map and return a TAKE, DROP or GO act."""
        facts = view.public
        item, _, goal = facts["task"].partition(" to ")
        self.doors[self.position], self.rooms[facts["room"]] = facts["exits"], self.position
        carried = item in facts["carried"]
        if item in facts["items"] and not carried:
            return f"TAKE {item}"
        if carried and facts["room"] == goal:
            return f"DROP {item}"
        way = self._approach(self.rooms[goal]) if carried and goal in self.rooms else self._explore()
        self.position = step(self.position, way)
        return f"GO {way}"

    def _approach(self, goal: Cell) -> str:
        return find_first_steps(self.doors, self.position)[goal]

    def _explore(self) -> str:
        for way in self.doors[self.position]:
            if step(self.position, way) not in self.doors:
                self.path_back.append(DIRECTIONS[(DIRECTIONS.index(way) + 2) % 4])
                return way
        return self.path_back.pop()


def make_careless_halver(seed: int) -> Careless:
    """Play like `halver`, but with probability 1/3 take a random act."""
    return Careless(seed, Halver(seed))


def make_careless_guesser(seed: int) -> Careless:
    """Play like `consistent_guesser`, but with probability 1/3 guess a random word."""
    return Careless(seed, ConsistentGuesser(seed))


SCRIPTED: dict[str, Callable[[int], ScriptedPolicy]] = {
    "halver": Halver, "consistent_guesser": ConsistentGuesser, "map_reader": MapReader,
    "wall_follower": WallFollower, "fetcher": Fetcher,
    "careless_halver": make_careless_halver, "careless_guesser": make_careless_guesser,
}  # fmt: skip
GAMES: dict[str, tuple[str, ...]] = {
    "halver": ("twenty_questions", "guess_city"), "consistent_guesser": ("wordle",), "map_reader": ("maze",),
    "wall_follower": ("maze",), "fetcher": ("text_navigation",),
    "careless_halver": ("twenty_questions", "guess_city"), "careless_guesser": ("wordle",),
}  # fmt: skip
