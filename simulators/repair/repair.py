"""Game of repairing failing functions: edit, run the visible tests, submit; hidden tests decide."""

from __future__ import annotations

import ast
import builtins
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, NamedTuple

import numpy as np

from games.base import IllegalAct, whole_number
from games.contracts import TOOL, View
from games.python_source import parse_python
from games.slow import offload
from simulators.base import Script, Simulator
from simulators.confine.code import find_obstacle, run_python

ENGINEER = "engineer"
PASSED, STEP, SUBMITTED = "passed", "step", "submitted"
EDIT = re.compile(r"EDIT\s+(\w+)\s*:\s*(\S.{0,199})", re.IGNORECASE)
VISIBLE, HIDDEN, LARGEST = 2, 6, 9
"""Numbers of visible and hidden tests per function, and largest argument of a test."""
SECONDS = 1.0
"""CPU seconds per isolated process; tests need almost none. One that sleeps is stopped after 3 s of wall-clock time."""


class Function(NamedTuple):
    """Function to repair: its description, its correct expression `right`, and wrong ones, `bugs`."""

    description: str
    right: str
    bugs: tuple[str, ...]


BANK: Mapping[str, Function] = {
    "total": Function("a and b together", "a + b", ("a - b", "a * b")),
    "less": Function("a without b", "a - b", ("b - a", "a + b")),
    "product": Function("a times b", "a * b", ("a + b", "a ** b")),
    "larger": Function("the larger of a and b", "max(a, b)", ("min(a, b)", "a")),
    "smaller": Function("the smaller of a and b", "min(a, b)", ("max(a, b)", "b")),
    "distance": Function("how far a and b are apart", "abs(a - b)", ("a - b", "abs(a + b)")),
    "twice": Function("twice a, and b", "2 * a + b", ("2 * (a + b)", "a + 2 * b")),
    "squares": Function("the squares of a and b together", "a * a + b * b", ("(a + b) * (a + b)", "a * a * b * b")),
}
CANDIDATES = tuple(function.right for function in BANK.values())
COMPILED: Mapping[str, Callable[[int, int], int]] = {
    expression: eval(f"lambda a, b: {expression}")  # trusted code, compiled once
    for function in BANK.values()
    for expression in (function.right, *function.bugs)
}
Case = tuple[int, int]


