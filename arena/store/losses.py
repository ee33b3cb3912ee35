"""Deals that are incomplete because a match kept failing, and the summary of failed attempts."""

import re
from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

Deal = TypeVar("Deal", bound=Hashable)
Row = TypeVar("Row", bound=Mapping[str, Any])
_ATTEMPT = re.compile(r"-r\d+$")
_ATTEMPTS = ("matches", "failed", "given_up", "left_out")


def find_incomplete_deals(attempts: Iterable[tuple[Deal, str, str]]) -> set[Deal]:
    """Return the deals with a match of which no attempt finished. Credit and statistics leave these deals out.

    `attempts` has the deal, match id (with -rN for a repetition) and status of every attempt.
    """
    failed, finished = dict[str, Deal](), set[str]()
    for deal, match, status in attempts:
        planned = _ATTEMPT.sub("", match)
        finished.add(planned) if status == "finished" else failed.setdefault(planned, deal)
    return {deal for planned, deal in failed.items() if planned not in finished}


def select_complete(rows: Sequence[Row]) -> list[Row]:
    """Return the finished matches among one iteration's rows, without those of incomplete deals."""
    incomplete = find_incomplete_deals(((row["game"], row["seed"]), row["id"], row["status"]) for row in rows)
    return [row for row in rows if row["status"] == "finished" and (row["game"], row["seed"]) not in incomplete]


def summarise_failures(rows: Iterable[Mapping[str, Any]]) -> str:
    """Summarise failed attempts in one line: matches given up, share of failures, commonest cause; "" without failures.

    `rows` are metrics of iterations: `failed` counts attempts, `given_up` matches, `left_out` finished matches that
    share a deal with one given up, and `failure` is the iteration's commonest cause.
    """
    total, causes = Counter[str](), Counter[str]()
    for row in rows:
        counts = {name: n for name in _ATTEMPTS if type(n := row.get(name)) is int and 0 < n < 2**53}
        total.update(counts)
        if isinstance(cause := row.get("failure"), str):
            causes[cause] += counts.get("failed", 0)
    if not total["failed"]:
        return ""
    share = (
        f"{100 * total['failed'] / (total['matches'] + total['left_out'] + total['failed']):.2g} % of attempts failed"
    )
    losses = f"{total['given_up']} matches given up, " if total["given_up"] else ""
    losses += f"{total['left_out']} more of their deals left out, " if total["left_out"] else ""
    cause_text = "".join(f": {cause}" for cause, _ in causes.most_common(1))
    return f"{losses}{share}{cause_text}; see --failures"
