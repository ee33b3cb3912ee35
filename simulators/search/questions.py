"""Convert programs to questions in words and back, and draw questions from a world."""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple

import numpy as np

from simulators.search.programs import Chain, Form, Program, evaluate, find_ends, find_evidence
from simulators.search.relations import KINDS, NUMBERS, RELATIONS
from simulators.search.world import World

Sort = Literal["chain", "compare", "count", "unanswerable"]
SORTS: tuple[Sort, ...] = ("chain", "compare", "count", "unanswerable")
NONE = "none"
"""Right answer to an unanswerable question."""
MAX_HOPS = 4
TRIES = 2_000
"""Maximum number of programs drawn for one question."""
MAX_REQUEST = 60
"""Maximum number of words read of a freely worded question."""


class Question(NamedTuple):
    """A question with its right answers, the pages that support them, and its program, if it has one."""

    text: str
    answers: tuple[str, ...]
    """Alternative right answers; NONE if there is no answer."""
    sort: str
    """A `Sort`, or "given" for a file's questions."""
    hops: int
    """Number of facts that the answer combines."""
    evidence: frozenset[str] = frozenset()
    """Titles of the pages that the answer rests on."""
    program: Program | None = None

    def __deepcopy__(self, memo: object) -> Question:
        """Return the same object: a question is immutable."""
        return self

    @property
    def answer(self) -> str:
        """First of the right answers."""
        return self.answers[0]


def word_question(program: Program) -> str:
    """Return a program as a question in the world's standard words, such as "What is the mentor of NAME?"."""
    nouns = [_word_chain(chain) for chain in program.chains]
    if program.form == "chain":
        return f"What is {nouns[0]}?"
    if program.form == "count":
        chain = program.chains[0]
        relation = RELATIONS[chain.steps[-1][1:]]
        inner = _word_chain(Chain(chain.start, chain.steps[:-1]))
        return f"How many {KINDS[relation.source].plural} have {inner} as their {relation.noun}?"
    return f"Which has the {program.form} {RELATIONS[program.number].noun}: {nouns[0]}, or {nouns[1]}?"


def _word_chain(chain: Chain) -> str:
    phrase = chain.start
    for step in chain.steps:
        relation = RELATIONS[step.removeprefix("^")]
        phrase = (
            f"the {relation.source} with {phrase} as {relation.noun}"
            if step[0] == "^"
            else f"the {relation.noun} of {phrase}"
        )
    return phrase


def read_question(text: str) -> Program | None:
    """Parse a question worded as `word_question` words it; return its program, or None. Extra spaces do not matter."""
    text = " ".join(text.split())
    if match := re.fullmatch(r"What is (.+)\?", text):
        chain = _parse_noun_phrase(match[1])
        return (chain and chain.steps and Program("chain", (chain,))) or None
    if match := re.fullmatch(r"How many (\w+) have (.+) as their ([\w ]+)\?", text):
        inner, relation = _parse_noun_phrase(match[2]), _index_by_noun().get(match[3])
        if inner is None or relation is None or KINDS[RELATIONS[relation].source].plural != match[1]:
            return None
        return Program("count", (Chain(inner.start, (*inner.steps, f"^{relation}")),))
    if match := re.fullmatch(r"Which has the (larger|smaller) ([\w ]+): (.+), or (.+)\?", text):
        left, right, number = _parse_noun_phrase(match[3]), _parse_noun_phrase(match[4]), _index_by_noun().get(match[2])
        form: Form = "larger" if match[1] == "larger" else "smaller"
        if left is not None and right is not None and number is not None and number in NUMBERS:
            return Program(form, (left, right), number)
    return None


def find_question(text: str) -> Program | None:
    """Parse a question in free words: one in standard words, else the longest noun phrase that is a chain, or None."""
    if (program := read_question(text)) is not None:
        return program
    words = text.rstrip(" .?!").split()[:MAX_REQUEST]
    starts = [place for place, word in enumerate(words) if word == "the"]
    spans = [(start, end) for start in starts for end in range(start + 4, len(words) + 1)]
    for start, end in sorted(spans, key=lambda span: span[0] - span[1]):
        chain = _parse_noun_phrase(" ".join(words[start:end]))
        # A name is capitalised, so "the mentor of Ada Lom is" is no chain from a thing called "Ada Lom is".
        if chain is not None and chain.steps and chain.start.split()[-1][0].isupper():
            return Program("chain", (chain,))
    return None


@functools.cache
def _index_by_noun() -> Mapping[str, str]:
    return {relation.noun: name for name, relation in RELATIONS.items()}


@functools.cache
def _compile_noun_phrase() -> re.Pattern[str]:
    nouns = "|".join(relation.noun for relation in RELATIONS.values())
    return re.compile(rf"the ({nouns}) of (.+)|the ({'|'.join(KINDS)}) with (.+) as ({nouns})")


