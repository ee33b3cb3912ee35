"""Conformance kit: `check(make)` plays a game in many ways and reports which requirements of a game it meets.

findings = check(lambda: games.make("kuhn_poker"), seeds=50, acts=5000)
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import itertools
import math
import random
import time
import unicodedata
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from pettingzoo.test import api_test, seed_test

from games.abilities import Pictures
from games.base import TextGame
from games.conformance.fuzz import (
    MAX_MATCH_LENGTH,
    MIN_LEGAL_SHARE,
    BrokenPromise,
    GameFactory,
    Inconclusive,
    error_line,
    fuzz,
    to_json,
)
from games.conformance.openness import shows_everything
from games.conformance.random_acts import TALK, draw_legal_act, find_legal_acts
from games.pictures import check_picture

START_SEEDS = 20
"""Number of seeds whose first views are compared if there are no twin deals."""


@dataclass(frozen=True)
class Finding:
    """Result of a conformance check, with a one-line `detail`. `ok` is None if the check was inconclusive."""

    name: str
    ok: bool | None
    detail: str
    seconds: float


def check(
    make: GameFactory, *, seeds: int = 20, acts: int = 2000, on_finding: Callable[[], None] = lambda: None
) -> list[Finding]:
    """Run all conformance checks on games from `make`, and return the findings in the order of `CHECKS`. Never raises.

    Most checks play `seeds` matches; the fuzz check plays `acts` acts. Calls `on_finding` after each check. Checks
    that need legal acts are inconclusive if a search finds hardly any.
    """
    findings, doubt = [], _explain_missing_acts(make)
    for name, examine in CHECKS.items():
        finding = run_check(name, examine, make, acts if name == "fuzz" else seeds)
        if doubt and finding.ok and name in NEED_LEGAL_ACTS:
            finding = replace(finding, ok=None, detail=f"{doubt}: {finding.detail}")
        findings.append(finding)
        on_finding()
    return findings


def _explain_missing_acts(make: GameFactory) -> str:
    """Return why random matches test little of this game, or "" if at least a tenth of the searches find legal acts."""
    try:
        success_count, search_count = find_legal_acts(make())
    except Exception:  # noqa: BLE001 the checks report it
        return ""
    if success_count >= MIN_LEGAL_SHARE * search_count:
        return ""
    failure_count = search_count - success_count
    return (
        f"almost only illegal acts were tested, because {failure_count} of {search_count} searches found no legal act"
    )


def run_check(name: str, examine: Callable[..., str], make: Callable[[], Any], count: int) -> Finding:
    """Run and time the check `examine(make, count)`. Returns its finding; an exception counts as a failure."""
    start_time = time.perf_counter()
    ok: bool | None
    try:
        ok, detail = True, examine(make, count)
    except Inconclusive as unchecked:
        ok, detail = None, str(unchecked)
    except BrokenPromise as broken:
        ok, detail = False, str(broken)
    except Exception as error:  # noqa: BLE001 a game that raises is a finding
        ok, detail = False, error_line(error)
    return Finding(name, ok, detail, time.perf_counter() - start_time)


# Matches and their views.


def _record_views(make: GameFactory, seed: int, game: TextGame | None = None) -> list[str]:
    """Play a match of random legal acts and return the views of all seats at each step, as JSON text."""
    return list(_play_match(game or make(), seed))


def _play_match(game: TextGame, seed: int) -> Iterator[str]:
    """Reset the game, play a random match, and yield all seats' views as JSON before the first act and after each."""
    game.reset(seed=seed)
    yield _dump_views(game)
    yield from _play_to_end(game, random.Random(seed))


def _play_to_end(game: TextGame, rng: random.Random) -> Iterator[str]:
    """Play the match to its end, and yield as JSON all seats' views after each act, and then payoffs and report.

    Equal generators draw equal acts. Raises BrokenPromise if the match does not end.
    """
    while not game.ended:
        if game.turns > MAX_MATCH_LENGTH:
            raise BrokenPromise(f"a match of random legal acts did not end in {MAX_MATCH_LENGTH} acts")
        act = draw_legal_act(game, rng)
        game.step(act or "")
        yield _dump_views(game)
    yield to_json([game.payoffs(), game.report()])


def _dump_views(game: TextGame) -> str:
    seats = {seat: [_read_view(game, seat), game.rewards[seat], game.infos[seat]] for seat in game.seats}
    return to_json([game.agent_selection, game.terminations, seats])


def _read_view(game: TextGame, seat: str) -> dict[str, Any]:
    """Return this seat's messages (`news`), facts and, if it is to move, legal acts."""
    is_to_move = game.agent_selection == seat and not game.ended
    news = game.observe(seat)["messages"]
    legal = game.legal(seat) if is_to_move else None
    return {"news": news, "public": game.public(), "private": game.private(seat), "legal": legal}


# Checks.


def _check_pettingzoo(make: GameFactory, seeds: int) -> str:
    """Run PettingZoo's own api_test and seed_test."""
    with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
        warnings.simplefilter("ignore")
        api_test(make(), num_cycles=seeds)
        seed_test(make, num_cycles=seeds)
    return f"api_test and seed_test, {seeds} cycles"


