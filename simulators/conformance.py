"""Conformance checks of simulators: those of all games, and checks of outcomes, floors, transcripts and leaks.

findings = check(lambda: games.make("clinic"), seeds=50, acts=5000)
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator
from functools import lru_cache
from hashlib import blake2b
from typing import NamedTuple

from games.conformance import kit
from games.conformance.fuzz import BrokenPromise, Inconclusive
from games.conformance.kit import Finding, run_check
from games.contracts import View
from games.families.book import fold
from simulators.base import Simulator

Make = Callable[[], Simulator]
Report = dict[str, float | bool | str]
NOOP_SCORE = 0.02
"""Highest mean score of a player that does nothing."""
DEVIATIONS = 4.0
"""Largest difference of the random player's success rate from its floor, in standard deviations."""


def check(
    make: Make, *, seeds: int = 20, acts: int = 2000, on_finding: Callable[[], None] = lambda: None
) -> list[Finding]:
    """Run all checks of games and simulators on the game that `make` creates, and return one Finding for each.

    Each check uses this many seeds; the fuzz check plays `acts` random acts. Calls `on_finding` after each check. Never
    raises.
    """
    return [*kit.check(make, seeds=seeds, acts=acts, on_finding=on_finding), *check_outcomes(make, seeds, on_finding)]


def check_outcomes(make: Make, seeds: int, on_finding: Callable[[], None] = lambda: None) -> list[Finding]:
    """Run the checks that only simulators have, call `on_finding` after each, and return one Finding per check."""
    findings = []
    for name, examine in CHECKS.items():
        findings.append(run_check(name, examine, make, seeds))
        on_finding()
    _play_seeds.cache_clear()
    return findings


def walk(game: Simulator, seed: int, player: str, others: str = "oracle") -> Iterator[View]:
    """Play a match of this seed to its end and yield the view of the seat to move before each act.

    `player` plays the first seat and `others` all other seats; both are names in `game.players`. Resets the game.
    """
    names = {seat: others for seat in game.seats} | {game.seats[0]: player}
    answers = {seat: game.players[name](game, seed + n) for n, (seat, name) in enumerate(names.items())}
    game.reset(seed=seed)
    turn = 0
    while not game.ended:
        view = view_of(game, turn)
        yield view
        game.step(answers[view.seat](view))
        turn += 1


def view_of(game: Simulator, turn: int = 0) -> View:
    """Return the view of the seat to move. `turn` is the index of the act in the match."""
    return View.of(game, game.agent_selection, turn)


def play(game: Simulator, seed: int, player: str, others: str = "oracle") -> Report:
    """Play a match of this seed, with `player` at the first seat and `others` at all others, and return its report."""
    for _ in walk(game, seed, player, others):
        pass
    return game.report()


class _PlayerMatches(NamedTuple):
    """Results of one player's matches, one match per seed."""

    reports: list[Report]
    transcripts: list[bytes]
    """Digests of the transcripts."""
    probes: int
    """Number of searches for a secret's text."""
    views: int
    """Number of views searched."""
    leak: str
    """Description of the first leak; "" if there is none."""


@lru_cache(maxsize=16)
def _play_seeds(make: Make, seeds: int, player: str) -> _PlayerMatches:
    """Play a match of every seed with one game, for all checks. Raises BrokenPromise if there is no such player."""
    game, reports, transcripts = make(), list[Report](), list[bytes]()
    if player not in game.players:
        raise BrokenPromise(f"{game.name} has no player `{player}`")
    probes, seen, leak = 0, 0, ""
    for seed in range(seeds):
        views, heard = list[View](), ""
        for view in walk(game, seed, player):
            views.append(view)
            if view.seat == game.seats[0]:
                heard += "".join(f" {fold(message.text)} ." for message in view.messages)
                count, found = _probe(game, f"{heard} {fold(repr([view.public, view.private]))}")
                probes, seen = probes + count, seen + 1
                leak = leak or (found and f"seed {seed}, turn {view.turn}: {found}")
        reports.append(game.report())
        transcripts.append(_digest(game, views))
    return _PlayerMatches(reports, transcripts, probes, seen, leak)


def _digest(game: Simulator, views: list[View]) -> bytes:
    return blake2b(repr((views, game.render())).encode("utf-8", "surrogatepass")).digest()


