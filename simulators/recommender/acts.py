"""Parse and format a recommender's acts, and write the rules of the game."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple

from games.base import IllegalAct, to_one_line
from simulators.recommender.wishes import TOPICS

ACT = re.compile(r"\s*(show|ask|find)(?![a-z])\s*(.*?)\s*", re.IGNORECASE | re.DOTALL)
TERSE: Mapping[str, str] = {"G": "genre", "P": "price", "D": "dislikes"}
QUERY_LENGTH = 100
USAGE = "write SHOW and what to show, ASK genre, ASK price, ASK dislikes, or FIND and words"


class Act(NamedTuple):
    """An act of the recommender: show items, ask a question, or search for other candidates."""

    kind: Literal["show", "ask", "find"]
    items: tuple[int, ...] = ()
    words: str = ""
    """Topic of a question, query of a search, or explanation of a page."""


def read_act(text: str, names: Mapping[str, int], slate: int, terse: bool) -> Act:
    """Parse an act. `names` maps item names to ids. Raises IllegalAct, with the correct form, if it is invalid."""
    act_text, _, words = text.partition("|")
    if terse:
        text = "".join(act_text.split())
        return Act("ask", words=TERSE[text]) if text in TERSE else Act("show", _item_ids(list(text), names, slate))
    match = ACT.fullmatch(act_text)
    if match is None:
        raise IllegalAct(USAGE)
    verb, rest = match[1].lower(), match[2]
    if verb == "show":
        return Act("show", _item_ids(rest.replace(",", " ").split(), names, slate), to_one_line(words))
    if verb == "ask":
        if rest.lower() not in TOPICS:
            raise IllegalAct(f"ASK one of {', '.join(TOPICS)}")
        return Act("ask", words=rest.lower())
    query = to_one_line(rest, QUERY_LENGTH)
    if not query:
        raise IllegalAct("FIND needs words to look for")
    return Act("find", words=query)


def _item_ids(item_names: Sequence[str], names: Mapping[str, int], slate: int) -> tuple[int, ...]:
    """Return the ids of these item names. Raises IllegalAct unless they are 1 to `slate` different items."""
    unknown = [name for name in item_names if name not in names]
    if unknown:
        raise IllegalAct(f"'{to_one_line(unknown[0], 20)}' is nothing that can be shown")
    items = tuple(names[name] for name in item_names)
    if not 0 < len(items) <= slate or len(set(items)) < len(items):
        raise IllegalAct(f"show from 1 to {slate} different items")
    return items


def format_act(act: Act, names: Mapping[int, str], terse: bool) -> str:
    """Format an act as text that `read_act` can parse. `names` maps item ids to names."""
    if terse:
        codes = {topic: code for code, topic in TERSE.items()}
        return codes[act.words] if act.kind == "ask" else "".join(names[item] for item in act.items)
    if act.kind != "show":
        return f"{act.kind.upper()} {act.words}"
    act_text = " ".join(["SHOW", *(names[item] for item in act.items)])
    return f"{act_text} | {act.words}" if act.words else act_text


def rules(slate: int, days: int, pages: int, terse: bool, codes: bool, free: bool) -> str:
    """Return the rules of the game, in terse mode only the codes. With `free`, users may say anything."""
    if terse:
        return f"show {slate} or {' '.join(TERSE)}"
    called = "code" if codes else "n"
    return (
        "You recommend books to a user whose taste and purse you do not know. "
        f"SHOW {' '.join([called] * min(3, slate))} | words: shows from 1 to {slate} of the candidates by their "
        f"{'codes' if codes else 'numbers'}; the words say why, and naming a genre that is not there costs trust. "
        f"ASK genre, ASK price or ASK dislikes: the user {'says what it likes' if free else 'says the truth'}, and "
        "loses a little patience. "
        "FIND words: other candidates, by what they are about, at most twice a page. The user clicks, or does not; "
        f"pages without joy cost patience. A visit has up to {pages} pages; whoever was pleased comes back, for up to "
        f"{days} days. Do what you are asked for."
    )