def _parse_noun_phrase(text: str, depth: int = 12) -> Chain | None:
    """Parse a nested noun phrase, such as "the mayor of the seat of NAME", to a chain; None if it is none."""
    found = _compile_noun_phrase().fullmatch(text)
    if found is None or depth == 0:
        return Chain(text) if depth and re.fullmatch(r"\w[\w '-]{0,79}", text) and not text.startswith("the ") else None
    noun, of, kind, other, backwards = found.groups()
    inner = _parse_noun_phrase(of or other, depth - 1)
    relation = _index_by_noun()[noun or backwards]
    if inner is None or (kind and RELATIONS[relation].source != kind):
        return None
    return Chain(inner.start, (*inner.steps, f"^{relation}" if kind else relation))


def draw_question(
    world: World, rng: np.random.Generator, sorts: Sequence[Sort], hops: tuple[int, int], backwards: bool = True
) -> Question:
    """Draw a question of one of these sorts with hops from (low, high), all sorts and hops equally likely.

    Without `backwards` only the last step of a count goes backwards (from a value to the things that have it). Raises
    ValueError if the world has no such question.
    """
    sort = sorts[int(rng.integers(len(sorts)))]
    hop_count = int(rng.integers(hops[0], hops[1] + 1))
    for _ in range(TRIES):
        program = _draw_program(Walker(world, rng, backwards), sort, hop_count)
        if program is not None and (question := make_question(world, program, sort)) is not None:
            return question
    raise ValueError(f"this world has no question of sort {sort} over {hop_count} hops: take more pages, or other hops")


def make_question(world: World, program: Program, sort: Sort) -> Question | None:
    """Return the program as a question of this sort, or None if its answer does not suit the sort.

    Unanswerable questions must have no answer, all others exactly one. A chain's answer must not occur in the question,
    and a count must not be 0.
    """
    found = evaluate(program, world)
    text = program.terse if world.terse else word_question(program)
    pages = find_evidence(program, world)
    if sort == "unanswerable":
        return None if found else Question(text, (NONE,), sort, program.hops, pages, program)
    answer = next(iter(found), "")
    if sort == "count" and answer == "0":  # half of all draws: always answering 0 would be right too often
        return None
    named = sort == "chain" and re.search(rf"\b{re.escape(answer)}\b", text)
    right = len(found) == 1 and not named
    return Question(text, (answer,), sort, program.hops, pages, program) if right else None


class Walker(NamedTuple):
    """Random walker on a world's graph that draws chains of steps; `backwards` allows steps against a relation."""

    world: World
    rng: np.random.Generator
    backwards: bool

    def pick(self, choices: Sequence[str]) -> str:
        """Draw one of the choices uniformly."""
        return choices[int(self.rng.integers(len(choices)))]

    def walk(self, start: str, hops: int, numbers: bool = True) -> tuple[Chain, str] | None:
        """Draw a chain of `hops` steps from a thing. Returns the chain and the value at its end, or None at a dead end.

        Every step has a single end that was not visited before. A number can only be last, and is excluded if `numbers`
        is False.
        """
        thing, steps, visited = start, [], {start}
        for remaining in range(hops, 0, -1):
            possible = _list_steps(self.world.kind(thing), None if self.backwards else False)
            step = self.pick([step for step in possible if (numbers and remaining == 1) or step not in NUMBERS])
            found = find_ends(Chain(thing, (step,)), self.world)
            if len(found) != 1 or visited & found:
                return None
            thing = next(iter(found))
            visited.add(thing)
            steps.append(step)
        return Chain(start, tuple(steps)), thing


def _draw_program(walker: Walker, sort: Sort, hops: int) -> Program | None:
    start = walker.pick(walker.world.names)
    if sort == "compare":
        return _draw_comparison(walker, start, hops - 1)
    walk = walker.walk(start, hops - (sort != "chain"))
    if walk is None:
        return None
    chain, end = walk
    if sort == "chain":
        return Program("chain", (chain,))
    # An unanswerable chain ends with a fact that is not stated, or a backward step without results.
    backwards = True if sort == "count" else None if walker.backwards else False
    last = _list_steps(walker.world.kind(end), backwards)
    longer = (Chain(start, (*chain.steps, walker.pick(last))),) if last else None
    return longer and Program("count" if sort == "count" else "chain", longer)


def _draw_comparison(walker: Walker, start: str, hops: int) -> Program | None:
    """Draw a comparison, by a number, of the ends of two chains with the same steps; None at a dead end."""
    world, walk = walker.world, walker.walk(start, hops, numbers=False)
    if walk is None:
        return None
    chain, end = walk
    numbers = [name for name in NUMBERS if RELATIONS[name].source == world.kind(end)]
    other = walker.pick(world.of_kind[world.kind(start)])
    if not numbers or other == start:
        return None
    form: Form = "larger" if walker.rng.random() < 0.5 else "smaller"
    return Program(form, (chain, Chain(other, chain.steps)), walker.pick(numbers))


@functools.cache
def _list_steps(kind: str, backwards: bool | None = None) -> tuple[str, ...]:
    """Return the steps from a thing of this kind: all (None), only backward (True), or only forward (False)."""
    ahead = [name for name, relation in RELATIONS.items() if relation.source == kind and backwards is not True]
    back = [f"^{name}" for name, relation in RELATIONS.items() if relation.target == kind and backwards is not False]
    return (*ahead, *(back if kind else ()))