def _probe(game: Simulator, seen: str) -> tuple[int, str]:
    """Look for the first seat's secrets in the folded text it has seen. Returns their number and the first leak."""
    probes, leak = 0, ""
    for secret, texts in game.hidden().items():
        for text in texts:
            probes += 1
            words = fold(text)
            if not leak and words and words in seen and re.search(rf"\b{re.escape(words)}\b", seen):
                leak = f"`{text}` gives away {secret}"
    return probes, leak


def _play_reports(make: Make, seeds: int, player: str) -> list[Report]:
    """Return the reports of a player's matches. Raises BrokenPromise for a wrong type or range of score or success."""
    reports = _play_seeds(make, seeds, player).reports
    for seed, report in enumerate(reports):
        score, success = report.get("score"), report.get("success")
        if isinstance(score, bool) or not isinstance(score, int | float) or not 0 <= score <= 1:
            raise BrokenPromise(f"seed {seed}, {player}: score must be a number in [0, 1], not {score!r}")
        if not isinstance(success, bool):
            raise BrokenPromise(f"seed {seed}, {player}: success must be true or false, not {success!r}")
    return reports


def _average(reports: list[Report], figure: str) -> float:
    return sum(float(report[figure]) for report in reports) / len(reports)


def _check_noop(make: Make, seeds: int) -> str:
    score = _average(_play_reports(make, seeds, "noop"), "score")
    if score > NOOP_SCORE:
        raise BrokenPromise(f"doing nothing scores {score:.3f} on average, over {NOOP_SCORE}")
    return f"score {score:.3f} over {seeds} seeds"


def _check_random(make: Make, seeds: int) -> str:
    reports, floor = _play_reports(make, seeds, "random"), make().floor
    share = _average(reports, "success")
    tolerance = DEVIATIONS * math.sqrt(floor * (1 - floor) / seeds) + 1 / seeds
    if abs(share - floor) > tolerance:
        raise BrokenPromise(f"random acts succeed in {share:.3f} of {seeds} seeds, but `floor` is {floor:.3f}")
    return f"success {share:.3f}, floor {floor:.3f}, score {_average(reports, 'score'):.3f} over {seeds} seeds"


def _check_oracle(make: Make, seeds: int) -> str:
    for seed, report in enumerate(_play_reports(make, seeds, "oracle")):
        if report["score"] != 1 or not report["success"]:
            raise BrokenPromise(f"seed {seed}: the oracle scores only {report['score']}: {report}")
    return f"score 1 on each of {seeds} seeds"


def _check_transcripts(make: Make, seeds: int) -> str:
    for player in ("random", "oracle"):
        for seed, expected in enumerate(_play_seeds(make, seeds, player).transcripts):
            fresh = make()
            if _digest(fresh, list(walk(fresh, seed, player))) != expected:
                raise BrokenPromise(f"seed {seed}, {player}: the same seed and player gave another transcript")
    return f"{seeds} seeds, with random and oracle, twice the same"


def _check_leaks(make: Make, seeds: int) -> str:
    """Check that the first seat's messages and facts contain no text that reveals a secret. Returns a summary.

    Every scripted player of the game plays `seeds` matches, because players that talk longer see more. Texts are
    compared as folded words. Raises BrokenPromise at the first leak, and Inconclusive if the game names no secret.
    """
    game = make()
    matches = [_play_seeds(make, seeds, player) for player in game.players]
    if leak := next((each.leak for each in matches if each.leak), ""):
        raise BrokenPromise(leak)
    probes, views = sum(each.probes for each in matches), sum(each.views for each in matches)
    if not views:
        raise BrokenPromise(f"{game.name} has no player whose views could be searched")
    if not probes:
        raise Inconclusive(f"{game.name} names no secret of its first seat; {views} views")
    return f"{probes} probes of {views} views, nothing found"


PROMISES = kit.PROMISES | {
    "noop": "a player that does nothing scores at most 0.02: reward what was done, not what was left alone",
    "random": "a player of random listed acts succeeds as often as `floor` says: measure this rate and write it there",
    "oracle": "a player that knows the record always scores 1: else the task is impossible or judged wrongly",
    "transcripts": "the same seed and player give the same transcript: all randomness comes from the match's rng",
    "leaks": "no text in `hidden()` occurs in the first seat's views before the secret is told",
}
CHECKS: dict[str, Callable[[Make, int], str]] = {
    "noop": _check_noop,
    "random": _check_random,
    "oracle": _check_oracle,
    "transcripts": _check_transcripts,
    "leaks": _check_leaks,
}