class Repair(Simulator):
    """Game of one engineer, who edits a small repository of failing functions, runs tests and submits.

    Acts: EDIT name: expression (the function's return value), RUN (the visible tests), SUBMIT. Options in addition to
    Simulator's: functions: number of functions, 1 to 4, all failing. max_turns: maximum number of acts, at least one
    more than functions. There is no talk, so an expression may contain "|".

    Reward part "passed": on submitting, the share of functions that pass all hidden tests. Parts "step", 1 for every
    effective edit and every run, and "submitted", 1 for submitting edited functions, serve credit assignment only
    (gated reward accumulation) and do not belong to the payoff. An edit earns neither if its expression uses neither a
    nor b, or an unknown name.
    """

    name = "repair"
    seats = (ENGINEER,)
    blocks = True  # while code runs
    whole_acts = True
    rules_version = 2
    metadata: ClassVar[dict[str, Any]] = {"name": "repair_v0", "render_modes": ["ansi"]}
    reward_parts: Mapping[str, str] = {
        PASSED: "share of functions right", STEP: "an edit or a run", SUBMITTED: "an edited repository was submitted",
    }  # fmt: skip
    unpaid_parts = (STEP, SUBMITTED)

    def __init__(self, *, functions: int = 2, max_turns: int | None = None, **options: Any) -> None:
        self.count = whole_number("functions", functions, least=1, most=4)
        turns = 4 * self.count if max_turns is None else max_turns
        self.max_turns = whole_number("max_turns", turns, least=self.count + 1)
        if why := find_obstacle():
            raise ValueError(why)
        super().__init__(talk=False, **options)

    def set_up(self, rng: np.random.Generator, options: Mapping[str, Any]) -> None:
        """Draw the functions, a bug for each, visible tests that the bug fails, and hidden tests.

        Every wrong expression known for a function fails at least one of its hidden tests. The reset option `unseen`
        sets the hidden tests, as `twin_deals` does.
        """

        def draw() -> dict[str, str]:
            names = rng.choice(list(BANK), size=self.count, replace=False).tolist()
            return {name: str(rng.choice(BANK[name].bugs)) for name in names}

        self.bodies: dict[str, str] = self.draw_entity(draw, lambda bodies: repr(dict(sorted(bodies.items()))))
        self.names = tuple(self.bodies)
        self.tests = {name: _draw_separating_cases(name, rng, VISIBLE, [bug]) for name, bug in self.bodies.items()}
        unseen = options.get("unseen")
        self.unseen = (
            self._draw_hidden_tests(rng)
            if unseen is None
            else {name: [*map(tuple, unseen[name])] for name in self.names}
        )
        self._runs = self._edits = self._plausible_edits = 0
        self._right_share = 0.0

    def _draw_hidden_tests(self, rng: np.random.Generator) -> dict[str, list[Case]]:
        """Draw hidden tests by function, such that every known wrong expression fails at least one of them."""
        return {name: _draw_separating_cases(name, rng, HIDDEN, [*CANDIDATES, *BANK[name].bugs]) for name in self.names}

    @property
    def turns_left(self) -> int:
        """Remaining acts, the next one included."""
        return self.max_turns - self.turns

    def rules(self) -> str:
        """Return the acts, the goal and the number of turns, as text."""
        return (
            "Every function of this repository fails. EDIT name: expression changes what it returns, RUN shows how "
            f"the tests go, SUBMIT ends: then tests that you have not seen decide. {self.max_turns} turns in all."
        )

    def public(self) -> dict[str, Any]:
        """Return `names` of functions, `source`, visible `tests` as text, and `edits`, `runs` and `turns_left`."""
        tests = [
            f"{name}({a}, {b}) == {_compute_expected(name, (a, b))}" for name in self.names for a, b in self.tests[name]
        ]
        facts = {"names": list(self.names), "source": self.write_source(), "tests": tests}
        return {**facts, "edits": self._edits, "runs": self._runs, "turns_left": self.turns_left}

    def hidden(self) -> dict[str, tuple[str, ...]]:
        """Return the hidden tests of each function that are not visible too, as calls such as `total(1, 2)`."""
        return {
            f"a test of {name}": tuple(f"{name}{case}" for case in self.unseen[name] if case not in self.tests[name])
            for name in self.names
        }

    def twin_deals(self, seat: str, rng: np.random.Generator) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return reset options of the same repository with two different sets of hidden tests."""
        return {"unseen": self._draw_hidden_tests(rng)}, {"unseen": self._draw_hidden_tests(rng)}

    def write_source(self) -> str:
        """Return the repository's current source code."""
        return "\n\n".join(
            f'def {name}(a, b):\n    """Return {BANK[name].description}."""\n    return {body}'
            for name, body in self.bodies.items()
        )

    def play(self, seat: str, act: str) -> str:
        """Play an act: edit a function, run the visible tests, or submit. Returns the act in normal form.

        The seat is told the tests' output. Raises IllegalAct for any other act.
        """
        act = act.strip()
        word = act.upper()
        if edit := EDIT.fullmatch(act):
            return self._edit(seat, edit[1], edit[2])
        if word == "RUN":
            self._runs += 1
            self.pay(seat, STEP, 1.0)
            self.tell(self._run_tests(), sender=TOOL)
        elif word == "SUBMIT":
            self._submit(seat)
            return word
        else:
            raise IllegalAct("write EDIT name: expression, RUN or SUBMIT")
        self._end_if_last_turn()
        return word

    def _edit(self, seat: str, name: str, body: str) -> str:
        if name not in self.bodies:
            raise IllegalAct(f"there is no function {name[:40]}; there are {', '.join(self.names)}")
        if not body.isprintable():  # its display could differ from its content
            raise IllegalAct("an expression holds no control or invisible characters")
        if body != self.bodies[name]:
            self._edits += 1
            if _is_plausible(body):
                self.pay(seat, STEP, 1.0)
                self._plausible_edits += 1
        self.bodies[name] = body
        self._end_if_last_turn()
        return f"EDIT {name}: {body}"

    def _end_if_last_turn(self) -> None:
        """End the match if this was the last turn."""
        if self.turns_left == 1:
            self.end("turns", "No turns are left, and nothing was submitted.")

    def _run_tests(self) -> str:
        """Run the visible tests and return their output. Known expressions need no isolated process."""
        if all(body in COMPILED for body in self.bodies.values()):
            cases = self._list_cases()
            return "\n".join(
                f"{n}{c} is {_evaluate(self.bodies[n], c)} and should be {_compute_expected(n, c)}" for n, c in cases
            )
        lines = [
            f"print('{n}{case} is', {n}{case}, 'and should be', {_compute_expected(n, case)})"
            for n, case in self._list_cases()
        ]
        code = "\n".join([self.write_source(), *lines])
        output = offload(run_python, code, seconds=SECONDS, output_bytes=2000).observation()
        return "".join(char for char in output if char == "\n" or char.isprintable())

    def _list_cases(self) -> list[tuple[str, Case]]:
        return [(name, case) for name in self.names for case in self.tests[name]]

    def _submit(self, seat: str) -> None:
        """Pay the share of functions that pass all hidden tests, and end the match.

        Each function runs in a separate isolated process, so that none can affect another.
        """
        if self._plausible_edits:
            self.pay(seat, SUBMITTED, 1.0)
        results = [self._passes(name) for name in self.names]
        self._right_share = sum(results) / len(results)
        self.pay(seat, PASSED, self._right_share)
        self.end("submitted", f"{sum(results)} of {len(results)} functions are right.")

    def _passes(self, name: str) -> bool:
        cases = self.unseen[name]
        if function := COMPILED.get(self.bodies[name]):  # a known expression needs no isolated process
            return all(function(*case) == _compute_expected(name, case) for case in cases)
        code = f"def f(a, b):\n    return {self.bodies[name]}\nprint([f(a, b) for a, b in {cases}])"
        outcome = offload(run_python, code, seconds=SECONDS, output_bytes=2000)
        return outcome.stdout == f"{[_compute_expected(name, case) for case in cases]}\n"

    def figures(self) -> dict[str, float | bool | str]:
        """Return `score` (share of correct functions), `success` (all are), `edits`, `runs`, and `submitted` (bool)."""
        counts = {"edits": self._edits, "runs": self._runs, "submitted": self.ended == "submitted"}
        return {"score": self._right_share, "success": self._right_share == 1.0, **counts}

    @property
    def floor(self) -> float:
        """Probability that random correct expressions repair all functions: (1/8) ** functions."""
        return float(len(CANDIDATES)) ** -self.count