def _check_determinism(make: GameFactory, seeds: int) -> str:
    reused_game, views = make(), 0
    for seed in range(seeds):
        one = _record_views(make, seed)
        views += len(one)
        if one != _record_views(make, seed):
            raise BrokenPromise(f"seed {seed}: the same seed and acts gave another match")
        if one != _record_views(make, seed, reused_game):
            raise BrokenPromise(f"seed {seed}: a reused game plays another match than a new one")
    return f"{seeds} seeds, three matches each: {views} identical views"


def _check_interleaving(make: GameFactory, seeds: int) -> str:
    after = _record_views(make, 0)
    for seed in range(seeds):
        random.seed(seed)
        np.random.seed(seed)
        outside = _read_global_states()
        before, after = after, _record_views(make, seed + 1)
        together: list[list[str]] = [[], []]
        for pair in itertools.zip_longest(_play_match(make(), seed), _play_match(make(), seed + 1)):
            for views, view in zip(together, pair, strict=True):
                views += [] if view is None else [view]
        if together != [before, after]:
            raise BrokenPromise(f"seeds {seed} and {seed + 1}: interleaved matches differ from matches played alone")
        if _read_global_states() != outside:
            raise BrokenPromise(f"seed {seed}: a match used the global generators of random or numpy")
    return f"{seeds} pairs of interleaved matches; global generators untouched"


def _read_global_states() -> str:
    return repr((random.getstate(), np.random.get_state(legacy=False)))


def _check_seeds(make: GameFactory, seeds: int) -> str:
    game, number = make(), max(seeds, 20)
    deals = set()
    for seed in range(number):
        game.reset(seed=seed)
        deals.add(_dump_views(game))
    if len(deals) == 1 and game.twin_deals(game.seats[0], np.random.default_rng(0)) is not None:
        raise BrokenPromise("the game has secrets (twin_deals), but every seed deals the same")
    return f"{len(deals)} different deals among {number} seeds" if len(deals) > 1 else "every seed starts the same"


def _check_secrets(make: GameFactory, seeds: int) -> str:
    one, two = make(), make()
    kinds, comparisons = 0, 0
    for seat in one.seats:
        for seed in range(seeds):
            one.reset(seed=seed)
            twins = one.twin_deals(seat, np.random.default_rng(seed))
            if twins is None:
                break
            kinds += seed == 0
            if repr(twins[0]) == repr(twins[1]):
                raise BrokenPromise(f"seed {seed}: twin_deals({seat!r}) gave the same deal twice")
            one.reset(seed=seed, options=twins[0])
            two.reset(seed=seed, options=twins[1])
            comparisons += _compare_views(one, two, seat, seed)
    if kinds:
        return (
            f"{comparisons} views at {kinds} of {len(one.seats)} seats, {seeds} seeds each, the same in both twin deals"
        )
    starts = _compare_first_views(one)
    if one.perfect_information:
        return "nothing is hidden, as the game says"
    if shows_everything(one):
        return "nothing is hidden: nothing is dealt, and all seats see every act (mcts and minimax may play)"
    if not _depends_on_seed(one):
        return "nothing is dealt: with the same acts every seed gives the same match"
    advice = "return two sets of options for reset from twin_deals(seat, rng) (docs/new-game.md#secrets)"
    raise Inconclusive(f"the kit cannot tell whether a seat sees another's secrets: {advice}; meanwhile, {starts}")


def _compare_first_views(game: TextGame) -> str:
    """Check that a seat with equal facts before the first act has equal rules and legal acts, and return a summary.

    Raises BrokenPromise if a seat's rules or legal acts reveal more than its facts.
    """
    seen: dict[str, str] = {}
    for seed, seat in itertools.product(range(START_SEEDS), game.seats):
        game.reset(seed=seed)
        facts = to_json([seat, game.agent_selection, {**_read_view(game, seat), "legal": None}])
        view = to_json(game.infos[seat])
        if seen.setdefault(facts, view) != view:
            raise BrokenPromise(
                f"seed {seed}: {seat} sees more than the facts at the start: {_find_difference(seen[facts], view)}"
            )
    first_views = START_SEEDS * len(game.seats)
    return f"of {first_views} first views {first_views - len(seen)} show the facts of another, and are the same"


def _depends_on_seed(game: TextGame) -> bool:
    """Return True if different seeds give different matches under equal generators of acts."""
    matches = set()
    for seed in range(START_SEEDS):
        game.reset(seed=seed)
        matches.add("".join([_dump_views(game), *_play_to_end(game, random.Random(0))]))
    return len(matches) > 1


def _compare_views(one: TextGame, two: TextGame, seat: str, seed: int) -> int:
    """Play both games with equal acts, compare this seat's views, and return the number of equal views.

    Stops if a match ends or an act is legal in one game only. Raises BrokenPromise if the views differ.
    """
    rng, comparisons = random.Random(seed), 0
    while not (one.ended or two.ended) and comparisons < MAX_MATCH_LENGTH:
        views = [to_json([_read_view(g, seat), g.infos[seat], g.rewards[seat], g.agent_selection]) for g in (one, two)]
        if views[0] != views[1]:
            raise BrokenPromise(
                f"seed {seed}, turn {one.turns}: {seat} sees what only others know: {_find_difference(*views)}"
            )
        comparisons += 1
        act = draw_legal_act(one, rng)
        trial, mover = two.clone(), two.agent_selection
        trial.step(act or "")
        if act is None or not trial.infos[mover]["valid"]:
            break
        one.step(act)
        two = trial
    return comparisons


