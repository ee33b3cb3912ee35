"""Parsers of judges' answers. They never raise, and return None for an answer without one clear verdict.

They accept the requested form with small deviations: letter case, bullets, emphasis, a reason after the verdict, or a
bare verdict as the whole answer. Answers with contradictory, missing or extra verdicts are unreadable.
"""

import re
from collections.abc import Iterable, Sequence

from agents.reply import remove_invisible

MAX_CHARACTERS = 20_000
"""Maximum number of characters of an answer."""
_REASON = r"(?:\.?|\s+(?:\(|[-–—]\s+|because\b|since\b)[^0-9]*|[.;]\s+[^\W\d_]{2}[^0-9]*)"
"""Text that may follow a verdict: nothing, or a reason. Reasons have no digits, which could be another verdict."""
_NUMBER = r"([-+]?[0-9]{1,9}(?:\.[0-9]{1,9})?)(?:\s*(?:/|out of)\s*([-+]?[0-9]{1,9}(?:\.[0-9]{1,9})?))?"
_ANY_CASE = re.IGNORECASE | re.ASCII
_BULLET = re.compile(r"^\s*(?:[-•>]\s+|[0-9]{1,2}[.)]\s+)?")


def read_scores(answer: str, names: Sequence[str], scale: tuple[float, float]) -> list[float] | None:
    """Return the score of each criterion, in order, from lines such as `polite: 4`; None if the answer is unreadable.

    Every criterion needs exactly one score, within the scale. `4/5` is accepted if the scale ends at 5. For a single
    criterion, a bare number is enough.
    """
    lines = _split_lines(answer)
    if len(names) == 1 and len(lines) == 1 and (bare := re.fullmatch(_NUMBER + r"\.?", lines[0])):
        return _require_in_scale([_parse_number(bare[1], bare[2], scale)], scale)
    found: dict[str, set[float]] = {name: set() for name in names}
    for line in lines:
        name, separator, rest = line.partition(":") if ":" in line else line.partition("=")
        key = name.strip().casefold().replace(" ", "_")
        if separator and key in found:
            match = re.fullmatch(rf"{_NUMBER}{_REASON}", rest.strip(), _ANY_CASE)
            found[key].add(_parse_number(match[1], match[2], scale) if match else float("nan"))
    if any(len(values) != 1 for values in found.values()):
        return None
    return _require_in_scale([values.pop() for values in found.values()], scale)


def read_winner(answer: str) -> float | None:
    """Return 1 for `WINNER: A`, 0 for B and 0.5 for a tie; None if the answer is unreadable."""
    lines = _split_lines(answer)
    marked_answers = [m for line in lines if (m := re.fullmatch(r"winner\s*[:=]\s*(.*)", line, _ANY_CASE))]
    answers = [match[1] for match in marked_answers] or (lines if len(lines) == 1 else [])
    verdicts = [re.fullmatch(rf"(?:match\s+)?(A|B|tie|draw){_REASON}", text, _ANY_CASE) for text in answers]
    values = {WINNERS[verdict[1].casefold()] if verdict else None for verdict in verdicts}
    return values.pop() if len(values) == 1 else None


WINNERS = {"a": 1.0, "b": 0.0, "tie": 0.5, "draw": 0.5}


def read_ranking(answer: str, count: int) -> list[float] | None:
    """Return each of `count` items' value in [0, 1] from a line such as `RANKING: 2 > 1 = 3`; None if unreadable.

    The best item has value 1, the worst 0, and the ranks between them are equally spaced; tied items share the mean of
    their ranks. Every number must occur exactly once.
    """
    lines = _split_lines(answer)
    marked_answers = [m[1] for line in lines if (m := re.fullmatch(r"ranking\s*[:=]\s*(.*)", line, _ANY_CASE))]
    answers = marked_answers or (lines if len(lines) == 1 else [])
    rankings = {tuple(_parse_ranking(text, count) or ()) for text in answers}
    values = rankings.pop() if len(rankings) == 1 else ()
    return list(values) or None


def _parse_ranking(text: str, count: int) -> list[float] | None:
    text = text.rstrip(" .")
    if len(text) > 20 * count + 20 or not re.fullmatch(r"[0-9]{1,4}(?:\s*[>=,]\s*[0-9]{1,4})*", text):
        return None
    tiers = [[int(number) for number in tier.split("=")] for tier in re.split("[>,]", text)]
    if sorted(number for tier in tiers for number in tier) != list(range(1, count + 1)):
        return None
    values, above = [0.0] * count, 0
    for tier in tiers:
        for number in tier:
            values[number - 1] = 1.0 - (above + (len(tier) - 1) / 2) / max(count - 1, 1)
        above += len(tier)
    return values


def _split_lines(answer: str) -> list[str]:
    """Return the answer's lines without emphasis and bullets; [] if it is longer than `MAX_CHARACTERS`."""
    if len(answer) > MAX_CHARACTERS:
        return []
    plain = re.sub(r"[*`#]+", "", remove_invisible(answer, keep="\n"))
    stripped = (_BULLET.sub("", line).strip() for line in plain.split("\n"))
    return [line for line in stripped if line]


def _parse_number(number: str, denominator: str | None, scale: tuple[float, float]) -> float:
    """Return a score such as `4` or `4/5` as a number; NaN if its denominator is not the scale's end."""
    return float(number) if denominator is None or float(denominator) == scale[1] else float("nan")


def _require_in_scale(scores: Iterable[float], scale: tuple[float, float]) -> list[float] | None:
    values = list(scores)
    return values if all(scale[0] <= score <= scale[1] for score in values) else None