def _is_plausible(body: str) -> bool:
    """Return True for an expression that uses a or b and otherwise only builtins; others cannot be correct."""
    try:
        tree = parse_python(body, "eval")
    except ValueError:
        return False
    parts = list(ast.walk(tree))
    bound = {part.arg for part in parts if isinstance(part, ast.arg)}
    bound |= {part.id for part in parts if isinstance(part, ast.Name) and not isinstance(part.ctx, ast.Load)}
    used = {part.id for part in parts if isinstance(part, ast.Name)} - bound
    return bool(used & {"a", "b"}) and all(name in ("a", "b") or hasattr(builtins, name) for name in used)


def _compute_expected(name: str, case: Case) -> int:
    """Return the correct result of the function for these arguments (a, b)."""
    return _evaluate(BANK[name].right, case)


def _evaluate(expression: str, case: Case) -> int:
    """Evaluate a known expression, never a model-written one, for these arguments (a, b)."""
    return int(COMPILED[expression](*case))


def _draw_separating_cases(name: str, rng: np.random.Generator, count: int, others: Sequence[str]) -> list[Case]:
    """Draw `count` test cases (a, b) such that each wrong expression in `others` fails at least one of them."""
    wrong = [expression for expression in others if expression != BANK[name].right]
    while True:
        cases = [(int(a), int(b)) for a, b in rng.integers(0, LARGEST + 1, size=(count, 2))]
        if all(any(_evaluate(other, case) != _compute_expected(name, case) for case in cases) for other in wrong):
            return cases


def _make_random(game: Repair, seed: int) -> Script:
    """Return a player that gives every function a random expression that is correct for some function, then submits.

    In between it sometimes runs the tests, as often as the turns allow.
    """
    rng = np.random.default_rng([seed, 1])  # independent of the match, which may have the same seed
    todo: list[int | str] = []
    for n in range(game.count):
        runs = rng.integers(2) == 0 and game.max_turns > game.count + 1 + todo.count("RUN")
        todo += ["RUN", n] if runs else [n]

    def act(view: View) -> str:
        step = todo.pop(0) if todo else "SUBMIT"
        return step if isinstance(step, str) else f"EDIT {view.public['names'][step]}: {rng.choice(CANDIDATES)}"

    return act


def _make_oracle(game: Repair, seed: int) -> Script:
    """Return a player that gives every function its correct expression and submits."""
    todo = list(range(game.count))

    def act(view: View) -> str:
        name = view.public["names"][todo.pop(0)] if todo else ""
        return f"EDIT {name}: {BANK[name].right}" if name else "SUBMIT"

    return act


Repair.players = {"noop": lambda game, seed: lambda view: "SUBMIT", "random": _make_random, "oracle": _make_oracle}