def _find_difference(one: str, two: str) -> str:
    start = next((n for n, (a, b) in enumerate(zip(one, two, strict=False)) if a != b), 0)
    return f"…{one[max(0, start - 30) : start + 30]}… or …{two[max(0, start - 30) : start + 30]}…"


def _check_clones(make: GameFactory, seeds: int) -> str:
    for seed in range(seeds):
        game, rng = make().clone(), random.Random(seed)  # a game can also be cloned before its first reset
        game.reset(seed=seed)
        length = sum(1 for _ in _play_to_end(game, random.Random(seed)))
        game.reset(seed=seed)
        for _ in range(rng.randrange(length)):
            if game.ended:
                break
            game.step(draw_legal_act(game, rng) or "")
        twin, before = game.clone(), _dump_views(game)
        if _dump_views(twin) != before:
            raise BrokenPromise(f"seed {seed}: a clone differs from its original at once")
        continuation = list(_play_to_end(twin, random.Random(-seed)))
        if _dump_views(game) != before:
            raise BrokenPromise(f"seed {seed}: playing a clone changed the original")
        if list(_play_to_end(game, random.Random(-seed))) != continuation:
            raise BrokenPromise(f"seed {seed}: a clone continued differently from its original")
    return f"{seeds} clones in mid-match: equal, and independent"


def _check_facts(make: GameFactory, seeds: int) -> str:
    """Check that views are fresh and JSON-able, theory values are finite numbers, and talk arrives sanitised."""
    game = make()
    for name, value in game.theory.items():
        if not (isinstance(name, str) and isinstance(value, int | float) and math.isfinite(value)):
            raise BrokenPromise(f"theory[{name!r}] is not a finite number but {value!r}")
    for seed in range(seeds):
        game.reset(seed=seed)
        rng = random.Random(seed)
        while not game.ended and game.turns < 30:
            seat = game.agent_selection
            before = to_json(_read_view(game, seat))
            parts: list[Any] = [game.public(), game.private(seat), game.legal(seat) or []]
            for fresh in parts:
                fresh.clear()
            if to_json(_read_view(game, seat)) != before:
                raise BrokenPromise(f"seed {seed}: changing what public(), private() or legal() gave changes the game")
            game.step(f"{draw_legal_act(game, rng) or ''} {TALK}")
            _check_messages(game, f"seed {seed}, turn {game.turns}")
    return f"views JSON-able and fresh, hostile talk harmless; {len(game.theory)} theory values"


def _check_messages(game: TextGame, place: str) -> None:
    for seat in game.seats:
        for message in game.messages(seat):
            bad = [c for c in message.text if c != "\n" and unicodedata.category(c)[0] == "C"]
            if bad or (message.sender in game.seats and "\n" in message.text):
                raise BrokenPromise(f"{place}: {seat} reads control characters or forged lines: {message.text[:80]!r}")
            for image in message.images:
                data = game.picture(image.hash) if isinstance(game, Pictures) else b""
                if hashlib.sha256(data).hexdigest() != image.hash:
                    raise BrokenPromise(f"{place}: {seat} is shown {image.text}, but picture() returns other bytes")
                try:
                    check_picture(image, data)
                except ValueError as error:
                    raise BrokenPromise(f"{place}: {seat} is shown {image.text}: {error}") from None


PROMISES = {
    "pettingzoo": "PettingZoo's own tests of a turn-based environment pass",
    "determinism": "the same seed and acts give the same match: set up all state in set_up, and draw only from its rng",
    "interleaving": "interleaved matches do not affect each other: no globals, no class attributes that change",
    "seeds": "a game with secrets deals different ones for different seeds",
    "secrets": "no seat sees what only others know: write twin_deals (docs/new-game.md#secrets)",
    "clones": "clone() is equal and independent: keep state in plain values, or write __deepcopy__",
    "facts": "public(), private() and legal() return new values that JSON can express, and talk arrives sanitised",
    "fuzz": "no act raises an error, and no illegal act pays anybody: raise IllegalAct in play",
}
"""Requirement that each check tests, with a hint for games that fail it."""
NEED_LEGAL_ACTS = ("determinism", "interleaving", "secrets", "clones", "facts")
"""Checks that need legal acts and are inconclusive if hardly any is found. The fuzz check counts its own."""
CHECKS: dict[str, Callable[[GameFactory, int], str]] = {
    "pettingzoo": _check_pettingzoo,
    "determinism": _check_determinism,
    "interleaving": _check_interleaving,
    "seeds": _check_seeds,
    "secrets": _check_secrets,
    "clones": _check_clones,
    "facts": _check_facts,
    "fuzz": fuzz,
}
